//! The same log in macro steps, so that larger models are explored to their end.
//!
//! A macro step is a run of small steps in which no other event makes a difference. For every run
//! of small steps, a run of macro steps finds the same log with at least the same promises:
//! [`sights`] compares the two where both end. Every state is checked for the assumptions of these
//! arguments ([`rules::DEAF`], [`rules::ANEW`]):
//!
//! * **A view ends for everyone when the first attempt recovers it.** Its later messages reach only
//!   machines other than the sealed replica and the fenced shard, and touch neither of the two:
//!   they may as well have come before.
//! * **[`Recover`](MacroStep::Recover) is one macro step.** After the seal the chosen replica acts
//!   only for the attempt, and so does the shard after the fence. If a higher claim comes between,
//!   the attempt only froze: a frozen replica does nothing that a slow one could not do. A claim
//!   may as well be made at its first use.
//! * **Only the chosen replica is sealed.** The attempt continues with the first replica to choose.
//!   Another seal only freezes.
//! * **[`Register`](MacroStep::Register) is one macro step.** Staging freezes a replica until its
//!   view is registered or it obeys a higher claim. The stage of an ended attempt matters only to
//!   the replica sealed or staged next, and arrives just before that, if at all.
//! * **A named replica starts at once**, and may then be slow. The rules are also checked before
//!   any starts.
//! * **Clients learn of a view at once**, and do not notice that all members acknowledged their
//!   record, although everyone else does: their appends may be in flight in each view, and need not
//!   arrive.
//! * **`Bound` arrives with `Bind`, or not at all.** Until the leader hears of it, or the shard is
//!   fenced, a batch on the shard makes no difference. `Stable` arrives at once: a shard that knows
//!   more has more to answer for, and no machine relies on its knowledge.
//! * **A replica restarts just before it is staged.** An unstaged new incarnation does nothing that
//!   a slow old one could not do.
//!
//! [`sights`]: crate::sights

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim_model::{Incarnation, Member, View, ViewNumber};
use seriatim_protocol::erwin::Sequencer;
use seriatim_protocol::erwin::client::Reply;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::{Message, Mutation, control, shard};
use stateright::{Model, Property};

use crate::cluster::{Cluster, State, record};
use crate::packet::{Packet, Part};
use crate::place::{Place, Placed, Role, Told};
use crate::rules;

/// A cluster whose shard has one replica. Each controller makes one attempt.
pub(crate) struct MacroSteps(pub(crate) Cluster);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MacroStep {
    Deliver(Arc<Packet>),
    Begin(usize),
    /// A controller claims a number, seals a replica, fences the shard, and flushes the replica's
    /// entries. Just before, the batches `bound` reach the shard, and a `late` stage may reach the
    /// replica.
    Recover {
        controller: usize,
        chosen: usize,
        late: bool,
        bound: Vec<Arc<Packet>>,
    },
    /// Replicas are staged, and their view is registered and started.
    Register {
        controller: usize,
        members: Vec<usize>,
    },
    Crash(usize),
}

impl Model for MacroSteps {
    type State = State;
    type Action = MacroStep;

