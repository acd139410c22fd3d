//! Messages and writes of one log, as lines of a page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use seriatim_model::{Endpoint, LogId, NodeId, Time, ViewNumber};
use seriatim_protocol::parts::appending::Reply;
use seriatim_protocol::{Message, control};
use seriatim_store::MemoryDisk;

use crate::lab::{Flight, Party};
use crate::programs::Answer;
use crate::words::{self, Names};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Everything,
    /// Messages of appending clients, and orders of their records by sequencing replicas.
    Appenders,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message { is_appenders: bool, orders: bool },
    Write,
    Event,
}

/// Equal messages that leave at the same time. Parties are indexes.
#[derive(Debug)]
struct Line {
    at: Time,
    kind: Kind,
    from: BTreeSet<usize>,
    to: BTreeSet<usize>,
    name: String,
    content: String,
}

#[derive(Debug)]
pub(crate) struct Trace {
    log: LogId,
    view: ViewNumber,
    began: Time,
    /// Parties in the order in which a line of the trace names them.
    parties: Vec<(Party, &'static str)>,
    names: Names,
    /// The lengths of shard files, in bytes.
    lengths: BTreeMap<(NodeId, String), usize>,
    lines: Vec<Line>,
}

impl Trace {
    pub(crate) fn new(
        (log, view): (LogId, ViewNumber),
        began: Time,
        parties: Vec<(Party, &'static str)>,
        names: Names,
    ) -> Self {
        Self { log, view, began, parties, names, lengths: BTreeMap::new(), lines: vec![] }
    }

    pub(crate) fn message(&mut self, now: Time, flight: &Flight) {
        self.registered(now, &flight.message);
        let (Some(from), Some(to)) = (self.index(flight.source), self.index(flight.target)) else { return };
        let is_appenders = [from, to].iter().any(|party| self.names.is_session(self.parties[*party].1));
        let is_shown = match flight.message {
            Message::Control(_) => is_appenders,
            _ => flight.log == self.log,
        };
        if is_shown {
            let content = self.names.content(&flight.message);
            let orders = flight.from == Endpoint::Sequencer && self.names.names_record(&content);
            let kind = Kind::Message { is_appenders, orders };
            let (from, to) = ([from].into(), [to].into());
            self.add(Line { at: now, kind, from, to, name: words::name(&flight.message), content });
        }
    }

    /// Notes the first message that shows a new view.
    fn registered(&mut self, now: Time, message: &Message) {
        let Message::Control(control::Message::Registered { entry }) = message else { return };
        let Some(view) = entry.view.as_ref().filter(|view| entry.id == self.log && view.number > self.view)
        else {
            return;
        };
        self.view = view.number;
        let members = view.sequencers.iter().filter_map(|member| self.index(Party::Node(member.node)));
        let members: Vec<&str> = members.map(|party| self.parties[party].1).collect();
        let leader = self.index(Party::Node(view.leader)).expect("it has a name");
        let leader = self.parties[leader].1;
        let content = format!("view {}: {} with leader {leader}", view.number, members.join(" "));
        self.note(now, Kind::Event, Party::Node(crate::lab::REGISTER), "registered", content);
    }

    pub(crate) fn answer(&mut self, now: Time, client: u64, answer: &Answer) {
        let Answer::Appending(Reply::Appended { id, position, .. }) = answer else { return };
        let id = self.names.id(*id);
        let position = position.map_or("no position".to_owned(), |position| format!("position {position}"));
        let content = format!("the append of {id} returns, {position}");
        self.note(now, Kind::Event, Party::Client(client), "acknowledged", content);
    }

    pub(crate) fn journal(&mut self, now: Time, node: NodeId) {
        self.note(now, Kind::Write, Party::Node(node), "journal", "write, fsync".to_owned());
    }

    /// Notes the shard files that have grown.
    pub(crate) fn files(&mut self, now: Time, node: NodeId, disk: &MemoryDisk) {
        let mut grown = BTreeSet::new();
        for file in disk.files().into_iter().filter(|file| file.contains("/seg-")) {
            let length = disk.content(&file).map_or(0, |content| content.len());
            let (_, extension) = file.rsplit_once('.').expect("it has an extension");
            let extension = format!(".{extension}");
            if self.lengths.insert((node, file), length).is_some_and(|before| before < length) {
                grown.insert(extension);
            }
        }
        if !grown.is_empty() {
            let grown: Vec<String> = grown.into_iter().rev().collect();
            let content = format!("write {}, no fsync", grown.join(" and "));
            self.note(now, Kind::Write, Party::Node(node), "shard files", content);
        }
    }

    pub(crate) fn death(&mut self, now: Time, node: NodeId) {
        self.note(now, Kind::Event, Party::Node(node), "killed", String::new());
    }

    fn index(&self, party: Party) -> Option<usize> {
        self.parties.iter().position(|(other, _)| *other == party)
    }

    fn note(&mut self, at: Time, kind: Kind, party: Party, name: &str, content: String) {
        if let Some(party) = self.index(party) {
            let (from, to) = ([party].into(), BTreeSet::new());
            self.add(Line { at, kind, from, to, name: name.to_owned(), content });
        }
    }

    fn add(&mut self, line: Line) {
        let is_equal = |other: &&mut Line| {
            (other.at, &other.name, &other.content) == (line.at, &line.name, &line.content)
                && (other.from == line.from || other.to == line.to)
        };
        match self.lines.iter_mut().find(is_equal) {
            Some(other) => {
                other.from.extend(line.from);
                other.to.extend(line.to);
            }
            None => self.lines.push(line),
        }
    }

    /// Whether the trace has a line of this name from the party.
    pub(crate) fn has(&self, party: &str, name: &str) -> bool {
        let is_from = |line: &Line| line.from.iter().any(|index| self.parties[*index].1 == party);
        self.lines.iter().any(|line| line.name == name && is_from(line))
    }

    pub(crate) fn text(&self, shown: Shown) -> String {
        let mut text = "```text\n".to_owned();
        let is_shown = |kind: Kind| match kind {
            _ if shown == Shown::Everything => true,
            Kind::Message { is_appenders, orders } => is_appenders || orders,
            Kind::Write => false,
            Kind::Event => true,
        };
        for line in self.lines.iter().filter(|line| is_shown(line.kind)) {
            let ms = (line.at - self.began).as_secs_f64() * 1000.0;
            let names = |parties: &BTreeSet<usize>| {
                let names: Vec<&str> = parties.iter().map(|index| self.parties[*index].1).collect();
                names.join(" ")
            };
            let parties = match line.to.is_empty() {
                true => names(&line.from),
                false => format!("{:<11} → {}", names(&line.from), names(&line.to)),
            };
            let (name, content) = (&line.name, &line.content);
            let line = format!("{ms:>4.1}  {parties:<25}  {name:<16} {content}");
            writeln!(text, "{}", line.trim_end()).expect("a string takes everything");
        }
        text + "```\n"
    }
}
