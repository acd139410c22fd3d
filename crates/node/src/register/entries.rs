//! The register's contract as etcd transactions.
//!
//! Each change is one transaction, which compares the values that it was derived from. A
//! transaction may succeed although its answer is lost: the asker retransmits, and finds it done.

use std::collections::BTreeSet;

use rand::random;
use seriatim_etcd::{Client, KeyValue, Range, RequestError, Transaction};
use seriatim_model::limits::MAX_ENDED_SESSIONS;
use seriatim_model::{LogConfig, LogId, NodeId, Position, ViewNumber};
use seriatim_protocol::control::{
    EndedSession, LogEntry, Message, NodeAddress, Parting, Partings, Refusal, catalog, parting,
};

use super::keys::{Followed, Keys, Named, ValueError, decode, encode};

/// Attempts at a change before it fails. Each failed attempt means that a concurrent change
/// succeeded.
pub(super) const ATTEMPTS: u32 = 100;

/// Why the register in etcd cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// etcd does not answer, or refuses.
    #[error(transparent)]
    Etcd(#[from] RequestError),
    /// A value in etcd cannot be used.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Concurrent changes won every attempt.
    #[error("other clients keep changing the catalog; try again later")]
    Contended,
}

/// An attempt's outcome; `None`: a concurrent change won.
pub(super) type Attempt<T> = Result<Option<T>, EtcdError>;

#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub(super) client: Client,
    pub(super) keys: Keys,
}

impl Entries {
    /// The cluster's id; `None` before a node draws it.
    pub(super) async fn cluster(&self) -> Result<Option<u128>, EtcdError> {
        Ok(first(&self.client.get(&Range::key(&self.keys.cluster())).await?.found)?)
    }

    /// The node's registered address; `None` if unknown.
    pub(super) async fn address(&self, node: NodeId) -> Result<Option<String>, EtcdError> {
        Ok(first(&self.client.get(&Range::key(&self.keys.node(node))).await?.found)?)
    }

    /// Draws the cluster's id, unless another node has.
    pub(super) async fn draw_cluster(&self) -> Result<u128, EtcdError> {
        let key = self.keys.cluster();
        let (range, drawn) = (Range::key(&key), random());
        let draw = Transaction::new().if_version(&key, 0).put(&key, encode(&drawn)).or_get(&range);
        let mut outcome = self.client.commit(draw).await?;
        if outcome.succeeded {
            return Ok(drawn);
        }
        first(&outcome.take(0))?.ok_or(EtcdError::Contended)
    }

    async fn get(&self, log: LogId) -> Result<Option<LogEntry>, EtcdError> {
        let found = self.client.get(&Range::key(&self.keys.log(log))).await?.found;
        Ok(first(&found)?)
    }

    /// Answer to a compare-and-set of `proposed` that failed because the entry is `current`.
    pub(super) fn lost(&self, proposed: &LogEntry, current: Option<LogEntry>) -> Result<Message, EtcdError> {
        if current.as_ref().is_some_and(|current| catalog::succeeds(current, proposed)) {
            let (key, cause) = (self.keys.log(proposed.id), "its version is not that of its key".to_owned());
            return Err(ValueError::Damaged { key, cause }.into());
        }
        Ok(catalog::current(proposed.id, current))
    }

    pub(super) async fn list(&self) -> Result<(Vec<LogEntry>, Vec<NodeAddress>), EtcdError> {
        let read = Transaction::new().get(&self.keys.logs()).get(&self.keys.nodes());
        let mut outcome = self.client.commit(read).await?;
        let entries = outcome.take(0).iter().map(decode).collect::<Result<_, _>>()?;
        Ok((catalog::listed(entries), self.node_list(&outcome.take(1))?))
    }

