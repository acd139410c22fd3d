//! Cuts on their way to the shards, from their leader or from the member that completes them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::{Address, Endpoint, Member, Position, ShardId, ShardMembers, Time, ViewNumber, limits};

use super::ShardMessage;
use super::cut::Cut;
use crate::parts::Backoff;
use crate::roles::RoleEffect;

const RESEND_MOST: Duration = Duration::from_secs(1);

/// Cuts of one view or claim that some replica may lack, in order.
#[derive(Clone, Debug)]
pub(super) struct Pusher {
    /// The view or claim that sends the cuts.
    view: ViewNumber,
    kind: Kind,
    routes: BTreeMap<ShardId, Route>,
    cuts: VecDeque<Push>,
    end: Position,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Positions are versions of this view, which made the cuts.
    Of(ViewNumber),
    /// Positions are versions of the claim, for parts of its closing cut.
    Closing,
}

#[derive(Clone, Debug)]
struct Route {
    primary: Address,
    backups: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Push {
    cut: Cut,
    unanswered: Vec<ShardId>,
    sends: Backoff,
}

impl Pusher {
    /// Sends cuts of view `of`, from `start` on, in the name of `view`.
    pub(super) fn new<'a>(
        (view, of): (ViewNumber, ViewNumber),
        shards: impl Iterator<Item = (ShardId, &'a [Member])>,
        start: Position,
    ) -> Self {
        Self::of_kind(view, Kind::Of(of), shards, start)
    }

    pub(super) fn closing<'a>(
        claim: ViewNumber,
        shards: impl Iterator<Item = (ShardId, &'a [Member])>,
        start: Position,
    ) -> Self {
        Self::of_kind(claim, Kind::Closing, shards, start)
    }

    fn of_kind<'a>(
        view: ViewNumber,
        kind: Kind,
        shards: impl Iterator<Item = (ShardId, &'a [Member])>,
        start: Position,
    ) -> Self {
        let route = |(shard, members): (ShardId, &[Member])| {
            let (primary, backups) = members.split_first()?;
            let primary = Address::Node(primary.node, Endpoint::Shard(shard));
            Some((shard, Route { primary, backups: backups.to_vec() }))
        };
        Self { view, kind, routes: shards.filter_map(route).collect(), cuts: VecDeque::new(), end: start }
    }

    pub(super) fn within(view: ViewNumber, shards: &[ShardMembers], start: Position) -> Self {
        let members = shards.iter().map(|members| (members.shard, &members.replicas[..]));
        Self::new((view, view), members, start)
    }

    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// Position below which all replicas have the cuts.
    pub(super) fn bound(&self) -> Position {
        self.cuts.front().map_or(self.end, |push| push.cut.from)
    }

    pub(super) fn len(&self) -> usize {
        self.cuts.len()
    }

    pub(super) fn push(&mut self, now: Time, cut: Cut, out: &mut Vec<RoleEffect>) {
        assert_eq!(cut.from, self.end, "cuts follow each other");
        self.end = cut.end();
        let unanswered = self.routes.keys().copied().collect();
        let mut sends = Backoff::new(now, limits::RESEND_AFTER, RESEND_MOST);
        sends.tried(now);
        self.cuts.push_back(Push { cut, unanswered, sends });
        self.send(self.cuts.len() - 1, out);
        self.pop();
    }

    fn send(&self, index: usize, out: &mut Vec<RoleEffect>) {
        let push = &self.cuts[index];
        push.unanswered.iter().for_each(|shard| self.send_to(*shard, &push.cut, out));
    }

    fn send_to(&self, shard: ShardId, cut: &Cut, out: &mut Vec<RoleEffect>) {
        let Route { primary, backups } = &self.routes[&shard];
        let (view, batch, backups, runs) = (self.view, cut.from, backups.clone(), cut.runs());
        let message = match self.kind {
            Kind::Of(of) => ShardMessage::Cover { view, of, batch, backups, length: cut.length(shard), runs },
            Kind::Closing => ShardMessage::Closing { view, batch, backups, runs },
        };
        out.push(RoleEffect::Send { to: *primary, message: message.into() });
    }

    /// Repeats unanswered cuts: a replica of the shard may have missed them before it entered the
    /// view.
    pub(super) fn send_again(&self, shard: ShardId, out: &mut Vec<RoleEffect>) {
        let unanswered = self.cuts.iter().filter(|push| push.unanswered.contains(&shard));
        unanswered.for_each(|push| self.send_to(shard, &push.cut, out));
    }

    pub(super) fn note_bound(&mut self, shard: ShardId, batch: Position) {
        let index = self.cuts.partition_point(|push| push.cut.from < batch);
        if let Some(push) = self.cuts.get_mut(index).filter(|push| push.cut.from == batch) {
            push.unanswered.retain(|unanswered| *unanswered != shard);
        }
        self.pop();
    }

    fn pop(&mut self) {
        let done = self.cuts.iter().take_while(|push| push.unanswered.is_empty()).count();
        self.cuts.drain(..done);
    }

    pub(super) fn resend(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        for index in 0..self.cuts.len() {
            let push = &mut self.cuts[index];
            if push.sends.is_due(now) {
                push.sends.tried(now);
                self.send(index, out);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.cuts.iter().map(|push| push.sends.at()).min()
    }
}
