//! `seriatim log …`: create, list, show, delete.

use serde_json::json;
use seriatim_client::{Client, LogConfig, LogEntry};

use crate::arguments::{CreateArguments, LogCommand};
use crate::output::{Failure, Outcome, print_line};

pub(crate) async fn run(client: &Client, command: LogCommand) -> Outcome {
    match command {
        LogCommand::Create(arguments) => create(client, arguments).await,
        LogCommand::List { json } => {
            let (entries, _) = client.list().await?;
            if json {
                print_line(json!(entries.iter().map(describe).collect::<Vec<_>>()));
            } else {
                for entry in entries {
                    print_line(entry.name);
                }
            }
            Ok(())
        }
        LogCommand::Show { name, json } => {
            let entry = client.lookup(&name).await?;
            if json {
                print_line(describe(&entry));
            } else {
                show(&entry);
            }
            Ok(())
        }
        LogCommand::Delete { name } => Ok(client.delete(&name).await?),
    }
}

async fn create(client: &Client, arguments: CreateArguments) -> Outcome {
    let nodes = client.list().await?.1.len() as u32;
    let replicas = arguments.replicas.unwrap_or(2.min(nodes));
    let sequencers = arguments.sequencers.unwrap_or(3.min(nodes));
    if let Some(least) = arguments.min_replicas.filter(|least| *least > replicas) {
        return Err(Failure::new(format!(
            "--min-replicas {least} is more than the {replicas} replicas of a shard"
        )));
    }
    if let Some(least) = arguments.min_sequencers.filter(|least| *least > sequencers) {
        let text = format!("--min-sequencers {least} is more than the {sequencers} sequencing replicas");
        return Err(Failure::new(text));
    }
    let config = LogConfig {
        order: arguments.order,
        durability: arguments.durability,
        shards: arguments.shards,
        replicas,
        sequencers,
        min_replicas: arguments.min_replicas.unwrap_or(2),
        min_sequencers: arguments.min_sequencers.unwrap_or(2),
        stripe: arguments.stripe,
        max_record_bytes: arguments.max_record_bytes,
    };
    client.create(&arguments.name, config).await?;
    Ok(())
}

fn show(entry: &LogEntry) {
    let config = &entry.config;
    print_line(format_args!("name              {}", entry.name));
    print_line(format_args!("order             {}", config.order));
    print_line(format_args!("durability        {}", config.durability));
    let unit = if config.order.places_by_position() { "positions" } else { "appends of a session" };
    print_line(format_args!("stripe            {} {unit}", config.stripe));
    print_line(format_args!("largest record    {} bytes", config.max_record_bytes));
    match &entry.view {
        Some(view) => {
            print_line(format_args!("view              {}", view.number));
            print_line(format_args!("leader            node {}", view.leader));
            let nodes = |members: &[seriatim_model::Member]| {
                let nodes: Vec<String> = members.iter().map(|member| member.node.to_string()).collect();
                nodes.join(", ")
            };
            print_line(format_args!("sequencers        nodes {}", nodes(&view.sequencers)));
            for shard in &view.shards {
                print_line(format_args!(
                    "shard {:<11} nodes {}",
                    shard.shard.to_string(),
                    nodes(&shard.replicas)
                ));
            }
        }
        None => print_line("view              none yet"),
    }
    if let Some(why) = &entry.unavailable {
        print_line(format_args!("unavailable       {why}"));
    }
}

pub(crate) fn describe(entry: &LogEntry) -> serde_json::Value {
    let config = &entry.config;
    let nodes =
        |members: &[seriatim_model::Member]| members.iter().map(|member| member.node.0).collect::<Vec<_>>();
    json!({
        "name": entry.name,
        "id": entry.id.0,
        "order": config.order.to_string(),
        "durability": config.durability.to_string(),
        "shards": config.shards,
        "replicas": config.replicas,
        "sequencers": config.sequencers,
        "stripe": config.stripe,
        "max_record_bytes": config.max_record_bytes,
        "view": entry.view.as_ref().map(|view| json!({
            "number": view.number.0,
            "leader": view.leader.0,
            "sequencers": nodes(&view.sequencers),
            "shards": view.shards.iter().map(|shard| nodes(&shard.replicas)).collect::<Vec<_>>(),
        })),
        "unavailable": entry.unavailable,
    })
}
