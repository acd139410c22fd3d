//! Short descriptions of messages, for traces.

use std::collections::BTreeMap;

use seriatim_model::storage::{Ordered, Stored};
use seriatim_model::{IdRun, Position, RecordId, SessionId, ShardId, Span};
use seriatim_protocol::parts::Content;
use seriatim_protocol::{Message, control, cuts, erwin, shard};

/// The names of sessions and shards in a trace.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) sessions: BTreeMap<SessionId, &'static str>,
    pub(crate) shards: BTreeMap<ShardId, &'static str>,
}

pub(crate) fn name(message: &Message) -> String {
    let text = format!("{message:?}");
    let (_, variant) = text.split_once('(').expect("a family holds the variant");
    variant.chars().take_while(|c| c.is_alphanumeric()).collect()
}

impl Names {
    pub(crate) fn content(&self, message: &Message) -> String {
        match message {
            Message::Erwin(message) => self.erwin(message),
            Message::ErwinShard(message) => self.erwin_shard(message),
            Message::Cuts(message) => self.cuts(message),
            Message::CutsShard(message) => self.cuts_shard(message),
            Message::Shard(message) => self.shard(message),
            Message::Control(message) => Self::control(message),
            _ => String::new(),
        }
    }

    pub(crate) fn is_session(&self, name: &str) -> bool {
        self.sessions.values().any(|session| *session == name)
    }

    pub(crate) fn names_record(&self, text: &str) -> bool {
        self.sessions.values().any(|session| text.contains(&format!("{session}0")))
    }

    /// A record id, such as `A0`.
    pub(crate) fn id(&self, RecordId { session, number }: RecordId) -> String {
        format!("{}{number}", self.session(session))
    }

    fn ids(&self, ids: IdRun) -> String {
        ids.ids().map(|id| self.id(id)).collect::<Vec<_>>().join(" ")
    }

