//! Adding and removing shards of a log in use.

use seriatim_model::ShardId;
use seriatim_protocol::control::{self, Awaited, LogEntry};

use crate::client::Client;
use crate::error::ControlError;

impl Client {
    /// Adds a shard to a log and waits until it accepts records. Appends and reads continue. No
    /// existing record moves. Returns the shard's number and the log's entry.
    ///
    /// # Errors
    /// If the log does not exist, the cluster cannot hold another shard, or no node answers in
    /// time.
    pub async fn add_shard(&self, name: &str) -> Result<(ShardId, LogEntry), ControlError> {
        let entry = self.lookup(name).await?;
        let (log, shard) = (entry.id, ShardId(entry.shards.len() as u32));
        self.change_catalog(move |request| control::Message::AddShard { request, log, shard }).await?;
        let waiting_for = format!("shard {shard} joins '{name}' as soon as enough of its nodes answer");
        Ok((shard, self.look_until(name, waiting_for, Awaited::Takes(shard)).await?))
    }

    /// Closes a shard and waits until it accepts no new records. Appends and reads continue. Its
    /// records stay readable until they are trimmed; the next view after that excludes the shard.
    ///
    /// # Errors
    /// If the log or shard does not exist, no other shard is open, or no node answers in time.
    pub async fn remove_shard(&self, name: &str, shard: ShardId) -> Result<LogEntry, ControlError> {
        let log = self.lookup(name).await?.id;
        if shard == ShardId::NOBODY {
            // Messages cannot encode this number.
            return Err(ControlError::Impossible { reason: format!("'{name}' has no shard {shard}") });
        }
        self.change_catalog(move |request| control::Message::RemoveShard { request, log, shard }).await?;
        let waiting_for = format!("shard {shard} of '{name}' closes with the next view");
        self.look_until(name, waiting_for, Awaited::TakesNoMore(shard)).await
    }
}
