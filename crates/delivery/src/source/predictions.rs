//! The part of a source that knows what is not final: predictions beside what is, kept until the
//! reader has confirmed them.
//!
//! A reader that takes them may ask for a position again, down to the bound that it confirmed: what
//! turned out different sets it back, and what still stands comes again from here. So it gets
//! copies, and the source lets go of what is confirmed.

use std::collections::BTreeSet;

use seriatim_model::storage::Stored;
use seriatim_model::{Effect, Filter, NodeId, Position, ShardId, Span, Time, ViewHistory, ViewNumber};
use seriatim_protocol::Mutation;
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::roles::Message;

use super::feed::{Feed, IDLE, Received, Seen};
use super::{News, Source};

/// The part of a log that a reader wants, if not all that is final.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Whether records are wanted before they are final.
    pub speculative: bool,
    /// The records that are wanted. None: all.
    pub filter: Option<Filter>,
    /// The shards whose records are wanted. None: all.
    pub shards: Option<BTreeSet<ShardId>>,
    /// Whether to go on after records that are lost, of which an operator accepted that. Otherwise
    /// delivery ends there.
    pub skips_lost: bool,
}

impl Selection {
    /// Whether it is all that is final, and nothing else.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.speculative && self.filter.is_none() && self.shards.is_none()
    }

    /// The shards that were chosen, if all of them have left the log: none that did comes back.
    pub(super) fn left(&self, entry: &LogEntry) -> Option<Vec<ShardId>> {
        let takes_part = |shard: &ShardId| entry.view.iter().any(|view| view.shard(*shard).is_some());
        let chosen = self.shards.as_ref()?;
        let is_left = chosen.iter().any(|shard| takes_part(shard) || is_assigned(entry, *shard));
        (!is_left).then(|| chosen.iter().copied().collect())
    }

    /// The shards that were chosen and have yet to join: the register has nodes for them, and its
    /// view has none of them.
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

/// Whether nodes are to host replicas of a shard. Those of a shard that is to leave before it has
/// joined never do.
fn is_assigned(entry: &LogEntry, shard: ShardId) -> bool {
    let has_nodes = entry.shards.get(shard.0 as usize).is_some_and(|nodes| !nodes.is_empty());
    let has_joined = || entry.view.as_ref().is_some_and(|view| view.holders(shard).is_some());
    has_nodes && (!entry.leaving.contains(&shard) || has_joined())
}

/// The ground of the knowledge of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// It is final.
    Final,
    /// A replica predicted it in this view.
    Predicted(ViewNumber),
}

/// Knowledge of a position that may be a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A record is there.
    Record {
        /// Its name.
        id: seriatim_model::RecordId,
        /// The shard that has it.
        shard: ShardId,
        /// The ground of that.
        basis: Basis,
    },
    /// From there on no record is there that the reader is to be given.
    Empty {
        /// The position after the last of those.
        end: Position,
        /// The ground of that.
        basis: Basis,
    },
    /// Nothing yet.
    NotYet,
    /// The record is lost, and an operator accepted that.
    Lost {
        /// The shard that had it.
        shard: ShardId,
        /// The position after the last that the shard lost with it, and before which no other shard
        /// has a record.
        end: Position,
    },
}

impl Source {
    /// Tells what is known of `position`, which is not confirmed yet. If a shard should have given
    /// it out as final and did not, it is asked again.
    ///
    /// # Panics
    /// If the position was let go of.
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

    /// Whether a shard should have given out `position` as final, and did not.
    pub(crate) fn is_withheld(&self, position: Position) -> bool {
        let is_missing = matches!(self.look_at(position), (_, Seen::Missing));
        is_missing && position < self.final_below() && self.must_have_all()
    }

    /// `position` is withheld: another shard may have moved to a view that is not known here, and
    /// have it. The register is asked.
    pub(crate) fn doubt(&mut self, now: Time, position: Position) {
        if !self.doubt.is_open() {
            let (shard, _) = self.look_at(position);
            self.doubt.raise(now, position, shard, &mut self.directory);
        }
    }

    /// Tells what is known of `position` at present.
    pub(crate) fn peek(&self, position: Position) -> Known {
        match self.look_at(position) {
            (_, Seen::Missing | Seen::NotYet) => self.unconcerned(position),
            (shard, seen) => self.known(shard, position, seen),
        }
    }