    fn session(&self, session: SessionId) -> &'static str {
        self.sessions.get(&session).copied().unwrap_or("?")
    }

    /// Records, and the shards that hold them, in their order.
    fn runs(&self, runs: impl Iterator<Item = (IdRun, ShardId)>) -> String {
        let runs = runs.map(|(ids, shard)| match self.shards.get(&shard) {
            Some(shard) => format!("{} on {shard}", self.ids(ids)),
            None => format!("{} empty", ids.count),
        });
        runs.collect::<Vec<_>>().join(", ")
    }

    fn ordered(&self, from: Position, runs: &[Ordered]) -> String {
        let count: u64 = runs.iter().map(|run| run.ids.count).sum();
        format!("{}: {}", span(from, count), self.runs(runs.iter().map(|run| (run.ids, run.shard))))
    }

    fn stored(&self, records: &[Stored], empty: &[Span]) -> String {
        let named = |stored: &Stored| {
            let ids = IdRun { session: stored.id.session, first: stored.id.number, count: 1 };
            (stored.position, format!("{} is {}", stored.position, self.ids(ids)))
        };
        let empty =
            empty.iter().map(|empty| (empty.first, format!("{} empty", span(empty.first, empty.count))));
        let all: BTreeMap<Position, String> = records.iter().map(named).chain(empty).collect();
        all.into_values().collect::<Vec<_>>().join(", ")
    }

    fn erwin(&self, message: &erwin::Message) -> String {
        use erwin::Message as M;
        let held = |session: SessionId, first: u64, entries: &[Content]| {
            let runs = (first..).zip(entries).filter_map(|(first, entry)| match entry {
                Content::Put { shard, .. } => Some((IdRun { session, first, count: 1 }, *shard)),
                Content::Record(_) => None,
            });
            self.runs(runs)
        };
        match message {
            M::Append { view, session, first, entries, .. } => {
                format!("view {view}: {}", held(*session, *first, entries))
            }
            M::Forward { session, first, entries, .. } => held(*session, *first, entries),
            M::Acknowledged { view, session, next } => {
                format!("view {view}: {}", self.ids(IdRun { session: *session, first: 0, count: *next }))
            }
            M::Locate { session, number, .. } => {
                format!("where is {}{number}?", self.session(*session))
            }
            M::Located { session, number, position } => {
                format!("{position} is {}{number}", self.session(*session))
            }
            M::Truncate { from, runs, .. } => {
                let count = runs.iter().map(|run| run.ids.count).sum();
                let ids: Vec<String> = runs.iter().map(|run| self.ids(run.ids)).collect();
                format!("{}: {}", span(*from, count), ids.join(" "))
            }
            M::TruncateAck { ordered, .. } => format!("below {ordered}"),
            _ => String::new(),
        }
    }

    fn erwin_shard(&self, message: &erwin::ShardMessage) -> String {
        use erwin::ShardMessage as M;
        match message {
            M::Put { view, session, first, records } => {
                let ids = IdRun { session: *session, first: *first, count: records.len() as u64 };
                format!("view {view}: {} with content", self.ids(ids))
            }
            M::Stored { view, ids } | M::NotAppended { view, ids } => {
                format!("view {view}: {}", self.ids(*ids))
            }
            M::Order { batch, runs, .. } | M::ReplicateOrder { batch, runs, .. } => {
                self.ordered(*batch, runs)
            }
            _ => String::new(),
        }
    }

    fn cuts(&self, message: &cuts::Message) -> String {
        use cuts::Message as M;
        match message {
            M::Cut { cut, .. } => {
                let runs = cut.names.iter().map(|(shard, names)| (names.ids, *shard));
                format!("{}: {}", span(cut.from, cut.end().since(cut.from)), self.runs(runs))
            }
            M::Held { end, .. } => format!("below {end}"),
            M::Locate { session, first, count, .. } => {
                let ids = IdRun { session: *session, first: *first, count: *count };
                format!("where is {}?", self.ids(ids))
            }
            M::Located { session, next, places, .. } => {
                let places = places.iter().filter_map(|place| {
                    let ids = IdRun { session: *session, first: place.number, count: place.count };
                    Some(format!("{} is {}", span(place.position?, place.count), self.ids(ids)))
                });
                let places: Vec<String> = places.collect();
                let session = self.session(*session);
                if places.is_empty() { format!("{session}{next} is in no cut") } else { places.join(", ") }
            }
            _ => String::new(),
        }
    }

    fn cuts_shard(&self, message: &cuts::ShardMessage) -> String {
        use cuts::ShardMessage as M;
        match message {
            M::Submit { view, session, first, records, .. } => {
                let ids = IdRun { session: *session, first: *first, count: records.len() as u64 };
                format!("view {view}: {} with content", self.ids(ids))
            }
            M::Appended { ids, first, .. } => format!("{} is {}", span(*first, ids.count), self.ids(*ids)),
            M::LocalAppend { index, names, .. } => {
                format!(
                    "index {}: {} with content",
                    span(Position(*index), names.ids.count),
                    self.ids(names.ids)
                )
            }
            M::LocalAck { length, .. } | M::LocalStored { length, .. } | M::Fix { length, .. } => {
                format!("index below {length}")
            }
            M::Report { length, names, .. } => {
                let names: Vec<String> = names.iter().map(|names| self.ids(names.ids)).collect();
                let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(" ")) };
                format!("index below {length}{names}")
            }
            M::CutAck { end, .. } => format!("below {end}"),
            M::Cover { batch, runs, .. }
            | M::ReplicateCover { batch, runs, .. }
            | M::Closing { batch, runs, .. }
            | M::ReplicateClosing { batch, runs, .. } => self.ordered(*batch, runs),
            _ => String::new(),
        }
    }

    fn shard(&self, message: &shard::Message) -> String {
        use shard::Message as M;
        match message {
            M::Bound { batch, .. } | M::Replicated { batch, .. } => format!("batch {batch}"),
            M::Stable { stable, .. } | M::StableKnown { stable, .. } => format!("below {stable}"),
            M::Predict { records, empty, .. } => self.stored(records, empty),
            M::Holds { upto, .. } => format!("below {upto}"),
            M::Fenced { claim, .. } => format!("claim {claim}"),
            M::Deliver { records, .. } => self.stored(records, &[]),
            M::DeliverWith { records, empty, .. } => self.stored(records, empty),
            _ => String::new(),
        }
    }

    fn control(message: &control::Message) -> String {
        match message {
            control::Message::Found { entry, .. } => format!("view {}", entry.view_number()),
            _ => String::new(),
        }
    }
}

/// Range of positions: `100` or `100-102`.
fn span(first: Position, count: u64) -> String {
    if count == 1 { first.to_string() } else { format!("{first}-{}", first.0 + count.saturating_sub(1)) }
}
