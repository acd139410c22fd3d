//! Nodes that leave, in etcd.
//!
//! One transaction records a removal and deletes the node's address. Afterwards deleted logs no
//! longer wait for the node. If this is interrupted, the asker retransmits and the rest follows.

use std::collections::BTreeSet;

use seriatim_etcd::{Range, Transaction};
use seriatim_model::{LogId, NodeId};
use seriatim_protocol::control::{LogEntry, NodeParting, Parting, PartingChange, Refusal, parting};

use super::entries::{ATTEMPTS, Attempt, Entries, EtcdError, modified_at};
use super::keys::{Followed, decode, encode};

impl Entries {
    pub(super) async fn partings(&self) -> Result<Vec<NodeParting>, EtcdError> {
        let found = self.client.get(&self.keys.partings()).await?.found;
        Ok(parting::listed(&self.partings_in(&found)?))
    }

    pub(super) async fn part(
        &self,
        node: NodeId,
        change: PartingChange,
    ) -> Result<Result<(), Refusal>, EtcdError> {
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_to_part(node, change).await? {
                if outcome.is_ok() && change == PartingChange::Remove {
                    self.forget(node).await?;
                }
                return Ok(outcome);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_part(&self, node: NodeId, change: PartingChange) -> Attempt<Result<(), Refusal>> {
        let key = self.keys.parting(node);
        let read = Transaction::new()
            .get(&self.keys.logs())
            .get(&self.keys.nodes())
            .get(&self.keys.partings())
            .get(&Range::key(&key));
        let mut outcome = self.client.commit(read).await?;
        let entries: Vec<LogEntry> = outcome.take(0).iter().map(decode).collect::<Result<_, _>>()?;
        let known: BTreeSet<NodeId> =
            self.node_list(&outcome.take(1))?.iter().map(|known| known.node).collect();
        let (partings, found) = (self.partings_in(&outcome.take(2))?, outcome.take(3));
        let entries: Vec<&LogEntry> = entries.iter().collect();
        let wanted = match parting::change((&known, None), &entries, &partings, node, change) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return Ok(Some(Ok(()))),
            Err(refusal) => return Ok(Some(Err(refusal))),
        };
        let change = Transaction::new().if_modified_at(&key, modified_at(&found));
        let change = match wanted {
            Some(Parting::Removed) => {
                change.put(&key, encode(&Parting::Removed)).delete(&self.keys.node(node))
            }
            Some(drained) => change.put(&key, encode(&drained)),
            None => change.delete(&key),
        };
        let outcome = self.client.commit(change).await?;
        Ok(outcome.succeeded.then_some(Ok(())))
    }

    /// Removes the node from the lists of nodes that deleted logs wait for.
    async fn forget(&self, node: NodeId) -> Result<(), EtcdError> {
        let found = self.client.get(&self.keys.all_retiring()).await?.found;
        let mut waiting: Vec<LogId> = vec![];
        for stored in &found {
            let nodes: Vec<NodeId> = decode(stored)?;
            if let Some(Followed::Retiring(log)) =
                self.keys.about(&stored.key).filter(|_| nodes.contains(&node))
            {
                waiting.push(log);
            }
        }
        for log in waiting {
            self.retired(log, node).await?;
        }
        Ok(())
    }
}
