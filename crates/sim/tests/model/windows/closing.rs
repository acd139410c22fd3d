//! All ways to close the view in a state of the model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use seriatim_model::{LogEntry, Member, Position, RetiredShard, ShardId, ShardMembers, View, ViewNumber};
use seriatim_protocol::{Message, control, cuts, shard};

use super::log::{Log, SHARDS, State, VIEW};
use super::place::{Outsider, Packet, Place, Placed, Told};
use super::rules::{self, Slot, contents};

const CLAIM: ViewNumber = ViewNumber(9);

#[derive(Debug)]
pub(crate) struct Closed {
    /// The log's content after the view is closed.
    pub(crate) content: BTreeMap<Position, Slot>,
    /// Shards without a remaining replica.
    pub(crate) lost: BTreeSet<ShardId>,
    pub(crate) broken: u16,
}

/// Positions that a member gives out to close the view, and the rules broken.
type Tail = (BTreeMap<Position, Slot>, u16);

thread_local! {
    /// Results by the machines' digests.
    static KNOWN: RefCell<BTreeMap<Vec<u64>, Option<Rc<Tail>>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Closes the view in every way: with each member of the ordering layer and each choice of
/// remaining replicas. One shard may be lost.
pub(crate) fn all(state: &State, log: &Log) -> Vec<Closed> {
    let mut closed = vec![];
    let members: Vec<_> =
        state.machines.iter().filter(|placed| matches!(placed.place, Place::Sequencer(_))).collect();
    for left in choices() {
        let survivors: Vec<_> = state.machines.iter().filter(|placed| left.contains(&placed.place)).collect();
        let is_left =
            |shard: ShardId| left.iter().any(|place| matches!(place, Place::Shard(of, _) if *of == shard));
        let lost: BTreeSet<ShardId> =
            (0..SHARDS.len() as u32).map(ShardId).filter(|shard| !is_left(*shard)).collect();
        for chosen in &members {
            let key =
                std::iter::once(chosen.digest).chain(survivors.iter().map(|placed| placed.digest)).collect();
            let known = KNOWN.with_borrow(|known| known.get(&key).cloned());
            let content = known.unwrap_or_else(|| {
                let content = close(log, chosen, &survivors, &lost).map(Rc::new);
                KNOWN.with_borrow_mut(|known| known.insert(key, content.clone()));
                content
            });
            let Some(closing) = content else { continue };
            let (tail, broken) = &*closing;
            // The member dropped only cuts that all replicas have.
            let first = tail.keys().next().copied().unwrap_or(Position(u64::MAX));
            let mut content: BTreeMap<_, _> =
                state.ghost.cuts.range(..first).map(|(at, slot)| (*at, *slot)).collect();
            content.extend(tail.iter().map(|(at, slot)| (*at, *slot)));
            closed.push(Closed { content, lost: lost.clone(), broken: *broken });
        }
    }
    closed
}

fn choices() -> Vec<Vec<Place>> {
    let of = |shard: usize| {
        let place = move |node| Place::Shard(ShardId(shard as u32), node);
        let [primary, backup] = SHARDS[shard].map(place);
        [vec![primary, backup], vec![primary], vec![backup], vec![]]
    };
    let both = of(0).into_iter().flat_map(|one| {
        of(1).into_iter().map(move |other| one.iter().chain(&other).copied().collect::<Vec<_>>())
    });
    both.filter(|left| !left.is_empty()).collect()
}

/// Closes the view with copies: seals the chosen member, fences the replicas, and delivers its
/// messages. Returns the positions given out; `None` if the member reports nothing of the view.
fn close(log: &Log, chosen: &Placed, survivors: &[&Arc<Placed>], lost: &BTreeSet<ShardId>) -> Option<Tail> {
    let entry = log.entry();
    let old = entry.view.clone()?;
    let copies = survivors.iter().map(|placed| (placed.place, Arc::clone(placed)));
    let mut copies = Copies { machines: copies.collect(), broken: 0 };
    copies.machines.insert(chosen.place, Arc::new(chosen.clone()));
    let seal = control::Message::Seal { claim: CLAIM, old: VIEW, config: log.config() };
    let sealed = copies.told(chosen.place, seal.into());
    let held = sealed.iter().find_map(|packet| match &packet.message {
        Message::Control(control::Message::Sealed { state, .. }) => *state,
        _ => None,
    })?;
    let claimed = LogEntry { claimed: CLAIM, ..entry };
    for placed in survivors {
        let fence = shard::Message::Fence { claim: CLAIM, entry: claimed.clone() };
        copies.told(placed.place, fence.into());
    }
    let next = next_view(&old, chosen.place, survivors, lost, held.ordered + held.held);
    let flush = control::Message::Flush {
        claim: CLAIM,
        old: VIEW,
        incarnation: seriatim_model::Incarnation(1),
        view: next,
    };
    let mut packets: VecDeque<_> = copies.told(chosen.place, flush.into()).into();
    let mut content = BTreeMap::new();
    copies.broken |= rules::CLOSES;
    while let Some(packet) = packets.pop_front() {
        match &packet.message {
            Message::CutsShard(
                cuts::ShardMessage::Cover { batch, runs, .. }
                | cuts::ShardMessage::Closing { batch, runs, .. },
            ) => content.extend(contents(*batch, runs)),
            Message::Control(control::Message::Flushed { .. }) => copies.broken &= !rules::CLOSES,
            _ => {}
        }
        packets.extend(copies.deliver(&packet));
    }
    Some((content, copies.broken))
}

struct Copies {
    machines: BTreeMap<Place, Arc<Placed>>,
    broken: u16,
}

impl Copies {
    /// Delivers a message to its machine. Returns the resulting messages.
    fn deliver(&mut self, packet: &Arc<Packet>) -> Vec<Arc<Packet>> {
        let Some(placed) = self.machines.get_mut(&packet.to) else { return vec![] };
        let outcome = placed.tell(&Told::Packet(Arc::clone(packet)));
        self.broken |= if outcome.panicked { rules::ASSERTED } else { 0 };
        *placed = Arc::clone(&outcome.placed);
        outcome.sends.clone()
    }

    fn told(&mut self, to: Place, message: Message) -> Vec<Arc<Packet>> {
        self.deliver(&Arc::new(Packet::by(Place::Outside(Outsider::Controller), to, message)))
    }
}

fn next_view(
    old: &View,
    chosen: Place,
    survivors: &[&Arc<Placed>],
    lost: &BTreeSet<ShardId>,
    until: Position,
) -> View {
    let is_left = |shard: ShardId, member: &Member| {
        survivors.iter().any(|placed| placed.place == Place::Shard(shard, member.node))
    };
    let of = |members: &ShardMembers| {
        let left = members.replicas.iter().filter(|member| is_left(members.shard, member));
        ShardMembers { replicas: left.copied().collect(), ..members.clone() }
    };
    let goes_on = old.shards.iter().filter(|members| !lost.contains(&members.shard));
    let sequencers: Vec<Member> =
        old.sequencers.iter().filter(|member| Place::Sequencer(member.node) == chosen).copied().collect();
    let retired = lost.iter().map(|shard| RetiredShard::new(*shard, old.clone(), until));
    View {
        number: CLAIM,
        leader: sequencers[0].node,
        sequencers,
        shards: goes_on.map(of).collect(),
        retired: retired.collect(),
        ..old.clone()
    }
}