    fn init_states(&self) -> Vec<State> {
        assert_eq!(self.0.replicas, 1, "who of several is fenced is not modelled");
        let mut state = self.0.formed();
        self.quiesce(&mut state);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<MacroStep>) {
        let Some(view) = &state.entry().view else { return };
        let claimed = state.entry().claimed;
        let is_open = claimed == view.number;
        let arrives = |packet: &&Arc<Packet>| match packet.part() {
            Part::Data(sent) => is_open && sent == view.number && self.may_be_next(state, view, packet),
            Part::Stage(claim) | Part::Registered(claim) => !is_open && claim < claimed,
            Part::Attempt(_) | Part::Answer => false,
        };
        actions.extend(state.network.iter().filter(arrives).cloned().map(MacroStep::Deliver));
        for (index, placed) in state.machines.iter().enumerate() {
            match (&placed.role, placed.place) {
                (Role::Client(_), Place::Client(number)) if is_open && !state.ghost.began(number) => {
                    actions.push(MacroStep::Begin(index));
                }
                (Role::Controller(controller), place) => {
                    if state.next_controller == Some(place) && claimed.0 <= self.0.claims {
                        recoveries(state, view, index, actions);
                    }
                    if controller.step_name() == Some("stage") {
                        self.registrations(state, index, actions);
                    }
                }
                (Role::Sequencer(_), place) if state.crashes_left > 0 && is_staged(state, place, claimed) => {
                    actions.push(MacroStep::Crash(index));
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: MacroStep) -> Option<State> {
        let mut state = last.clone();
        match action {
            MacroStep::Deliver(packet) => {
                if packet.is_question() || !matches!(packet.part(), Part::Data(_)) {
                    state.network.retain(|other| *other != packet);
                }
                if !deliver(&mut state, packet) {
                    return None;
                }
            }
            MacroStep::Begin(index) => self.0.begin(&mut state, index),
            MacroStep::Recover { controller, chosen, late, bound } => {
                for packet in bound {
                    deliver(&mut state, packet);
                }
                self.recover(&mut state, controller, chosen, late)?;
            }
            MacroStep::Register { controller, members } => self.register(&mut state, controller, &members)?,
            MacroStep::Crash(index) => self.0.crash(&mut state, index),
        }
        self.quiesce(&mut state);
        self.0.forget_spent(&mut state);
        state.judge(&self.0);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }
}

/// Possible recoveries: from each replica, after any of the batches reached the shard.
fn recoveries(state: &State, view: &View, controller: usize, actions: &mut Vec<MacroStep>) {
    let binds = state.network.iter().filter(|packet| {
        packet.part() == Part::Data(view.number)
            && matches!(packet.message, Message::Shard(shard::Message::Bind { .. }))
    });
    let binds: Vec<_> = binds.cloned().collect();
    for (chosen, placed) in state.machines.iter().enumerate() {
        let Role::Sequencer(replica) = &placed.role else { continue };
        if !view.names_sequencer(replica.member()) {
            continue;
        }
        let is_late =
            |packet: &Arc<Packet>| packet.to == placed.place && matches!(packet.part(), Part::Stage(_));
        let may_be_late = state.network.iter().any(is_late);
        for bound in subsets(&binds) {
            if may_be_late {
                actions.push(MacroStep::Recover { controller, chosen, late: true, bound: bound.clone() });
            }
            actions.push(MacroStep::Recover { controller, chosen, late: false, bound });
        }
    }
}

impl MacroSteps {
    /// Whether the packet may be delivered next. Clients that begin together are alike: the first
    /// leader hears the first client first.
    fn may_be_next(&self, state: &State, view: &View, packet: &Packet) -> bool {
        let is_first_view = view.number == ViewNumber(1) && !self.0.staggered;
        if !is_first_view || packet.to != Place::Sequencer(view.leader) {
            return true;
        }
        let mut leader = state.sequencers().filter(|(placed, _)| placed.place == packet.to);
        let is_empty = leader.any(|(_, leader)| leader.held() == 0 && leader.ordered() == view.start);
        !is_empty || packet.from == Place::Client(0)
    }

    fn registrations(&self, state: &State, controller: usize, actions: &mut Vec<MacroStep>) {
        let claimed = state.entry().claimed;
        let candidates = (0..state.machines.len())
            .filter(|index| is_staged(state, state.machines[*index].place, claimed))
            .collect::<Vec<usize>>();
        let enough = subsets(&candidates).filter(|members| members.len() >= self.0.least as usize);
        actions.extend(enough.map(|members| MacroStep::Register { controller, members }));
    }

    fn recover(&self, state: &mut State, controller: usize, chosen: usize, late: bool) -> Option<()> {
        self.renew_controllers(state);
        let place = state.machines[chosen].place;
        let is_late = |packet: &Packet| packet.to == place && matches!(packet.part(), Part::Stage(_));
        while late && let Some(packet) = take(state, is_late) {
            deliver(state, packet);
        }
        let old = state.entry().view_number();
        let claim = claim(state, controller)?;
        while step_name(state, controller) != Some("stage") {
            let is_next = |packet: &Packet| match packet.part() {
                Part::Attempt(asked) => asked == claim && (!packet.is_seal() || packet.to == place),
                Part::Data(pushed) => pushed == claim,
                _ => false,
            };
            if let Some(packet) = take(state, is_next) {
                deliver(state, packet);
            } else if !state.gathered(controller) {
                return None;
            }
        }
        if !self.are_deaf(state, chosen) {
            state.broken |= rules::HEARD;
        }
        state.network.retain(|packet| match packet.part() {
            Part::Data(view) => view > old,
            Part::Stage(_) | Part::Registered(_) => true,
            Part::Attempt(_) | Part::Answer => false,
        });
        Some(())
    }

    /// Whether the machines that an attempt freezes take nothing from the view that it ends, and
    /// new incarnations take no part in it.
    fn are_deaf(&self, state: &State, chosen: usize) -> bool {
        let claimed = state.entry().claimed;
        let message = control::Message::Registered { entry: state.entry().clone() };
        for (index, placed) in state.machines.iter().enumerate() {
            let mut frozen = match &placed.role {
                Role::Shard(..) => vec![Arc::clone(placed)],
                Role::Sequencer(replica) => {
                    let Member { node, incarnation } = replica.member();
                    let fresh_sequencer =
                        self.fresh_sequencer(Member { node, incarnation: Incarnation(incarnation.0 + 1) });
                    let registered = Packet::new(Place::Register, placed.place, message.clone().into());
                    let told = registered.map(|packet| fresh_sequencer.tell(&Told::Packet(Arc::new(packet))));
                    if told.is_some_and(|told| is_open(&told.placed)) {
                        return false;
                    }
                    vec![fresh_sequencer]
                }
                _ => continue,
            };
            if index == chosen {
                frozen.push(Arc::clone(placed));
            }
            let stage =
                |packet: &&Arc<Packet>| packet.to == placed.place && packet.part() == Part::Stage(claimed);
            if let Some(stage) = state.network.iter().find(stage) {
                frozen.push(Arc::clone(&placed.tell(&Told::Packet(Arc::clone(stage))).placed));
            }
            let mut data = state
                .network
                .iter()
                .filter(|packet| packet.to == placed.place && matches!(packet.part(), Part::Data(_)));
            if !data.all(|packet| frozen.iter().all(|placed| is_deaf(placed, packet))) {
                return false;
            }
        }
        true
    }

    fn register(&self, state: &mut State, controller: usize, members: &[usize]) -> Option<()> {
        let claim = state.entry().claimed;
        let mut blank = vec![];
        for member in members {
            let Role::Sequencer(replica) = &state.machines[*member].role else { return None };
            let fresh_sequencer = self.fresh_sequencer(replica.member());
            let place = state.machines[*member].place;
            let stage = take(state, |packet| packet.to == place && packet.part() == Part::Stage(claim))?;
            blank
                .push((*member, Arc::clone(&fresh_sequencer.tell(&Told::Packet(Arc::clone(&stage))).placed)));
            state.tell(*member, &Told::Packet(stage));
        }
        if step_name(state, controller) == Some("stage") {
            state.gathered(controller);
        }
        propose(state)?;
        // No replica has started yet.
        state.judge(&self.0);
        deliver_prompt(state);
        let entry = state.entry().clone();
        for (member, blank) in blank {
            let registered = control::Message::Registered { entry: entry.clone() };
            let packet = Packet::new(Place::Register, state.machines[member].place, registered.into())?;
            let blank = blank.tell(&Told::Packet(Arc::new(packet)));
            if blank.placed.digest != state.machines[member].digest {
                state.broken |= rules::KEPT;
            }
        }
        for index in 0..state.machines.len() {
            if matches!(state.machines[index].place, Place::Client(number) if !state.ghost.is_done(number)) {
                state.learn(index);
            }
        }
        self.tidy(state);
        Some(())
    }

    /// Drops state without effect once a view is registered.
    ///
    /// Controllers keep no relevant state. A replica that starts a view keeps nothing else, so an
    /// excluded replica may as well be new, except for its incarnation, which the next view may
    /// name. An invalid version of a position stays invalid. After the last claim, no remains of
    /// earlier ones arrive.
    fn tidy(&self, state: &mut State) {
        self.renew_controllers(state);
        let Some(view) = state.entry().view.clone() else { return };
        let history = state.entry().history.clone();
        let is_last = state.next_controller.is_none() || state.entry().claimed.0 > self.0.claims;
        Arc::make_mut(&mut state.ghost).views.retain(|number, _| *number == view.number);
        for placed in &mut state.machines {
            match &placed.role {
                Role::Sequencer(replica) if !view.names_sequencer(replica.member()) => {
                    let Member { node, incarnation } = replica.member();
                    let incarnation = if is_last { Incarnation(0) } else { incarnation };
                    *placed = self.fresh_sequencer(Member { node, incarnation });
                }
                Role::Shard(replica, store) if !store.is_valid(&history) => {
                    let role = Role::Shard(replica.clone(), store.valid(&history));
                    *placed = Arc::new(Placed::new(placed.place, role, placed.clock));
                }
                _ => {}
            }
        }
        if is_last {
            state.crashes_left = 0;
            state.network.retain(|packet| matches!(packet.part(), Part::Data(_)));
        }
    }

    fn renew_controllers(&self, state: &mut State) {
        for placed in &mut state.machines {
            if let Place::Controller(node) = placed.place {
                *placed = self.fresh(placed.place, Incarnation(0), || self.0.controller(node));
            }
        }
    }

    fn fresh_sequencer(&self, me: Member) -> Arc<Placed> {
        self.fresh(Place::Sequencer(me.node), me.incarnation, || self.0.fresh_machine(me))
    }

    /// Caches new machines.
    fn fresh(&self, place: Place, incarnation: Incarnation, build: impl FnOnce() -> Placed) -> Arc<Placed> {
        type Key = (Place, Incarnation, Option<Mutation>, u32, u32);
        thread_local! {
            static FRESH: RefCell<BTreeMap<Key, Arc<Placed>>> = const { RefCell::new(BTreeMap::new()) };
        }
        let Cluster { mutation, sequencers, least, .. } = self.0;
        FRESH.with_borrow_mut(|fresh| {
            let known = fresh.entry((place, incarnation, mutation, sequencers, least));
            Arc::clone(known.or_insert_with(|| Arc::new(build())))
        })
    }

    /// Delivers prompt messages, and notes facts that clients could know.
    fn quiesce(&self, state: &mut State) {
        deliver_prompt(state);
        for index in 0..state.machines.len() {
            let place = state.machines[index].place;
            let Place::Client(number) = place else { continue };
            let is_quiet =
                |state: &State| state.ghost.is_done(number) || state.ghost.is_acknowledged(record(number));
            if !is_quiet(state) {
                let mut client = Arc::clone(&state.machines[index]);
                for packet in state.network.clone().iter().filter(|packet| packet.to == place) {
                    let outcome = client.tell(&Told::Packet(Arc::clone(packet)));
                    for reply in &outcome.replies {
                        let ghost = Arc::make_mut(&mut state.ghost);
                        match reply {
                            Reply::Appended { id, .. } => ghost.acknowledge(*id),
                            Reply::Tail(tail) => ghost.answered(number, *tail),
                            Reply::Session { .. } | Reply::Ended(_) | Reply::Failed(_) => {}
                        }
                    }
                    client = Arc::clone(&outcome.placed);
                }
            }
            if is_quiet(state) {
                state.network.retain(|packet| packet.to != place);
            }
        }
    }
}

fn claim(state: &mut State, controller: usize) -> Option<ViewNumber> {
    state.alarm(controller);
    while state.machines[controller].rests {
        state.again(controller);
    }
    propose(state)?;
    Some(state.entry().claimed)
}

/// Changes the register's entry. Checks that the same proposal then has no effect, like any earlier
/// one.
fn propose(state: &mut State) -> Option<()> {
    let packet = take(state, |packet| packet.to == Place::Register)?;
    deliver(state, Arc::clone(&packet));
    if state.machines[0].tell(&Told::Packet(packet)).placed.digest != state.machines[0].digest {
        state.broken |= rules::HEARD;
    }
    Some(())
}

fn step_name(state: &State, controller: usize) -> Option<&'static str> {
    match &state.machines[controller].role {
        Role::Controller(controller) => controller.step_name(),
        _ => None,
    }
}

fn is_open(placed: &Placed) -> bool {
    matches!(&placed.role, Role::Sequencer(replica) if replica.is_open())
}

/// Whether a message changes nothing and causes nothing.
fn is_deaf(placed: &Placed, packet: &Arc<Packet>) -> bool {
    let outcome = placed.tell(&Told::Packet(Arc::clone(packet)));
    outcome.placed.digest == placed.digest && outcome.sends.is_empty() && !outcome.panicked
}

/// Whether the machine was asked to prepare for the claimed view.
fn is_staged(state: &State, place: Place, claimed: ViewNumber) -> bool {
    state.network.iter().any(|packet| packet.to == place && packet.part() == Part::Stage(claimed))
}

fn take(state: &mut State, wanted: impl Fn(&Packet) -> bool) -> Option<Arc<Packet>> {
    let index = state.network.iter().position(|packet| wanted(packet))?;
    Some(state.network.remove(index))
}

/// Delivers a packet. Returns whether anything changed.
fn deliver(state: &mut State, packet: Arc<Packet>) -> bool {
    state.index(packet.to).is_some_and(|index| state.tell(index, &Told::Packet(packet)))
}

fn deliver_prompt(state: &mut State) {
    let Some(view) = state.entry().view.clone() else { return };
    let is_named = |replica: &Sequencer| view.names_sequencer(replica.member());
    let named = state.sequencers().filter(|(_, replica)| is_named(replica));
    let named: Vec<Place> = named.map(|(placed, _)| placed.place).collect();
    let is_prompt = |packet: &Packet| match &packet.message {
        Message::Shard(shard::Message::Stable { .. } | shard::Message::Bound { .. }) => true,
        Message::Control(control::Message::Registered { .. }) => {
            matches!(packet.to, Place::Shard(_)) || named.contains(&packet.to)
        }
        _ => false,
    };
    while let Some(packet) = take(state, is_prompt) {
        deliver(state, packet);
    }
}

fn subsets<T: Clone>(of: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..1_u32 << of.len()).map(move |chosen| {
        let members = of.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
        members.map(|(_, member)| member.clone()).collect()
    })
}
