//! A client's knowledge of its log.

use std::collections::BTreeSet;
use std::ops::Range;

use seriatim_model::{Address, Endpoint, LogConfig, LogEntry, NodeId, Time, View, ViewNumber};

use super::appending::{ClientEffect, Failure, Reply, reply};
use super::known_entry::Heard;
use super::{KnownEntry, Lookup, Vigil};
use crate::control::message::{Message, NEWS};
use crate::mutation::{Mutation, Options};

/// The effect of a register's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// No effect for the log's user.
    Nothing,
    /// The log was deleted.
    Deleted,
    /// There is a newer view.
    NewView,
}

/// The register's entry for a log, and when to ask for a newer one.
#[derive(Clone, Debug)]
pub struct KnownLog {
    control: NodeId,
    known: KnownEntry,
    /// Why there is no view, if a replica reported it.
    unavailable: Option<String>,
    /// Nodes whose connection broke in this view, and that have sent nothing since.
    lost: BTreeSet<NodeId>,
    lookup: Lookup,
    /// All appends that waited at the latest reason to ask the register have numbers below this.
    asked_for: Option<u64>,
    vigil: Vigil,
}

impl KnownLog {
    /// Starts with `entry`. Without a view, the client asks the register at node `control`.
    /// `random` differs between clients.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry, random: u64) -> Self {
        let (lookup, vigil) = (Lookup::new(random), Vigil::new(random));
        let (known, unavailable, lost) = (KnownEntry::new(entry), None, BTreeSet::new());
        let mut log = Self { control, known, unavailable, lost, lookup, asked_for: None, vigil };
        if log.view().is_none() {
            log.ask_register(Time::ZERO);
        }
        log
    }

    /// The register's entry.
    #[must_use]
    pub fn entry(&self) -> &LogEntry {
        self.known.entry()
    }

    /// The log's configuration.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.entry().config
    }

    /// Its view. `None` if there is none.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.known.view()
    }

    /// The number of its view, or [`ViewNumber::NONE`].
    #[must_use]
    pub fn view_number(&self) -> ViewNumber {
        self.entry().view_number()
    }

    /// Why no view can be formed, if known.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref().or(self.entry().unavailable.as_deref())
    }

    /// When [`look_up_if_due`](Self::look_up_if_due) and [`watch`](Self::watch) must be called at
    /// the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        [self.lookup.deadline(), self.vigil.deadline()].into_iter().flatten().min()
    }

    /// Handles a register's message, which invalidates an earlier `unavailable`.
    pub fn learn(&mut self, message: Message) -> News {
        match self.known.hear(message) {
            Heard::Nothing => News::Nothing,
            Heard::Deleted => {
                self.lookup.found();
                News::Deleted
            }
            Heard::Same => {
                self.unavailable = None;
                News::Nothing
            }
            Heard::NewView(_) => {
                self.unavailable = None;
                self.lost.clear();
                self.lookup.found();
                self.vigil.restart();
                News::NewView
            }
        }
    }

    /// Fails the requests with these tokens, because the log was deleted.
    pub fn tell_deleted(&self, tokens: impl Iterator<Item = u64>, out: &mut Vec<ClientEffect>) {
        let failure = || Reply::Failed(Failure::Deleted(self.entry().name.clone()));
        out.extend(tokens.map(|token| reply(token, failure())));
    }

    /// A replica in view `view` rejected the client. `why` is the reason why there is no view, if
    /// the replica knows it.
    pub fn was_rejected(&mut self, now: Time, view: ViewNumber, why: Option<String>) {
        self.unavailable = why;
        self.was_fenced(now, view);
    }

    /// A replica in view `view` rejected the client.
    pub fn was_fenced(&mut self, now: Time, view: ViewNumber) {
        self.asked_for = None;
        self.lookup.was_rejected(now, view, self.entry().view_number(), self.unavailable.is_some());
    }

    /// A connection broke. A client that `waits` for outcomes asks the register at once, even if it
    /// asks already for another reason.
    pub fn disconnected(&mut self, now: Time, node: NodeId, waits: bool) {
        self.asked_for = None;
        let is_news = self.lost.insert(node);
        if waits && is_news {
            self.lookup.ask_anew(now);
        } else if waits {
            self.lookup.ask(now);
        }
    }

    /// A message came from a node.
    pub fn heard(&mut self, node: NodeId) {
        self.lost.remove(&node);
    }

    /// Whether one of the `needed` nodes has been silent since its connection broke in this view.
    /// The client then asks the register without waiting for a timer.
    #[must_use]
    pub fn has_lost<T>(&self, mut needed: impl Iterator<Item = (NodeId, T)>) -> bool {
        !self.lost.is_empty() && needed.any(|(node, _)| self.lost.contains(&node))
    }

    /// Asks the register soon, unless a question is pending.
    pub fn ask_register(&mut self, now: Time) {
        self.asked_for = None;
        self.lookup.ask(now);
    }

    /// Sends the question to the register if it is due. Repeats it while there is no view, or while
    /// the client `waits` for an outcome.
    pub fn look_up_if_due(&mut self, now: Time, waits: bool, out: &mut Vec<ClientEffect>) {
        if self.lookup.comes_due(now, waits || self.view().is_none()) {
            self.look_up(out);
        }
    }

    /// Asks the register with backoff while the oldest of the `waiting` appends stays the same,
    /// even if replicas answer.
    pub fn watch(&mut self, now: Time, waiting: Range<u64>, options: Options, out: &mut Vec<ClientEffect>) {
        self.rest_if_served(&waiting);
        let oldest = (!waiting.is_empty()).then_some(waiting.start);
        let is_due = self.vigil.comes_due(now, oldest.filter(|_| self.view().is_some()));
        if is_due && !options.mutates(Mutation::PutOffForEver) {
            self.wonder(out);
        }
    }

    /// Stops asking once the view works: all appends that waited at the latest reason to ask are
    /// done.
    fn rest_if_served(&mut self, waiting: &Range<u64>) {
        if self.lookup.is_idle() || self.view().is_none() || self.unavailable.is_some() {
            self.asked_for = None;
            return;
        }
        let below = *self.asked_for.get_or_insert(waiting.end.max(waiting.start + 1));
        if waiting.start >= below {
            self.lookup.works(self.view_number());
        }
    }

    /// Asks the register about a silent replica, which may have moved or left. One question per
    /// retransmission, since it may only be slow.
    pub fn wonder(&self, out: &mut Vec<ClientEffect>) {
        if self.lookup.is_idle() {
            self.look_up(out);
        }
    }

    /// Asks the register once.
    pub fn look_up(&self, out: &mut Vec<ClientEffect>) {
        let message = Message::Lookup { request: NEWS, name: self.entry().name.clone() };
        let to = Address::Node(self.control, Endpoint::Register);
        out.push(ClientEffect::Send { to, message: message.into() });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control::testing;

    const NODE: NodeId = NodeId(10);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// The milliseconds in which a client asks. In each, one append ends its wait and another
    /// begins.
    fn asked(log: &mut KnownLog, span: std::ops::Range<u64>) -> Vec<u64> {
        let is_asked = |ms: &u64| {
            let mut out = vec![];
            log.look_up_if_due(at(*ms), true, &mut out);
            log.watch(at(*ms), *ms..*ms + 3, Options::default(), &mut out);
            !out.is_empty()
        };
        span.filter(is_asked).collect()
    }

    #[test]
    fn a_client_that_always_waits_for_something_asks_when_it_loses_a_connection_and_not_for_ever() {
        let view = testing::view();
        let mut log = KnownLog::new(NodeId(1), testing::entry(Some(view.clone())), 7);
        log.was_fenced(at(0), view.number);
        assert_eq!(asked(&mut log, 0..10_000), [0, 2], "all that waited is done after three");
        // No append completes, and the pauses grow.
        log.ask_register(at(10_000));
        let mut out = vec![];
        (10_000..20_000).for_each(|ms| log.look_up_if_due(at(ms), true, &mut out));
        log.disconnected(at(20_000), NODE, true);
        assert!(log.has_lost([(NODE, ())].into_iter()));
        log.look_up_if_due(at(20_000), true, &mut vec![]);
        assert_eq!(log.lookup.deadline(), Some(at(20_002)), "it asks at once, and soon again");
        // Only the first loss counts, until the node sends a message.
        log.look_up_if_due(at(20_002), true, &mut vec![]);
        log.disconnected(at(20_003), NODE, true);
        assert_eq!(log.lookup.deadline(), Some(at(20_006)));
        log.heard(NODE);
        assert!(!log.has_lost([(NODE, ())].into_iter()));
    }

    #[test]
    fn a_client_goes_on_asking_for_a_newer_view_that_it_has_heard_of() {
        let view = testing::view();
        let mut log = KnownLog::new(NodeId(1), testing::entry(Some(view.clone())), 7);
        log.was_fenced(at(0), view.number.next());
        assert_eq!(asked(&mut log, 0..10), [0, 2, 6]);
    }
}
