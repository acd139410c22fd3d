//! Predictions of a source, kept until the reader confirms them.
//!
//! After a failure a reader returns to positions above its confirmed bound and receives valid
//! records again. So it receives copies, and the source drops only confirmed data.

use std::collections::BTreeSet;

use seriatim_model::storage::Stored;
use seriatim_model::{Effect, Filter, NodeId, Position, ShardId, Span, Time, ViewHistory, ViewNumber};
use seriatim_protocol::Mutation;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::roles::Message;

use super::feed::{Feed, IDLE, Received, Seen};
use super::{News, Source};

/// The wanted part of a log.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Whether to deliver predicted records, before they are final.
    pub speculative: bool,
    /// Filter. None: all records.
    pub filter: Option<Filter>,
    /// Chosen shards. None: all.
    pub shards: Option<BTreeSet<ShardId>>,
    /// Whether delivery continues after records whose loss an operator accepted. Otherwise it ends
    /// there.
    pub skips_lost: bool,
}

impl Selection {
    /// Whether it selects all final records and no predictions.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.speculative && self.filter.is_none() && self.shards.is_none()
    }

    /// The chosen shards, if all have left the log. A shard that left never returns.
    pub(super) fn left(&self, entry: &LogEntry) -> Option<Vec<ShardId>> {
        let takes_part = |shard: &ShardId| entry.view.iter().any(|view| view.shard(*shard).is_some());
        let chosen = self.shards.as_ref()?;
        let is_left = chosen.iter().any(|shard| takes_part(shard) || is_assigned(entry, *shard));
        (!is_left).then(|| chosen.iter().copied().collect())
    }

    /// Chosen shards that have not joined: the register assigns nodes, but the view lacks them.
    pub(super) fn joining<'a>(&'a self, entry: &'a LogEntry) -> impl Iterator<Item = ShardId> + 'a {
        let view = entry.view.as_ref();
        let has_joined = move |shard: ShardId| view.is_none_or(|view| view.holders(shard).is_some());
        let chosen = self.shards.iter().flatten().copied();
        chosen.filter(move |shard| is_assigned(entry, *shard) && !has_joined(*shard))
    }

    pub(super) fn chooses(&self, shard: ShardId) -> bool {
        self.shards.as_ref().is_none_or(|shards| shards.contains(&shard))
    }
}

/// Whether the register assigns nodes to the shard. Not if the shard must leave before it has
/// joined.
fn is_assigned(entry: &LogEntry, shard: ShardId) -> bool {
    let has_nodes = entry.shards.get(shard.0 as usize).is_some_and(|nodes| !nodes.is_empty());
    let has_joined = || entry.view.as_ref().is_some_and(|view| view.holders(shard).is_some());
    has_nodes && (!entry.leaving.contains(&shard) || has_joined())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    Final,
    /// A replica predicted it in this view.
    Predicted(ViewNumber),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Record {
        id: seriatim_model::RecordId,
        shard: ShardId,
        basis: Basis,
    },
    /// No record for this reader at the position and below `end`.
    Empty {
        end: Position,
        basis: Basis,
    },
    NotYet,
    /// As `Answer::Lost`.
    Lost {
        shard: ShardId,
        end: Position,
    },
}

impl Source {
    /// Knowledge of an unconfirmed `position`. If a shard skipped it, asks the register.
    pub(crate) fn know(&mut self, now: Time, position: Position) -> Known {
        assert!(position >= self.wanted_from, "{position} is wanted again, and was dropped");
        if self.doubt.is_open() || !self.has_view() {
            return Known::NotYet;
        }
        let known = self.peek(position);
        if known == Known::NotYet && self.is_withheld(position) {
            self.doubt(now, position);
        }
        known
    }

    /// Whether a shard skipped a position that it should have sent as final.
    pub(crate) fn is_withheld(&self, position: Position) -> bool {
        let is_missing = matches!(self.look_at(position), (_, Seen::Missing));
        is_missing && position < self.final_below() && self.must_have_all()
    }

    /// Asks the register whether another shard owns the withheld `position` in a newer view.
    pub(crate) fn doubt(&mut self, now: Time, position: Position) {
        if !self.doubt.is_open() {
            let (shard, _) = self.look_at(position);
            self.doubt.raise(now, position, shard, &mut self.directory);
        }
    }

