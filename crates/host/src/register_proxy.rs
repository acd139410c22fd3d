//! Relays clients' questions to a register on another node.

use std::collections::BTreeMap;

use seriatim_model::{ConnectionId, Peer};

/// Most questions in flight. A new one replaces the oldest.
const MOST: usize = 4096;

type Asker = (ConnectionId, u64);

/// Invariant: clients that wait for news have one number each, which is in `askers`.
#[derive(Debug)]
pub(crate) struct RegisterProxy {
    next: u64,
    askers: BTreeMap<u64, Asker>,
    /// Askers that wait for news, which may come repeatedly.
    listeners: BTreeMap<Asker, u64>,
}

impl RegisterProxy {
    /// The numbers of questions begin at this node's incarnation. Otherwise a client could take
    /// late news for a question of an earlier incarnation as the answer to its own question.
    pub(crate) fn new(incarnation: u64) -> Self {
        Self { next: incarnation, askers: BTreeMap::new(), listeners: BTreeMap::new() }
    }

    /// The number under which the asker's question is relayed. An asker that `listens` for news
    /// keeps its number.
    pub(crate) fn number(&mut self, asker: Asker, listens: bool) -> u64 {
        if let Some(number) = self.listeners.get(&asker).filter(|_| listens) {
            assert_eq!(self.askers.get(number), Some(&asker), "a listener has one number");
            return *number;
        }
        if self.askers.len() >= MOST
            && let Some((number, oldest)) = self.askers.pop_first()
            && self.listeners.get(&oldest) == Some(&number)
        {
            self.listeners.remove(&oldest);
        }
        self.next = self.next.wrapping_add(1);
        self.askers.insert(self.next, asker);
        if listens {
            self.listeners.insert(asker, self.next);
        }
        self.next
    }

    /// Returns the asker with this number. Removes it unless it listens.
    pub(crate) fn asker(&mut self, number: u64) -> Option<Asker> {
        let asker = *self.askers.get(&number)?;
        if self.listeners.get(&asker) != Some(&number) {
            self.askers.remove(&number);
        }
        Some(asker)
    }

    pub(crate) fn forget(&mut self, peer: Peer) {
        self.askers.retain(|_, (connection, _)| Peer::Client(*connection) != peer);
        self.listeners.retain(|(connection, _), _| Peer::Client(*connection) != peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ConnectionId = ConnectionId(7);

    #[test]
    fn a_question_has_one_answer_and_a_listener_any_number() {
        let mut relay = RegisterProxy::new(5);
        let (asked, listens) = (relay.number((CLIENT, 1), false), relay.number((CLIENT, 1), true));
        assert_eq!(relay.number((CLIENT, 1), true), listens);
        assert_eq!(relay.asker(asked), Some((CLIENT, 1)));
        assert_eq!(relay.asker(asked), None);
        for _ in 0..2 {
            assert_eq!(relay.asker(listens), Some((CLIENT, 1)));
        }
        relay.forget(Peer::Client(CLIENT));
        assert_eq!(relay.asker(listens), None);
        assert_ne!(relay.number((CLIENT, 1), true), listens);
    }

    #[test]
    fn the_oldest_is_given_up() {
        let mut relay = RegisterProxy::new(0);
        let first = relay.number((CLIENT, 0), true);
        for number in 1..=MOST as u64 {
            relay.number((CLIENT, number), false);
        }
        assert_eq!(relay.asker(first), None);
        assert_ne!(relay.number((CLIENT, 0), true), first);
        assert_eq!((relay.askers.len(), relay.listeners.len()), (MOST, 1));
    }
}
