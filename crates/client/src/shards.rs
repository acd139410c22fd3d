//! Changing the shards of a log while it is used.

use seriatim_model::ShardId;
use seriatim_protocol::control::{self, Awaited, LogEntry};

use crate::client::Client;
use crate::error::ControlError;

impl Client {
    /// Adds a shard to a log, and waits until it takes records. Appends and reads go on meanwhile.
    /// No record moves: the shard takes its share of the appends from now on. Returns its number
    /// with the log's entry.
    ///
    /// # Errors
    /// If there is no such log, the cluster cannot hold one more shard of it, or no node answers in
    /// time.
    pub async fn add_shard(&self, name: &str) -> Result<(ShardId, LogEntry), ControlError> {
        let entry = self.lookup(name).await?;
        let (log, shard) = (entry.id, ShardId(entry.shards.len() as u32));
        self.change_catalog(move |request| control::Message::AddShard { request, log, shard }).await?;
        let waiting_for = format!("shard {shard} joins '{name}' as soon as enough of its nodes answer");
        Ok((shard, self.look_until(name, waiting_for, Awaited::Takes(shard)).await?))
    }

    /// Lets a shard take no new records, and waits until that is so. Appends and reads go on
    /// meanwhile. What it holds can be read until it is trimmed; the next view after that does
    /// without the shard.
    ///
    /// # Errors
    /// If there is no such log or shard, if no other shard takes records, or no node answers in
    /// time.
    pub async fn remove_shard(&self, name: &str, shard: ShardId) -> Result<LogEntry, ControlError> {
        let log = self.lookup(name).await?.id;
        if shard == ShardId::NOBODY {
            // No message says so.
            return Err(ControlError::Impossible { reason: format!("'{name}' has no shard {shard}") });
        }
        self.change_catalog(move |request| control::Message::RemoveShard { request, log, shard }).await?;
        let waiting_for = format!("shard {shard} of '{name}' closes with the next view");
        self.look_until(name, waiting_for, Awaited::TakesNoMore(shard)).await
    }
}
