//! A reader's copy of its log's register entry, and questions for updates.

use std::time::Duration;

use seriatim_model::{
    Address, Effect, Endpoint, Gap, Member, NodeId, Placement, Position, ShardId, Time, View, ViewNumber,
};
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::{self, LogEntry};
use seriatim_protocol::parts::known_entry::Heard;
use seriatim_protocol::parts::{Backoff, KnownEntry};
use seriatim_protocol::roles::Message;

use super::round::Round;

/// First pause between register questions; doubles up to [`ASK_MOST`].
const ASK_FIRST: Duration = Duration::from_millis(20);
const ASK_MOST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Directory {
    control: NodeId,
    known: KnownEntry,
    /// Time and pause of the next question. None: no question is pending.
    asks: Option<Backoff>,
    refreshed: Option<Time>,
    /// Count of numbered questions.
    asked: u64,
    /// Number of the question that needs an answer, or [`NEWS`] for any answer.
    awaited: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    Nothing,
    /// The register confirmed the known view, in its answer to the question of this number.
    Same(u64),
    /// A newer view. Final positions stay final, except from `lost_from` on after an accepted loss.
    NewView {
        lost_from: Position,
        /// First position replaced by a loss accepted since the previous view. `None`: no such
        /// loss.
        reassigned_from: Option<Position>,
    },
    Deleted,
}

impl Directory {
    pub(crate) fn new(control: NodeId, entry: LogEntry) -> Self {
        let asks = entry.view.is_none().then(|| Backoff::new(Time::ZERO, ASK_FIRST, ASK_MOST));
        Self { control, known: KnownEntry::new(entry), asks, refreshed: None, asked: 0, awaited: NEWS }
    }

    pub(crate) fn entry(&self) -> &LogEntry {
        self.known.entry()
    }

    pub(crate) fn view(&self) -> Option<&View> {
        self.known.view()
    }

    /// Owners by position. None: clients choose shards, so only the owner can tell.
    pub(crate) fn placement(&self) -> Option<&Placement> {
        let places = self.entry().config.order.places_by_position();
        self.view().filter(|_| places).map(|view| &view.placement)
    }

    /// The shard's last positions whose records were given up, if the shard is outside the view.
    /// The history says that they are lost, so the reader asks no replica.
    pub(crate) fn given_up(&self, shard: ShardId) -> Option<Gap> {
        let (view, history) = (self.view()?, &self.entry().history);
        match view.retired(shard) {
            Some(retired) => retired.given_up(history),
            None => history.gaps_of(shard).next_back().filter(|_| view.holders(shard).is_none()),
        }
    }

    /// Whether the known history contains this loss. If not, a newer view exists.
    pub(crate) fn tells_lost(&self, shard: ShardId, from: Position, end: Position) -> bool {
        self.entry().history.tells_lost(shard, from, end)
    }