    /// A copy of the record at `position`, which is known.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn copy(&self, position: Position) -> Stored {
        let (shard, _) = self.look_at(position);
        self.feeds[&shard].copy(position)
    }

    /// The reader confirmed everything below `upto`: it does not ask for that again.
    pub(crate) fn release(&mut self, upto: Position) {
        if upto > self.wanted_from {
            self.wanted_from = upto;
            self.feeds.values_mut().for_each(|feed| feed.forget_below(upto));
        }
    }

    /// Below it all shards that are asked gave out everything as final.
    pub(crate) fn final_below(&self) -> Position {
        self.feeds.values().map(Feed::final_bound).min().unwrap_or_default()
    }

    /// Where what is wanted ends, if none of the shards that it is wanted of takes part in the
    /// view.
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

    /// The shards that were chosen, if all of them are retired or have left, none has yet to join,
    /// and none has a position from this one on.
    pub(crate) fn over_before(&self, position: Position) -> Option<Vec<ShardId>> {
        let chosen = self.selection.shards.as_ref()?;
        let is_past = self.ends_at().is_some_and(|end| position >= end);
        let is_over = is_past && self.joining().next().is_none();
        is_over.then(|| chosen.iter().copied().collect())
    }

    /// The shards that were chosen, if nothing more comes of them: all of them have left the log.
    pub(crate) fn left(&self) -> Option<Vec<ShardId>> {
        self.selection.left(self.entry())
    }

    /// The view that is known: its number, its start, and which view decides where.
    pub(crate) fn view(&self) -> Option<(ViewNumber, Position, &ViewHistory)> {
        self.directory.view().map(|view| (view.number, view.start, &self.directory.entry().history))
    }

    /// Whether a record may be passed over after its position was predicted. Then that the view
    /// decides there which predicted it does not say that the record is there: its shard does.
    pub(crate) fn may_pass_over(&self) -> bool {
        self.directory.entry().config.order.has_quotas()
    }

    /// The chosen shards that have yet to join.
    pub(super) fn joining(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.selection.joining(self.entry())
    }

    /// While a chosen shard has yet to join, the register is asked from `at` on, every [`IDLE`]: no
    /// other shard need tell of the view in which it joins.
    pub(super) fn await_joining(&mut self, at: Time) {
        let waits = self.joining().next().is_some() && !self.options.mutates(Mutation::JoiningNotAsked);
        self.joined_asked_at = waits.then_some(at);
    }

    /// Asks the register whether a chosen shard has joined, if that is due.
    pub(super) fn ask_whether_joined(&mut self, now: Time) {
        if self.joined_asked_at.is_some_and(|at| now >= at) {
            self.directory.ask(now);
            self.await_joining(now + IDLE);
        }
    }

    /// Whether the reader asks the register before it skips the positions about which `view`
    /// decides: a reader of chosen shards may skip positions only by the placement, and the shards,
    /// of a view that it knows.
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

    /// Whether a position that none of the asked shards has should be with one of them: all are
    /// asked, or it says with which it is.
    fn must_have_all(&self) -> bool {
        self.selection.shards.is_none() || self.directory.placement().is_some()
    }

    /// Tells of a position that no chosen shard has whether it is one that the reader has no
    /// concern with. No shard has told of positions that a view decides which is not known here, so
    /// that the known one tells whose they are.
    fn unconcerned(&self, position: Position) -> Known {
        if self.selection.shards.is_none() {
            return Known::NotYet;
        }
        // Where the position says which shard has it, one shard that is beyond as final is enough.
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

    /// Looks what there is at `position`, whatever was looked at before. Of two shards that have
    /// something, the one counts for which it is final.
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

    /// A primary predicted what is its shard's in `from..upto`.
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

    /// A primary says that everything below `upto` holds that any shard predicted in `view`, but
    /// for the records at `void`: they are all that were passed over from `from` on.
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

    /// Asks for a newer view, if this is one; what is predicted in it comes again when it is known.
    /// Says whether this is the known one.
    fn check_view(&mut self, now: Time, view: ViewNumber) -> bool {
        if view > self.view_number() {
            self.directory.ask(now);
        }
        view == self.view_number()
    }
}