    pub(super) async fn create(
        &self,
        request: u64,
        name: &str,
        config: &LogConfig,
    ) -> Result<Result<LogId, Refusal>, EtcdError> {
        if let Err(refusal) = catalog::check_name(name) {
            return Ok(Err(refusal));
        }
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_to_create(request, name, config).await? {
                return Ok(outcome);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_create(
        &self,
        request: u64,
        name: &str,
        config: &LogConfig,
    ) -> Attempt<Result<LogId, Refusal>> {
        let (name_key, last_key) = (self.keys.name(name), self.keys.last_log());
        let read = Transaction::new().get(&Range::key(&name_key)).get(&Range::key(&last_key));
        let read = read.get(&self.keys.nodes()).get(&self.keys.partings());
        let mut outcome = self.client.commit(read).await?;
        if let Some(named) = first::<Named>(&outcome.take(0))? {
            // The log is being deleted: its name is free in the next attempt.
            let Some(entry) = self.get(named.log).await? else { return Ok(None) };
            return Ok(Some(catalog::created_before(&entry, named.request == request, config)));
        }
        let last = outcome.take(1);
        let id = catalog::id_after(first(&last)?.unwrap_or(LogId(0)), random());
        let nodes: Vec<NodeId> = self.node_list(&outcome.take(2))?.iter().map(|node| node.node).collect();
        let entry = match parting::place(id, name, config, &nodes, &self.partings_in(&outcome.take(3))?) {
            Ok(entry) => entry,
            Err(refusal) => return Ok(Some(Err(refusal))),
        };
        let create = Transaction::new()
            .if_version(&name_key, 0)
            .if_modified_at(&last_key, modified_at(&last))
            .put(&name_key, encode(&Named { log: id, request }))
            .put(&last_key, encode(&id))
            .put(&self.keys.log(id), encode(&entry));
        let outcome = self.client.commit(create).await?;
        Ok(outcome.succeeded.then_some(Ok(id)))
    }

    pub(super) async fn delete(&self, name: &str, log: LogId) -> Result<Result<LogId, Refusal>, EtcdError> {
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_to_delete(name, log).await? {
                return Ok(outcome);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_delete(&self, name: &str, log: LogId) -> Attempt<Result<LogId, Refusal>> {
        let (key, last_key) = (self.keys.log(log), self.keys.last_log());
        let read = Transaction::new().get(&Range::key(&key)).get(&Range::key(&last_key));
        let read = read.get(&self.keys.nodes()).get(&self.keys.partings());
        let mut outcome = self.client.commit(read).await?;
        let found = outcome.take(0);
        let Some(entry) = first::<LogEntry>(&found)? else {
            let last = first(&outcome.take(1))?.unwrap_or(LogId(0));
            return Ok(Some(catalog::deleted_before(name.to_owned(), log, last)));
        };
        if entry.name != name {
            return Ok(Some(Err(catalog::not_found(name.to_owned()))));
        }
        let known = self.node_list(&outcome.take(2))?.into_iter().map(|node| node.node);
        let gone: BTreeSet<NodeId> = parting::removed(&self.partings_in(&outcome.take(3))?).collect();
        let told = catalog::told_of_deletion(&entry, known);
        let told: Vec<NodeId> = told.difference(&gone).copied().collect();
        let delete = Transaction::new()
            .if_modified_at(&key, modified_at(&found))
            .delete(&key)
            .delete(&self.keys.name(name))
            .put(&self.keys.retiring(log), encode(&told));
        let outcome = self.client.commit(delete).await?;
        Ok(outcome.succeeded.then_some(Ok(log)))
    }

    /// Replaces a log's entry with the result of `change`; `None` changes nothing. Returns the new
    /// entry.
    pub(super) async fn reshape(
        &self,
        log: LogId,
        change: impl Fn(&LogEntry, &[NodeId]) -> Result<Option<LogEntry>, Refusal>,
    ) -> Result<Result<Option<LogEntry>, Refusal>, EtcdError> {
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_to_reshape(log, &change).await? {
                return Ok(outcome);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_reshape(
        &self,
        log: LogId,
        change: impl Fn(&LogEntry, &[NodeId]) -> Result<Option<LogEntry>, Refusal>,
    ) -> Attempt<Result<Option<LogEntry>, Refusal>> {
        let key = self.keys.log(log);
        let read = Transaction::new().get(&Range::key(&key)).get(&self.keys.nodes());
        let mut outcome = self.client.commit(read.get(&self.keys.partings())).await?;
        let found = outcome.take(0);
        let Some(entry) = first::<LogEntry>(&found)? else { return Ok(Some(Err(catalog::gone(log)))) };
        let nodes = self.staying(&outcome.take(1), &outcome.take(2))?;
        let changed = match change(&entry, &nodes) {
            Ok(Some(changed)) => catalog::successor(changed),
            Ok(None) => return Ok(Some(Ok(None))),
            Err(refusal) => return Ok(Some(Err(refusal))),
        };
        let put = Transaction::new().if_modified_at(&key, modified_at(&found)).put(&key, encode(&changed));
        let outcome = self.client.commit(put).await?;
        Ok(outcome.succeeded.then_some(Ok(Some(changed))))
    }

    /// Adds an ended session, and returns the log's entry.
    pub(super) async fn end_session(
        &self,
        log: LogId,
        view: ViewNumber,
        ended: EndedSession,
        since: Position,
    ) -> Result<Message, EtcdError> {
        let most = MAX_ENDED_SESSIONS;
        let change =
            |entry: &LogEntry, _: &[NodeId]| Ok(catalog::with_ended(entry, view, ended, since, most));
        // The answer below reports a deleted log.
        let _ = self.reshape(log, change).await?;
        Ok(catalog::current(log, self.get(log).await?))
    }

    /// Stores a node's address and returns all nodes. Returns `Elsewhere` if another address is
    /// registered, unless `replaces` is that address's version.
    pub(super) async fn join(&self, node: NodeAddress, replaces: Option<u64>) -> Result<Message, EtcdError> {
        for _ in 0..ATTEMPTS {
            if let Some(answer) = self.try_to_join(&node, replaces).await? {
                return Ok(answer);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_join(&self, node: &NodeAddress, replaces: Option<u64>) -> Attempt<Message> {
        let (key, address, nodes) = (self.keys.node(node.node), encode(&node.address), self.keys.nodes());
        let found = self.client.get(&self.keys.partings()).await?.found;
        let partings = self.partings_in(&found)?;
        if partings.get(&node.node) == Some(&Parting::Removed) {
            return Ok(Some(Message::Partings { partings: parting::listed(&partings) }));
        }
        let parting = self.keys.parting(node.node);
        let parted_at =
            found.iter().find(|stored| stored.key == parting).map_or(0, |stored| stored.modified_at);
        let put = |condition: Transaction| {
            let stays = condition.if_modified_at(&parting, parted_at);
            stays.put(&key, address.clone()).get(&nodes).or_get(&nodes)
        };
        // Store the address even if it is known: the new revision rejects earlier moves.
        let mut outcome = self.client.commit(put(Transaction::new().if_value(&key, address.clone()))).await?;
        if !outcome.succeeded {
            let known = outcome.take(0).into_iter().find(|stored| stored.key == key);
            let revision = known.as_ref().map_or(0, |known| known.modified_at);
            let version = u64::try_from(revision).unwrap_or_default();
            if known.is_some() && replaces != Some(version) {
                return Ok(Some(Message::Elsewhere { version }));
            }
            outcome = self.client.commit(put(Transaction::new().if_modified_at(&key, revision))).await?;
        }
        let nodes = self.node_list(&outcome.take(0))?;
        Ok(outcome.succeeded.then_some(Message::Cluster { nodes }))
    }

    pub(super) async fn retired(&self, log: LogId, node: NodeId) -> Result<(), EtcdError> {
        for _ in 0..ATTEMPTS {
            if let Some(outcome) = self.try_to_retire(log, node).await? {
                return Ok(outcome);
            }
        }
        Err(EtcdError::Contended)
    }

    async fn try_to_retire(&self, log: LogId, node: NodeId) -> Attempt<()> {
        let key = self.keys.retiring(log);
        let found = self.client.get(&Range::key(&key)).await?.found;
        let Some(nodes) = first::<Vec<NodeId>>(&found)? else { return Ok(Some(())) };
        let mut left: BTreeSet<NodeId> = nodes.into_iter().collect();
        if !left.remove(&node) {
            return Ok(Some(()));
        }
        let left: Vec<NodeId> = left.into_iter().collect();
        let change = Transaction::new().if_modified_at(&key, modified_at(&found));
        let change = if left.is_empty() { change.delete(&key) } else { change.put(&key, encode(&left)) };
        let outcome = self.client.commit(change).await?;
        Ok(outcome.succeeded.then_some(()))
    }

    /// Nodes that may receive roles.
    fn staying(&self, nodes: &[KeyValue], partings: &[KeyValue]) -> Result<Vec<NodeId>, ValueError> {
        let nodes = self.node_list(nodes)?;
        Ok(parting::staying(nodes.iter().map(|node| node.node), &self.partings_in(partings)?))
    }

    pub(super) fn partings_in(&self, found: &[KeyValue]) -> Result<Partings, ValueError> {
        let parting = |stored: &KeyValue| match self.keys.about(&stored.key) {
            Some(Followed::Parting(node)) => Some(decode(stored).map(|parting| (node, parting))),
            _ => None,
        };
        found.iter().filter_map(parting).collect()
    }

    /// Nodes in the order of their numbers, as in every implementation of the register.
    pub(super) fn node_list(&self, found: &[KeyValue]) -> Result<Vec<NodeAddress>, ValueError> {
        let node = |stored: &KeyValue| match self.keys.about(&stored.key) {
            Some(Followed::Node(node)) => Some(decode(stored).map(|address| NodeAddress { node, address })),
            _ => None,
        };
        let mut nodes: Vec<NodeAddress> = found.iter().filter_map(node).collect::<Result<_, _>>()?;
        nodes.sort_by_key(|node| node.node);
        Ok(nodes)
    }
}

pub(super) fn first<T: seriatim_model::wire::Wire>(found: &[KeyValue]) -> Result<Option<T>, ValueError> {
    found.first().map(decode).transpose()
}

/// Revision that a transaction compares; 0 if the key is absent.
pub(super) fn modified_at(found: &[KeyValue]) -> i64 {
    found.first().map_or(0, |found| found.modified_at)
}
