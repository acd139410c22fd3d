//! Combines concurrent questions into few etcd requests.

use std::collections::BTreeMap;

use seriatim_etcd::{KeyValue, Range, RequestError, Transaction};
use seriatim_model::LogId;
use seriatim_protocol::control::{LogEntry, Message, NodeAddress, catalog};

use super::entries::{Entries, EtcdError, first};
use super::keys::{Named, encode};

/// Logs per etcd request. etcd accepts 128 operations by default; a log's name takes two, the nodes
/// take one.
pub(super) const BATCH: usize = 60;
/// Most bytes of changed entries in one request, unless a single entry is larger. etcd accepts 1.5
/// MiB.
const BATCH_BYTES: usize = 512 << 10;

pub(super) struct LookedUp {
    pub(super) logs: Vec<(String, Result<Option<LogEntry>, EtcdError>)>,
    pub(super) nodes: Vec<NodeAddress>,
}

impl Entries {
    pub(super) async fn get_all(
        &self,
        logs: &[LogId],
    ) -> Result<Vec<Result<Option<LogEntry>, EtcdError>>, RequestError> {
        let read =
            logs.iter().fold(Transaction::new(), |read, log| read.get(&Range::key(&self.keys.log(*log))));
        let mut outcome = self.client.commit(read).await?;
        Ok((0..logs.len()).map(|index| Ok(first(&outcome.take(index))?)).collect())
    }

    /// Looks up logs by name, and all nodes. `hints` are recent ids of the names. A name with a
    /// correct hint takes one request, other names a second.
    pub(super) async fn look_up_all(
        &self,
        names: Vec<String>,
        hints: &BTreeMap<String, LogId>,
    ) -> Result<LookedUp, EtcdError> {
        let mut read = Transaction::new().get(&self.keys.nodes());
        for name in &names {
            read = read.get(&Range::key(&self.keys.name(name)));
            if let Some(log) = hints.get(name) {
                read = read.get(&Range::key(&self.keys.log(*log)));
            }
        }
        let mut found = self.client.commit(read).await?.found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let nodes = self.node_list(&next())?;
        let (mut logs, mut others) = (vec![], vec![]);
        for name in names {
            let named = first::<Named>(&next());
            let hinted: Option<Vec<KeyValue>> = hints.contains_key(&name).then(&mut next);
            match (named, hints.get(&name), hinted) {
                (Err(error), ..) => logs.push((name, Err(error.into()))),
                (Ok(None), ..) => logs.push((name, Ok(None))),
                (Ok(Some(named)), Some(hint), Some(found)) if named.log == *hint => {
                    logs.push((name, first(&found).map_err(EtcdError::from)));
                }
                (Ok(Some(named)), ..) => others.push((name, named.log)),
            }
        }
        if !others.is_empty() {
            let ids: Vec<LogId> = others.iter().map(|(_, log)| *log).collect();
            let entries = self.get_all(&ids).await?;
            logs.extend(others.into_iter().map(|(name, _)| name).zip(entries));
        }
        Ok(LookedUp { logs, nodes })
    }

    /// Number of leading proposals that fit into one request; at least 1 if there is any.
    pub(super) fn fitting(proposals: &[LogEntry]) -> usize {
        let mut bytes = 0;
        let fits = |proposed: &&LogEntry| {
            bytes += encode(*proposed).len();
            bytes <= BATCH_BYTES
        };
        proposals.iter().take(BATCH).take_while(fits).count().max(1).min(proposals.len())
    }

    /// Answers compare-and-sets of several logs; each succeeds or fails by itself. etcd counts the
    /// versions of a key from 1, the entry counts from 0.
    pub(super) async fn compare_and_set_all(
        &self,
        proposals: Vec<LogEntry>,
    ) -> Result<Vec<Result<Message, EtcdError>>, RequestError> {
        let replace = |proposed: &LogEntry| {
            let key = self.keys.log(proposed.id);
            let expected =
                i64::try_from(proposed.version).map_or(i64::MAX, |version| version.saturating_add(1));
            let next = encode(&catalog::successor(proposed.clone()));
            Transaction::new().if_version(&key, expected).put(&key, next).or_get(&Range::key(&key))
        };
        let all = proposals.iter().fold(Transaction::new(), |all, proposed| all.and(replace(proposed)));
        let outcome = self.client.commit(all).await?;
        let mut outcomes = outcome.within.into_iter();
        let answer = |proposed: LogEntry| {
            let mut outcome = outcomes.next().ok_or(EtcdError::Contended)?;
            if outcome.succeeded {
                return Ok(Message::Current { entry: catalog::successor(proposed) });
            }
            self.lost(&proposed, first(&outcome.take(0))?)
        };
        Ok(proposals.into_iter().map(answer).collect())
    }
}