    pub(crate) fn peek(&self, position: Position) -> Known {
        match self.look_at(position) {
            (_, Seen::Missing | Seen::NotYet) => self.unconcerned(position),
            (shard, seen) => self.known(shard, position, seen),
        }
    }

    /// Copies the record at `position`.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn copy(&self, position: Position) -> Stored {
        let (shard, _) = self.look_at(position);
        self.feeds[&shard].copy(position)
    }

    /// Drops everything below `upto`: the reader confirmed it.
    pub(crate) fn release(&mut self, upto: Position) {
        if upto > self.wanted_from {
            self.wanted_from = upto;
            self.feeds.values_mut().for_each(|feed| feed.forget_below(upto));
        }
    }

    /// Bound below which all received data is final, for every subscribed shard.
    pub(crate) fn final_below(&self) -> Position {
        self.feeds.values().map(Feed::final_bound).min().unwrap_or_default()
    }

    /// End of the records of the chosen shards, if all these shards are retired or ended.
    pub(crate) fn ends_at(&self) -> Option<Position> {
        let view = self.directory.view()?;
        let mut shards = view.shards.iter().map(|members| members.shard);
        if shards.any(|shard| self.selection.chooses(shard)) {
            return None;
        }
        let retired = view.retired.iter().map(|retired| (retired.shard, retired.until));
        let ended = self.directory.ended().map(|gap| (gap.shard, gap.end));
        let chosen = retired.chain(ended).filter(|(shard, _)| self.selection.chooses(*shard));
        chosen.map(|(_, end)| end).max()
    }

    /// The chosen shards, if none of them has, or will have, a record at `position` or above.
    pub(crate) fn over_before(&self, position: Position) -> Option<Vec<ShardId>> {
        let chosen = self.selection.shards.as_ref()?;
        let is_past = self.ends_at().is_some_and(|end| position >= end);
        let is_over = is_past && self.joining().next().is_none();
        is_over.then(|| chosen.iter().copied().collect())
    }

    pub(crate) fn left(&self) -> Option<Vec<ShardId>> {
        self.selection.left(self.entry())
    }

    pub(crate) fn view(&self) -> Option<(ViewNumber, Position, &ViewHistory)> {
        self.directory.view().map(|view| (view.number, view.start, &self.directory.entry().history))
    }

    /// Whether a predicted record may be skipped. Then only its shard can confirm it, not the
    /// deciding view alone.
    pub(crate) fn may_pass_over(&self) -> bool {
        self.directory.entry().config.order.has_quotas()
    }

    pub(super) fn joining(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.selection.joining(self.entry())
    }

    /// While a chosen shard has not joined, asks the register every [`IDLE`]: other shards need not
    /// mention the view with that shard.
    pub(super) fn await_joining(&mut self, at: Time) {
        let waits = self.joining().next().is_some() && !self.options.mutates(Mutation::JoiningNotAsked);
        self.joined_asked_at = waits.then_some(at);
    }

    pub(super) fn ask_whether_joined(&mut self, now: Time) {
        if self.joined_asked_at.is_some_and(|at| now >= at) {
            self.directory.ask(now);
            self.await_joining(now + IDLE);
        }
    }

    /// Whether to ask the register before skipping positions that `view` decides: a reader of
    /// chosen shards skips only by a known view.
    pub(super) fn must_ask_first(&self, view: ViewNumber) -> bool {
        let skips = self.selection.shards.is_some() && !self.options.mutates(Mutation::UnknownViewSkipped);
        skips && view > self.view_number()
    }

    fn known(&self, shard: ShardId, position: Position, seen: Seen) -> Known {
        let basis = |end: Position| match self.feeds[&shard].final_upto >= end {
            true => Basis::Final,
            false => Basis::Predicted(self.view_number()),
        };
        match seen {
            Seen::Record => {
                let id = self.feeds[&shard].record(position).id;
                Known::Record { id, shard, basis: basis(position.next()) }
            }
            Seen::NoOp => Known::Empty { end: position.next(), basis: basis(position.next()) },
            Seen::Empty(end) => {
                let known_to = self.feeds[&shard].final_upto;
                let end = if position < known_to { end.min(known_to) } else { end };
                Known::Empty { end, basis: basis(end) }
            }
            Seen::Lost(end) => Known::Lost { shard, end: self.lost_to(shard, position, end) },
            Seen::NotYet | Seen::Missing => Known::NotYet,
        }
    }

    /// Whether one asked shard must have every position: all are asked, or the placement names it.
    fn must_have_all(&self) -> bool {
        self.selection.shards.is_none() || self.directory.placement().is_some()
    }

    /// Knowledge of a position for which no chosen shard has a record: empty for this reader if
    /// other shards own it. The known view decides, since no shard has reported a newer one.
    fn unconcerned(&self, position: Position) -> Known {
        if self.selection.shards.is_none() {
            return Known::NotYet;
        }
        // With a placement, final data of any shard above the position suffices.
        let (end, final_below) = match self.directory.placement() {
            Some(placement) => match placement.stripe_at(position) {
                (shard, _) if self.selection.chooses(shard) => return Known::NotYet,
                (_, end) => (end, self.feeds.values().map(|feed| feed.final_upto).max().unwrap_or_default()),
            },
            None => {
                let next = self.feeds.values().map(|feed| feed.next_from(position)).min();
                (next.unwrap_or_default(), self.final_below())
            }
        };
        let end = end.min(self.frontier());
        if end <= position {
            return Known::NotYet;
        }
        match position < final_below {
            true => Known::Empty { end: end.min(final_below), basis: Basis::Final },
            false => Known::Empty { end, basis: Basis::Predicted(self.view_number()) },
        }
    }

    fn view_number(&self) -> ViewNumber {
        self.directory.view().map_or(ViewNumber::NONE, |view| view.number)
    }

    /// Looks up `position`. If several shards know of it, final data wins.
    fn look_at(&self, position: Position) -> (ShardId, Seen) {
        if let Some(shard) = self.directory.placement().map(|placement| placement.shard_of(position)) {
            return (shard, self.feeds.get(&shard).map_or(Seen::NotYet, |feed| feed.at(position)));
        }
        let counts = self.feeds.iter().filter(|(_, feed)| feed.reaches(position));
        let seen = counts.map(|(shard, feed)| {
            let seen = self.believed(feed.is_retired(), position, feed.at(position));
            (seen.rank(), position >= feed.final_upto, *shard, seen)
        });
        let best = seen.min_by_key(|(rank, is_predicted, ..)| (*rank, *is_predicted));
        best.map_or((ShardId(0), Seen::NotYet), |(_, _, shard, seen)| (shard, seen))
    }

    pub(super) fn predicted<R>(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        (view, from): (ViewNumber, Position),
        found: (Vec<Stored>, Vec<Span>),
        upto: Position,
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        if !self.check_view(now, view) {
            return News::Nothing;
        }
        let wanted_from = self.wanted_from;
        let feed = self.feeds.get_mut(&shard).filter(|feed| feed.awaits(node, request));
        let Some(feed) = feed else { return News::Nothing };
        match feed.predict(now, from, found, upto) {
            Received::Next => {
                feed.forget_below(wanted_from);
                self.compare(now);
                News::Changed
            }
            received => self.refuse(now, (shard, request), received, out),
        }
    }

    /// A primary confirms all predictions of `view` below `upto`, except those skipped from `from`
    /// on (`void`).
    pub(super) fn holds<R>(
        &mut self,
        now: Time,
        (node, shard, request): (NodeId, ShardId, u64),
        view: ViewNumber,
        (from, upto, void): (Position, Position, Vec<Span>),
        out: &mut Vec<Effect<Message, R>>,
    ) -> News {
        let is_awaited = self.feeds.get(&shard).is_some_and(|feed| feed.awaits(node, request));
        if !is_awaited || !self.check_view(now, view) {
            return News::Nothing;
        }
        let feed = self.feeds.get_mut(&shard).expect("it is awaited");
        match feed.holds_but(now, from, upto, &void) {
            Received::Next => {}
            received => return self.refuse(now, (shard, request), received, out),
        }
        for feed in self.feeds.values_mut() {
            void.iter().for_each(|span| feed.drop_records(*span));
            feed.holds(upto);
        }
        News::Holds { view, upto, void: void.first().map(|span| span.first) }
    }

    /// Whether `view` is the known view. If it is newer, asks the register; the shard sends its
    /// predictions again later.
    fn check_view(&mut self, now: Time, view: ViewNumber) -> bool {
        if view > self.view_number() {
            self.directory.ask(now);
        }
        view == self.view_number()
    }
}
