//! The network drops a client's connections without a reset, while new ones work: a firewall that
//! lost its state.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use seriatim_client::{Client, ClientOptions, Log, LogConfig, Order};
use seriatim_model::NodeId;

use crate::members::{Members, configure};
use crate::relay::Relay;

const NODES: u32 = 3;
/// Half of the default deadline.
const HALF: Duration = Duration::from_secs(5);

async fn behind_relays() -> (Members, Vec<Relay>) {
    let relays = RefCell::new(vec![]);
    let prepare = |node: NodeId, data: &std::path::Path| {
        configure(node, data, |text| {
            let listen = text.lines().find_map(|line| line.strip_prefix("listen = ")).expect("it listens");
            let advertised = listen.trim_matches('"');
            let own = advertised.replace(":770", ":870");
            let lines = format!("listen = \"{own}\"\nadvertise = \"{advertised}\"");
            let changed = text.replacen(&format!("listen = {listen}"), &lines, 1);
            let relay = Relay::start(advertised, own);
            assert_eq!(relay.address, advertised);
            relays.borrow_mut().push(relay);
            changed
        });
    };
    let members = Members::start_with(NODES, prepare).await;
    (members, relays.into_inner())
}

async fn client_of(members: &Members) -> Client {
    Client::connect_with(&members.addresses(), ClientOptions::default()).await.expect("the nodes serve")
}

/// Appends one record to each log concurrently. Returns the longest time.
async fn append(logs: &[(Order, Log)]) -> Duration {
    let appends: Vec<_> = logs
        .iter()
        .map(|(order, log)| {
            let (order, log) = (*order, log.clone());
            tokio::spawn(async move {
                let began = Instant::now();
                log.append_sync("x").await.unwrap_or_else(|cause| panic!("{order}: {cause}"));
                began.elapsed()
            })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for append in appends {
        longest = longest.max(append.await.expect("it is appended"));
    }
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_has_half_of_its_time_left_when_the_network_forgets_connections() {
    let (members, relays) = behind_relays().await;
    let others = client_of(&members).await;
    for order in Order::ALL {
        let config = LogConfig { order, ..LogConfig::default() };
        others.create(&order.to_string(), config).await.expect("the log is created");
    }
    for forgets in [&[NodeId(2)][..], &[NodeId(1)], &[NodeId(1), NodeId(2), NodeId(3)]] {
        let before: Vec<usize> = relays.iter().map(Relay::connections).collect();
        let client = client_of(&members).await;
        let mut logs = vec![];
        for order in Order::ALL {
            logs.push((order, client.log(&order.to_string()).await.expect("the log is there")));
        }
        append(&logs).await;
        let mut forgotten = 0;
        for node in forgets {
            let (relay, before) = (&relays[node.0 as usize - 1], before[node.0 as usize - 1]);
            forgotten += relay.connections() - before;
            relay.forget_after(before);
        }
        assert!(forgotten > 0, "the client has connections to {forgets:?}");
        let longest = append(&logs).await;
        assert!(longest < HALF, "connections to {forgets:?} are forgotten: an append took {longest:?}");
    }
}
