//! The log that a client uses, as far as it knows.

use seriatim_model::{Address, Endpoint, LogConfig, LogEntry, NodeId, Time, View, ViewNumber};

use super::appending::{ClientEffect, Failure, Reply, reply};
use super::known_entry::Heard;
use super::{KnownEntry, Lookup, Vigil};
use crate::control::message::{Message, NEWS};
use crate::mutation::{Mutation, Options};

/// The outcome of the register's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing for the log's user.
    Nothing,
    /// The log is gone.
    Deleted,
    /// There is a newer view.
    NewView,
}

/// The register's entry for a log, and when to ask the register for a newer one.
#[derive(Clone, Debug)]
pub struct KnownLog {
    /// The node of the register.
    control: NodeId,
    known: KnownEntry,
    /// The reason why there is no view, from another role than the register.
    unavailable: Option<String>,
    lookup: Lookup,
    vigil: Vigil,
}

impl KnownLog {
    /// The log that `entry` describes. If that has no view, the client asks the register, by way of node `control`,
    /// at once. `random` differs from client to client.
    #[must_use]
    pub fn new(control: NodeId, entry: LogEntry, random: u64) -> Self {
        let (lookup, vigil) = (Lookup::new(random), Vigil::new(random));
        let mut log = Self { control, known: KnownEntry::new(entry), unavailable: None, lookup, vigil };
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

    /// The promises of the log.
    #[must_use]
    pub fn config(&self) -> &LogConfig {
        &self.entry().config
    }

    /// Its view, if there is one.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.known.view()
    }

    /// The number of its view, or none.
    #[must_use]
    pub fn view_number(&self) -> ViewNumber {
        self.entry().view_number()
    }

    /// Why no view can be formed, if anybody said so.
    #[must_use]
    pub fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref().or(self.entry().unavailable.as_deref())
    }

    /// When to call [`look_up_if_due`](Self::look_up_if_due) and [`watch`](Self::watch) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        [self.lookup.deadline(), self.vigil.deadline()].into_iter().flatten().min()
    }

    /// Takes note of the register's answer. An earlier reason why there is no view may hold no more.
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
                self.lookup.found();
                self.vigil.restart();
                News::NewView
            }
        }
    }

    /// The log is gone: fails the requests with these tokens.
    pub fn tell_deleted(&self, tokens: impl Iterator<Item = u64>, out: &mut Vec<ClientEffect>) {
        let failure = || Reply::Failed(Failure::Deleted(self.entry().name.clone()));
        out.extend(tokens.map(|token| reply(token, failure())));
    }

    /// A replica that knows `view` does not serve clients of this one, and may say why there is none at present.
    pub fn was_rejected(&mut self, now: Time, view: ViewNumber, why: Option<String>) {
        self.unavailable = why;
        self.was_fenced(now, view);
    }

    /// A replica that knows `view` does not serve clients of this one.
    pub fn was_fenced(&mut self, now: Time, view: ViewNumber) {
        self.lookup.was_rejected(now, view, self.entry().view_number(), self.unavailable.is_some());
    }

    /// Asks the register soon, unless it does already.
    pub fn ask_register(&mut self, now: Time) {
        self.lookup.ask(now);
    }

    /// Asks the register, if that is due; again as long as there is no view, or the client `waits` for one.
    pub fn look_up_if_due(&mut self, now: Time, waits: bool, out: &mut Vec<ClientEffect>) {
        if self.lookup.comes_due(now, waits || self.view().is_none()) {
            self.look_up(out);
        }
    }

    /// Asks the register now and then while `oldest` is the append that has waited for longest, whatever was answered.
    pub fn watch(&mut self, now: Time, oldest: Option<u64>, options: Options, out: &mut Vec<ClientEffect>) {
        let is_due = self.vigil.comes_due(now, oldest.filter(|_| self.view().is_some()));
        if is_due && !options.mutates(Mutation::PutOffForEver) {
            self.wonder(out);
        }
    }

    /// A replica does not answer: it may be slow, or somewhere else by now, or no member any more. The client asks the
    /// register once for each retransmission: a slow member must not cost more.
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
