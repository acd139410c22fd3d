//! Sends windows to shard replicas, which need them to meet turns and to compute positions.

use std::collections::{BTreeMap, VecDeque};

use seriatim_model::{Address, Endpoint, NodeId, Position, ShardId, Time, View, ViewNumber, limits};

use super::ShardMessage;
use super::window::Window;
use crate::mutation::{Mutation, Options};
use crate::roles::RoleEffect;

/// Which windows of a view the replicas know.
///
/// Invariant: the leader sends no window before the cut that names it is committed and all members
/// have seen the view start. So each sealed member of the layer knows every window that a replica
/// knows.
#[derive(Clone, Debug)]
pub(super) struct Telling {
    /// Each window that some replica lacks or the next cuts use, with the end of the cut that names
    /// it.
    windows: VecDeque<(Position, Window)>,
    replicas: BTreeMap<(ShardId, NodeId), Known>,
    options: Options,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The replica knows all windows with lower numbers.
    below: u32,
    /// Windows below this number were last sent at this time.
    sent: Option<(u32, Time)>,
}

impl Telling {
    pub(super) fn new(view: &View, options: Options) -> Self {
        let replicas = view.shards.iter().flat_map(|members| {
            members.replicas.iter().map(|member| ((members.shard, member.node), Known::default()))
        });
        Self { replicas: replicas.collect(), windows: VecDeque::new(), options }
    }

    pub(super) fn name(&mut self, end: Position, window: &Window) {
        if self.windows.back().is_none_or(|(_, last)| last.number < window.number) {
            self.windows.push_back((end, window.clone()));
        }
    }

    pub(super) fn note_known(&mut self, replica: (ShardId, NodeId), number: u32) {
        if let Some(known) = self.replicas.get_mut(&replica) {
            known.below = known.below.max(number + 1);
        }
        let all = self.replicas.values().map(|known| known.below).min().unwrap_or(0);
        // The next cuts use the last two windows.
        while self.windows.len() > 2 && self.windows[0].1.number < all {
            self.windows.pop_front();
        }
    }

    /// Number after the last window that may be sent. 0 while the committed position is unknown.
    fn certain(&self, committed: Option<Position>) -> u32 {
        let early = self.options.mutates(Mutation::WindowEarly);
        let is_certain = |named: Position| early || committed.is_some_and(|committed| named <= committed);
        let mut certain = self.windows.iter().filter(|(named, _)| is_certain(*named));
        certain.next_back().map_or(0, |(_, window)| window.number + 1)
    }

    /// When to send, at once or again. `None`: the replica knows all windows below `certain`.
    fn due_at(known: &Known, certain: u32) -> Option<Time> {
        let sent = known.sent.filter(|(below, _)| *below >= certain);
        (known.below < certain).then(|| sent.map_or(Time::ZERO, |(_, at)| at + limits::RESEND_AFTER))
    }

    pub(super) fn deadline(&self, committed: Option<Position>) -> Option<Time> {
        let certain = self.certain(committed);
        self.replicas.values().filter_map(|known| Self::due_at(known, certain)).min()
    }

    pub(super) fn tell(
        &mut self,
        now: Time,
        committed: Option<Position>,
        view: ViewNumber,
        out: &mut Vec<RoleEffect>,
    ) {
        let (certain, early) = (self.certain(committed), self.options.mutates(Mutation::WindowEarly));
        for ((shard, node), known) in &mut self.replicas {
            if Self::due_at(known, certain).is_none_or(|at| now < at) {
                continue;
            }
            known.sent = Some((certain, now));
            let new =
                self.windows.iter().filter(|(_, window)| (known.below..certain).contains(&window.number));
            let tell = |(named, window): &(Position, Window)| {
                let is_certain = early || committed.is_some_and(|committed| *named <= committed);
                assert!(is_certain, "window {} is sent before {named} is committed", window.number);
                window.clone()
            };
            let windows = new.map(tell).collect();
            let to = Address::Node(*node, Endpoint::Shard(*shard));
            out.push(RoleEffect::Send { to, message: ShardMessage::Windows { view, windows }.into() });
        }
    }
}
