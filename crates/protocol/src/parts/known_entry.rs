//! The register's entry of a log, as a user of the log knows it.

use seriatim_model::{LogEntry, View, ViewNumber};

use crate::control::message::{Message, Refusal};

/// The latest known entry.
///
/// Invariant: its log never changes, and its view number never falls, even if the register was set
/// back.
#[derive(Clone, Debug)]
pub struct KnownEntry {
    entry: LogEntry,
}

/// The effect of a register's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// No effect: the message concerns another log.
    Nothing,
    /// There is no newer view.
    Same,
    /// There is a newer view than this one, the last known.
    NewView(ViewNumber),
    /// The log was deleted.
    Deleted,
}

impl KnownEntry {
    /// Starts with this entry.
    #[must_use]
    pub fn new(entry: LogEntry) -> Self {
        Self { entry }
    }

    /// The entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        &self.entry
    }

    /// The known view. `None` if there is none.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.entry.view.as_ref()
    }

    /// Handles a register's message. A late answer for a node's earlier incarnation may concern
    /// another log.
    pub fn hear(&mut self, message: Message) -> Heard {
        match message {
            Message::Found { entry, .. } | Message::Registered { entry } if entry.name == self.entry.name => {
                self.learn(entry)
            }
            Message::Refused { refusal: Refusal::NoSuchLog { name }, .. } if name == self.entry.name => {
                Heard::Deleted
            }
            _ => Heard::Nothing,
        }
    }

    fn learn(&mut self, found: LogEntry) -> Heard {
        if found.id != self.entry.id {
            return Heard::Deleted;
        }
        let known = self.entry.view_number();
        let is_new = found.view_number() > known;
        if is_new || found.view_number() == known && found.version > self.entry.version {
            self.entry = found;
        }
        assert!(self.entry.view_number() >= known, "{:?}: view {known} was known", self.entry);
        if is_new { Heard::NewView(known) } else { Heard::Same }
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{
        Incarnation, LogConfig, LogId, Member, NodeId, Placement, Position, ShardId, ShardMembers,
    };

    use super::*;
    use crate::control::catalog;

    fn entry(view: u64, version: u64) -> LogEntry {
        let me = Member { node: NodeId(1), incarnation: Incarnation(1) };
        let config = LogConfig { sequencers: 1, shards: 1, replicas: 1, ..LogConfig::default() };
        let placed = catalog::place(LogId(1), "log".into(), config, &[me.node]).expect("it can");
        let shard = ShardMembers { shard: ShardId(0), begins: Position::ZERO, replicas: vec![me] };
        let view = View {
            number: (0..view).fold(ViewNumber::NONE, |view, _| view.next()),
            sequencers: vec![me],
            leader: me.node,
            shards: vec![shard],
            retired: vec![],
            placement: Placement::new(vec![ShardId(0)], 1),
            first: Position::ZERO,
            start: Position::ZERO,
        };
        LogEntry { view: Some(view), version, ..placed }
    }

    fn hear(known: &mut KnownEntry, entry: LogEntry) -> (Heard, u64) {
        let heard = known.hear(Message::Registered { entry });
        (heard, known.entry().version)
    }

    #[test]
    fn views_and_versions_go_on_and_never_back() {
        let mut known = KnownEntry::new(entry(2, 5));
        assert_eq!(hear(&mut known, entry(2, 4)), (Heard::Same, 5), "it is late");
        assert_eq!(hear(&mut known, entry(2, 6)), (Heard::Same, 6), "somebody claims");
        let before = known.entry().view_number();
        assert_eq!(hear(&mut known, entry(3, 7)), (Heard::NewView(before), 7));
        assert_eq!(hear(&mut known, entry(1, 9)), (Heard::Same, 7), "the register was set back");
        assert_eq!(hear(&mut known, entry(4, 3)).1, 3, "no caller takes back a registered view");
    }

    #[test]
    fn another_log_is_none_of_its_business_unless_it_has_the_name() {
        let mut known = KnownEntry::new(entry(1, 1));
        assert_eq!(hear(&mut known, LogEntry { name: "other".into(), ..entry(2, 2) }), (Heard::Nothing, 1));
        assert_eq!(hear(&mut known, LogEntry { id: LogId(9), ..entry(2, 2) }), (Heard::Deleted, 1));
        let gone =
            |name: &str| Message::Refused { request: 0, refusal: Refusal::NoSuchLog { name: name.into() } };
        assert_eq!(known.hear(gone("other")), Heard::Nothing);
        assert_eq!(known.hear(gone("log")), Heard::Deleted);
    }
}