    /// Given-up positions of shards that left nothing else: these shards have ended.
    pub(crate) fn ended(&self) -> impl Iterator<Item = Gap> + '_ {
        let gaps = self
            .entry()
            .history
            .gaps()
            .iter()
            .filter(|gap| self.view().is_some_and(|view| view.holders(gap.shard).is_none()));
        gaps.copied().filter(|gap| self.given_up(gap.shard) == Some(*gap))
    }

    /// Replicas with the shard's records; empty if it has left.
    pub(crate) fn replicas(&self, shard: ShardId) -> &[Member] {
        self.view().and_then(|view| view.holders(shard)).map_or(&[], |members| &members.replicas)
    }

    pub(crate) fn next_to(&self, shard: ShardId, replica: usize) -> Option<(NodeId, usize)> {
        let replicas = self.replicas(shard);
        let next = (replica + 1).checked_rem(replicas.len())?;
        Some((replicas[next].node, next))
    }

    /// The replica to ask instead of this silent or unreachable one. It is the next one, if the
    /// shard is retired (no view replaces its replicas) or another replica has already refused.
    /// None: wait, because a new view will replace the silent replica.
    pub(crate) fn instead_of(
        &self,
        shard: ShardId,
        replica: usize,
        round: &Round,
    ) -> Option<(NodeId, usize)> {
        let is_retired = self.view()?.retired(shard).is_some();
        self.next_to(shard, replica).filter(|_| is_retired || !round.is_new())
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.asks.map(|asks| asks.at())
    }

    /// Asks the register with the next timer, and repeats until it answers.
    pub(crate) fn ask(&mut self, now: Time) {
        self.asks.get_or_insert(Backoff::new(now, ASK_FIRST, ASK_MOST));
    }

    /// Asks whether the known view is the latest. Only the answer to a question sent from now on
    /// counts.
    pub(crate) fn ask_surely(&mut self, now: Time) {
        if self.awaited == NEWS {
            self.rest();
        }
        self.awaited = self.asked + 1;
        self.ask(now);
    }

    /// Asks the register at once, at most once per [`ASK_MOST`], without waiting for the answer.
    pub(crate) fn refresh<R>(&mut self, now: Time, out: &mut Vec<Effect<Message, R>>) {
        if self.refreshed.is_none_or(|at| now >= at + ASK_MOST) {
            self.refreshed = Some(now);
            self.ask(now);
            self.timer(now, out);
        }
    }

    pub(crate) fn rest(&mut self) {
        self.asks = None;
        self.awaited = NEWS;
    }

    pub(crate) fn timer<R>(&mut self, now: Time, out: &mut Vec<Effect<Message, R>>) {
        let Some(asks) = self.asks.as_mut().filter(|asks| asks.is_due(now)) else { return };
        asks.tried(now);
        if self.awaited != NEWS {
            self.asked += 1;
            self.awaited = self.asked;
        }
        let message = control::Message::Lookup { request: self.awaited, name: self.entry().name.clone() };
        let to = Address::Node(self.control, Endpoint::Register);
        out.push(Effect::Send { to, message: message.into() });
    }

    pub(crate) fn receive(&mut self, message: control::Message) -> Learned {
        let request = if let control::Message::Found { request, .. } = message { request } else { NEWS };
        let heard = self.known.hear(message);
        let is_new = matches!(heard, Heard::NewView(_));
        if self.view().is_some() && (is_new || heard == Heard::Same && request == self.awaited) {
            self.rest();
        }
        match heard {
            Heard::Nothing => Learned::Nothing,
            Heard::Same => Learned::Same(request),
            Heard::NewView(known) => {
                let reassigned_from = self.entry().history.reassigned_after(known);
                Learned::NewView { lost_from: self.lost_from(known), reassigned_from }
            }
            Heard::Deleted => Learned::Deleted,
        }
    }

    /// Lowest start of the views after `known`: final data from there on is void. u64::MAX if the
    /// reader knew no view.
    fn lost_from(&self, known: ViewNumber) -> Position {
        let steps = self.entry().history.steps().iter();
        let new = steps.filter(|(number, _)| *number > known).map(|(_, first)| *first);
        new.min().filter(|_| known != ViewNumber::NONE).unwrap_or(Position(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CONTROL, entry, lookups};

    fn asked(directory: &mut Directory, now: Time) -> Vec<u64> {
        let mut out: Vec<Effect<Message, ()>> = vec![];
        directory.timer(now, &mut out);
        lookups(&out)
    }

    fn found(request: u64) -> control::Message {
        control::Message::Found { request, entry: entry(1, 1, 64), nodes: vec![] }
    }

    #[test]
    fn an_answer_that_may_be_older_than_the_question_settles_no_doubt() {
        let mut directory = Directory::new(CONTROL, entry(1, 1, 64));
        directory.ask(Time(1));
        assert_eq!(asked(&mut directory, Time(1)), [NEWS]);
        directory.ask_surely(Time(2));
        assert_eq!(asked(&mut directory, Time(2)), [1]);
        // The answer to the earlier question, or an unsolicited notice, does not count.
        assert_eq!(directory.receive(found(NEWS)), Learned::Same(NEWS));
        assert!(directory.deadline().is_some());
        // A second doubt needs its own answer.
        directory.ask_surely(Time(3));
        assert_eq!(directory.receive(found(1)), Learned::Same(1));
        let again = directory.deadline().expect("it continues to ask");
        assert_eq!(asked(&mut directory, again), [2]);
        assert_eq!(directory.receive(found(2)), Learned::Same(2));
        assert_eq!(directory.deadline(), None);
    }

    #[test]
    fn what_a_newer_view_starts_below_is_given_out_anew() {
        let started = |steps: &[(u64, u64)], view: u64| {
            let mut newer = entry(view, 1, 64);
            for (number, first) in steps {
                newer.history.push(ViewNumber(*number), Position(*first));
            }
            control::Message::Registered { entry: newer }
        };
        let steps = [(1, 0), (2, 70), (3, 50), (4, 90)];
        let learned = |lost_from| Learned::NewView { lost_from: Position(lost_from), reassigned_from: None };
        let newest = learned(u64::MAX);
        assert_eq!(Directory::new(CONTROL, entry(0, 1, 64)).receive(started(&steps, 4)), newest);
        let mut directory = Directory::new(CONTROL, entry(1, 1, 64));
        let newer = learned(70);
        assert_eq!(directory.receive(started(&steps[..2], 2)), newer);
        let two_newer = learned(50);
        assert_eq!(directory.receive(started(&steps, 4)), two_newer);
        // A loss was accepted in view 5; view 6 follows.
        let mut later = entry(6, 1, 64);
        later.history.push(ViewNumber(6), Position(90));
        later.history.reassign(ViewNumber(5), Position(30));
        let learned = directory.receive(control::Message::Registered { entry: later });
        assert!(
            matches!(learned, Learned::NewView { reassigned_from: Some(Position(30)), .. }),
            "{learned:?}"
        );
    }

    #[test]
    fn what_is_said_about_another_log_is_not_for_this_one() {
        let mut directory = Directory::new(CONTROL, entry(1, 1, 64));
        let other = LogEntry { name: "invoices".into(), id: seriatim_model::LogId(77), ..entry(2, 1, 64) };
        let told = control::Message::Found { request: NEWS, entry: other, nodes: vec![] };
        assert_eq!(directory.receive(told), Learned::Nothing);
    }
}
