//! The bounded in-memory log of a sequencing replica: its held entries, in arrival order.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{IdRun, RecordId, SessionId, Ticket, Time};

use super::content::Content;

/// A record that a sequencing replica holds.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id.
    pub id: RecordId,
    /// The held part of the append.
    pub content: Content,
    /// The write that makes the entry durable on this replica.
    pub ticket: Ticket,
    /// When it arrived, or was last forwarded.
    pub since: Time,
}

/// Entries in arrival order. A session's oldest entries can leave before older entries of other
/// sessions.
///
/// Invariant: `by_session` lists each session's slots in order of number, which is arrival order;
/// `held` and `bytes` count the occupied slots, `bytes_by_session` those of each session; the first
/// slot is occupied.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    first_slot: u64,
    slots: VecDeque<Option<Entry>>,
    by_session: BTreeMap<SessionId, VecDeque<u64>>,
    bytes_by_session: BTreeMap<SessionId, usize>,
    held: usize,
    bytes: usize,
}

impl Ring {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Bytes of its entries.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a session may add `more` bytes to a ring for `most` bytes. All sessions may use the
    /// first half of the ring, and each may have a first entry; beyond that, a session may have at
    /// most an equal part of `most`.
    #[must_use]
    pub fn leaves_room(&self, session: SessionId, more: usize, most: usize) -> bool {
        let held = self.bytes_by_session.get(&session).copied().unwrap_or(0);
        let sessions = self.by_session.len() + usize::from(held == 0);
        self.bytes + more <= most / 2 || held == 0 || held + more <= most / sessions
    }

    /// Whether it holds an entry of the session.
    #[must_use]
    pub fn holds(&self, session: SessionId) -> bool {
        self.by_session.contains_key(&session)
    }

    /// Adds the newest entry. Its number must be above the session's other numbers.
    pub fn push(&mut self, entry: Entry) {
        let slots = self.by_session.entry(entry.id.session).or_default();
        slots.push_back(self.first_slot + self.slots.len() as u64);
        self.held += 1;
        self.bytes += entry.content.size();
        *self.bytes_by_session.entry(entry.id.session).or_default() += entry.content.size();
        self.slots.push_back(Some(entry));
    }

    /// The entries from slot `from`, oldest first, with their slots.
    pub fn iter_from(&self, from: u64) -> impl Iterator<Item = (u64, &Entry)> + Clone {
        let skip = from.saturating_sub(self.first_slot) as usize;
        let first = self.first_slot + skip as u64;
        let slots = self.slots.range(skip.min(self.slots.len())..);
        (first..).zip(slots).filter_map(|(slot, entry)| entry.as_ref().map(|entry| (slot, entry)))
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.slots.iter().flatten()
    }

    /// The slot of the next entry.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first_slot + self.slots.len() as u64
    }

    /// Drops the held entries of `run`.
    pub fn drop_run(&mut self, run: IdRun) {
        let Some(slots) = self.by_session.get_mut(&run.session) else { return };
        let of_session = self.bytes_by_session.get_mut(&run.session).expect("its entries are counted");
        while let Some(slot) = slots.front() {
            let index = (slot - self.first_slot) as usize;
            let entry = self.slots[index].as_ref().expect("a listed slot is occupied");
            if entry.id.number >= run.first + run.count {
                break;
            }
            assert!(entry.id.number >= run.first, "entry {} is dropped out of order", entry.id);
            self.bytes -= entry.content.size();
            *of_session -= entry.content.size();
            self.held -= 1;
            self.slots[index] = None;
            slots.pop_front();
        }
        if slots.is_empty() {
            assert_eq!(*of_session, 0, "a session without entries has no bytes");
            self.by_session.remove(&run.session);
            self.bytes_by_session.remove(&run.session);
        }
        self.pop_empty();
    }

    /// The session's lowest held number.
    #[must_use]
    pub fn first_number(&self, session: SessionId) -> Option<u64> {
        let slot = self.by_session.get(&session)?.front()?;
        let entry = self.slots[(slot - self.first_slot) as usize].as_ref();
        Some(entry.expect("a listed slot is occupied").id.number)
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Self { first_slot: self.end(), ..Self::default() };
    }

    fn pop_empty(&mut self) {
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first_slot += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Position, Record};

    use super::*;

    fn entry(session: u64, number: u64) -> Entry {
        let id = RecordId { session: SessionId::new(Position(0), session), number };
        Entry { id, content: Record::new(b"x", 0).into(), ticket: Ticket(0), since: Time::ZERO }
    }

    fn run(session: u64, first: u64, count: u64) -> IdRun {
        IdRun { session: SessionId::new(Position(0), session), first, count }
    }

    fn ids(ring: &Ring) -> Vec<(u64, u64)> {
        ring.iter().map(|entry| (entry.id.session.0 as u64, entry.id.number)).collect()
    }

    #[test]
    fn a_session_that_takes_all_it_can_get_leaves_room_for_others() {
        let size = Ring::default().bytes() + entry(1, 0).content.size();
        let most = 8 * size;
        let mut ring = Ring::default();
        let mut number = 0;
        while ring.leaves_room(SessionId::new(Position(0), 1), size, most) {
            ring.push(entry(1, number));
            number += 1;
        }
        assert_eq!(number, 8, "alone it may have all");
        ring.drop_run(run(1, 0, 3));
        let other = SessionId::new(Position(0), 2);
        assert!(ring.leaves_room(other, size, most));
        ring.push(entry(2, 0));
        assert!(!ring.leaves_room(SessionId::new(Position(0), 1), size, most), "it has more than its half");
        assert!(ring.leaves_room(other, size, most));
    }

    #[test]
    fn entries_leave_in_another_order_than_they_came() {
        let mut ring = Ring::default();
        for (session, number) in [(1, 0), (2, 5), (1, 1), (2, 6)] {
            ring.push(entry(session, number));
        }
        ring.drop_run(run(2, 4, 2));
        assert_eq!(ids(&ring), [(1, 0), (1, 1), (2, 6)]);
        ring.drop_run(run(1, 0, 9));
        assert_eq!(ids(&ring), [(2, 6)]);
        assert_eq!((ring.len(), ring.bytes()), (1, 10));
        assert_eq!(ring.iter_from(0).next().unwrap().0, 3);
        ring.drop_run(run(3, 0, 1));
        ring.clear();
        assert!(ring.is_empty() && ring.end() == 4);
    }
}
