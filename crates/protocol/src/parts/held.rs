//! Records that a replica holds and that have no final positions yet, and the clients that sent
//! them. The room is limited, and each client has a fair share.

use std::collections::{BTreeMap, BTreeSet};

use seriatim_model::{IdRun, Peer, SessionId};

use super::{IdSet, Shares};

/// The ids of records without final positions.
///
/// Invariant: `sessions` lists the sessions with held records, `shares` counts each client's held
/// records, and every client in `gone` holds some.
#[derive(Clone, Debug, Default)]
pub struct Held {
    ids: IdSet,
    sessions: BTreeMap<SessionId, Holding>,
    shares: Shares<Option<Peer>>,
    gone: BTreeSet<Peer>,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    count: u64,
    /// The number after the highest that was held.
    end: u64,
    /// The last client that sent records of the session. `None` if they came only from another
    /// replica or a reopened store.
    client: Option<Peer>,
}

impl Held {
    /// Adds ids whose records are in the store, or on the way into it.
    pub fn add(&mut self, ids: IdRun, from: Option<Peer>) {
        let fresh: u64 = self.ids.missing(ids).iter().map(|part| part.count).sum();
        self.ids.add(ids);
        if fresh > 0 {
            let unknown = Holding { count: 0, end: 0, client: None };
            let holding = self.sessions.entry(ids.session).or_insert(unknown);
            holding.count += fresh;
            holding.end = holding.end.max(ids.end());
            self.shares.take(holding.client, fresh);
        }
        if let Some(client @ Peer::Client(_)) = from {
            self.hear(ids.session, client);
        }
    }

    /// `client` sent records of the session: the session's held records count in its share from now
    /// on.
    pub fn hear(&mut self, session: SessionId, client: Peer) {
        let Some(holding) = self.sessions.get_mut(&session).filter(|held| held.client != Some(client)) else {
            return;
        };
        let (count, before) = (holding.count, holding.client.replace(client));
        self.give_back(before, count);
        self.shares.take(Some(client), count);
    }

    /// Removes records that left the store or were never stored.
    pub fn remove(&mut self, ids: IdRun) {
        let count: u64 = self.ids.within(ids).iter().map(|part| part.count).sum();
        self.ids.remove(ids);
        let Some(holding) = self.sessions.get_mut(&ids.session).filter(|_| count > 0) else { return };
        assert!(count <= holding.count, "{count} of {} records of a session go", holding.count);
        holding.count -= count;
        let Holding { count: left, client, .. } = *holding;
        if left == 0 {
            self.sessions.remove(&ids.session);
        }
        self.give_back(client, count);
    }

    fn give_back(&mut self, client: Option<Peer>, count: u64) {
        self.shares.give_back(client, count);
        if let Some(client) = client.filter(|_| self.shares.of(client) == 0) {
            self.gone.remove(&client);
        }
    }

    /// A client's connection closed. Its records still count in its share.
    pub fn disconnected(&mut self, client: Peer) {
        if self.shares.of(Some(client)) > 0 {
            self.gone.insert(client);
        }
    }

    /// Whether the session's client has disconnected, and no other client has sent records of the
    /// session since.
    #[must_use]
    pub fn is_left(&self, session: SessionId) -> bool {
        let client = self.sessions.get(&session).and_then(|holding| holding.client);
        let is_left = client.is_some_and(|client| self.gone.contains(&client));
        assert!(
            !is_left || self.shares.of(client) > 0,
            "a client that is gone and has nothing here is forgotten"
        );
        is_left
    }

    /// Whether records of the session are held.
    #[must_use]
    pub fn has(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// How many more records `client` may send, if all clients together may send `most`.
    #[must_use]
    pub fn room(&self, client: Peer, most: u64) -> u64 {
        self.shares.room(Some(client), most)
    }

    /// Whether later records of the session are held and wait for `ids`. The
    /// [reserve](Self::reserve) is for such `ids`.
    #[must_use]
    pub fn fill_a_gap(&self, ids: IdRun) -> bool {
        self.sessions.get(&ids.session).is_some_and(|holding| ids.first < holding.end)
    }

    /// How many more records `client` may send if they fill a gap.
    #[must_use]
    pub fn reserve(&self, client: Peer, most: u64) -> u64 {
        self.shares.room(Some(client), most + (most / 8).max(2))
    }

    /// Number of held records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.shares.total()
    }

    /// The held ids.
    #[must_use]
    pub fn ids(&self) -> &IdSet {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{ConnectionId, Position};

    use super::*;

    fn ids(session: u64, first: u64, count: u64) -> IdRun {
        IdRun { session: SessionId::new(Position(0), session), first, count }
    }

    const A: Peer = Peer::Client(ConnectionId(1));
    const B: Peer = Peer::Client(ConnectionId(2));

    #[test]
    fn what_a_session_has_counts_for_the_client_that_spoke_last() {
        let mut held = Held::default();
        held.add(ids(1, 0, 4), None);
        assert_eq!((held.room(A, 10), held.count()), (3, 4));
        held.add(ids(1, 2, 4), Some(A));
        assert_eq!((held.room(A, 10), held.room(B, 10)), (0, 2));
        held.disconnected(A);
        assert!(held.is_left(ids(1, 0, 1).session));
        held.hear(ids(1, 0, 1).session, B);
        assert!(!held.is_left(ids(1, 0, 1).session));
        assert_eq!((held.room(A, 10), held.room(B, 10)), (2, 0));
        held.remove(ids(1, 0, 9));
        held.remove(ids(1, 0, 9));
        assert_eq!((held.room(B, 10), held.count(), held.has(ids(1, 0, 1).session)), (5, 0, false));
        held.disconnected(B);
        held.add(ids(1, 7, 1), Some(B));
        assert!(!held.is_left(ids(1, 0, 1).session), "a client that had nothing is not noted");
    }
}
