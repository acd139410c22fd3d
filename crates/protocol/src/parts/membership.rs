//! A sequencing replica's place in the views of its log: its view, its staged view, and the highest
//! claim that it obeys (the number of a view that a controller wants to form).

use seriatim_model::wire::wire_struct;
use seriatim_model::{Address, Member, Position, Time, View, ViewNumber};

use super::claims;
use super::{Carried, Reports, sequencing};
use crate::control::message::Message;
use crate::mutation::{Mutation, Options};
use crate::roles::RoleEffect;

/// A replica's view state. The replica's other state belongs to view `number`.
///
/// Invariant: it is open only in a view that names this incarnation, with no higher claim, and not
/// after a restart.
#[derive(Clone, Debug)]
pub struct Membership {
    /// This incarnation of the replica.
    pub me: Member,
    /// The highest claim seen, or the view's number.
    pub claim: ViewNumber,
    /// The view of the replica's state.
    pub number: ViewNumber,
    /// That view. `None` if the replica adopted it, at a seal, before it learned of the
    /// registration.
    pub view: Option<View>,
    /// The staged view.
    pub staged: Option<Staged>,
    restarted: bool,
    unavailable: Option<String>,
    reports: Reports,
    /// A mutation: treats the node as the member of an earlier incarnation.
    is_amnesiac: bool,
}

/// A view that a replica is ready to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its number.
    pub claim: ViewNumber,
    /// The end of the order when it starts.
    pub ordered: Position,
    /// State of the previous view.
    pub carried: Carried,
}

wire_struct! { Staged { claim, ordered, carried } }

/// The effect of a seal or a stage on a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealOutcome {
    /// No effect: the message is a repetition.
    Still,
    /// The message ends the replica's work in its view.
    Newly {
        /// Whether the staged view was registered without this replica's knowledge and is now the
        /// old view.
        adopts: bool,
    },
}

/// The effect of a view's registration on a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// No effect.
    Known,
    /// The replica starts its staged view.
    Starts,
    /// The replica cannot start the view. Its own view is over, as after a seal.
    Ends,
    /// The replica cannot start the view. Its own view was over before.
    CannotStart,
}

impl Membership {
    /// A replica without state. It takes part in no view until it is staged.
    #[must_use]
    pub fn new(me: Member, options: Options) -> Self {
        Self {
            me,
            claim: ViewNumber::NONE,
            number: ViewNumber::NONE,
            view: None,
            staged: None,
            restarted: true,
            unavailable: None,
            reports: Reports::default(),
            is_amnesiac: options.mutates(Mutation::AmnesiaAcknowledges),
        }
    }

    /// Whether the replica takes part in a view.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let named =
            self.view.as_ref().is_some_and(|view| view.number == self.number && self.is_named_in(view));
        named && self.claim == self.number && !self.restarted
    }

    /// Whether it takes part in this view.
    #[must_use]
    pub fn accepts(&self, view: ViewNumber) -> bool {
        self.is_open() && view == self.number
    }

    fn is_named_in(&self, view: &View) -> bool {
        view.names_sequencer(self.me)
            || self.is_amnesiac && view.sequencers.iter().any(|member| member.node == self.me.node)
    }

    /// The latest view that it knows to be registered.
    #[must_use]
    pub fn registered_number(&self) -> ViewNumber {
        self.number.max(self.reports.cannot_start())
    }

    /// The answer to messages of other views.
    #[must_use]
    pub fn rejection(&self) -> sequencing::Message {
        sequencing::Message::Rejected { view: self.registered_number(), why: self.unavailable.clone() }
    }

    /// Notes why no view can be formed.
    pub fn note_unavailable(&mut self, why: String) {
        self.unavailable = Some(why);
    }

    /// A controller seals view `old` for a claim: lower claims are refused from now on. Returns
    /// `None` for a refused seal. `resists` is a mutation.
    pub fn seal(
        &mut self,
        now: Time,
        from: Address,
        (claim, old): (ViewNumber, ViewNumber),
        resists: bool,
        out: &mut Vec<RoleEffect>,
    ) -> Option<SealOutcome> {
        if claim < self.claim {
            self.tell_preempted(from, out);
            return None;
        }
        if self.is_ahead(from, claim, old, out) {
            return None;
        }
        self.back_off(now);
        if claim == self.claim || resists {
            return Some(SealOutcome::Still);
        }
        self.claim = claim;
        Some(SealOutcome::Newly { adopts: self.is_staged_for(old) })
    }

    /// A controller stages the view after `old`; the present state stays. Returns `None` if
    /// refused.
    pub fn stage(
        &mut self,
        from: Address,
        old: ViewNumber,
        staged: &Staged,
        out: &mut Vec<RoleEffect>,
    ) -> Option<SealOutcome> {
        let claim = staged.claim;
        if claim >= self.claim && self.is_ahead(from, claim, old, out) {
            return None;
        }
        if claim < self.claim || claim <= self.number {
            self.tell_preempted(from, out);
            return None;
        }
        if self.staged.as_ref() == Some(staged) {
            return Some(SealOutcome::Still);
        }
        self.claim = claim;
        // The staged view may have been registered without this replica's knowledge. Then it must
        // be adopted, not overwritten.
        Some(SealOutcome::Newly { adopts: self.is_staged_for(old) })
    }

    /// Sets the staged view.
    pub fn prepare(&mut self, staged: Staged) {
        self.claim = staged.claim;
        self.staged = Some(staged);
    }

    /// The number of the staged view.
    #[must_use]
    pub fn staged_number(&self) -> Option<ViewNumber> {
        self.staged.as_ref().map(|staged| staged.claim)
    }

    /// Handles a registration.
    pub fn registered(&mut self, now: Time, view: &View) -> Registered {
        if view.number <= self.number {
            return Registered::Known;
        }
        let amnesia = self.is_amnesiac && self.number == ViewNumber::NONE;
        let prepared = self.staged_number() == Some(view.number);
        if self.is_named_in(view) && (prepared || amnesia) {
            return Registered::Starts;
        }
        self.reports.note(now, view.number);
        if view.number > self.claim {
            self.claim = view.number;
            return Registered::Ends;
        }
        Registered::CannotStart
    }

    /// Enters view `number`, perhaps before its registration is known. Returns the view's staged
    /// state, or an empty state at `start` if it was not staged.
    pub fn adopt(&mut self, number: ViewNumber, start: Position) -> Staged {
        self.number = number;
        self.view = None;
        let staged = self.staged.take().filter(|staged| staged.claim == number);
        staged.unwrap_or(Staged { claim: number, ordered: start, carried: Carried::default() })
    }

    /// The entered view is registered. Returns whether this replica leads it.
    pub fn start(&mut self, view: &View) -> bool {
        assert!(self.number == view.number && self.is_named_in(view), "{:?} starts {view:?}", self.me);
        self.claim = self.claim.max(view.number);
        let leads = view.leader == self.me.node && self.claim == view.number;
        self.view = Some(view.clone());
        self.unavailable = None;
        self.restarted = false;
        self.reports.started();
        leads
    }

    /// Stores the registered view that this replica has adopted. A higher claim keeps it sealed.
    pub fn learn(&mut self, view: &View) {
        if view.number == self.number && self.view.is_none() {
            self.view = Some(view.clone());
        }
    }

    /// The replica's state is from before a restart: it waits for a new view.
    pub fn was_restarted(&mut self) {
        self.restarted = true;
    }

    /// Delays the next report, so that the view change attempt that sealed the replica can finish.
    pub fn back_off(&mut self, now: Time) {
        self.reports.back_off(now);
    }

    /// When [`report`](Self::report) must be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.reports.deadline())
    }

    /// Sends a due report, unless the replica takes part in a view.
    pub fn report(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if !self.is_open() {
            self.reports.report(now, self.me, self.number, out);
        }
    }

    /// Tells a controller that this replica obeys a higher claim.
    pub fn tell_preempted(&self, controller: Address, out: &mut Vec<RoleEffect>) {
        send(controller, Message::Preempted { claim: self.claim }, out);
    }

    /// Whether the replica knows a registered view that the claimant's register does not. If so,
    /// refuses the claim, which would replace that view by an older one.
    fn is_ahead(&self, from: Address, claim: ViewNumber, old: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
        let view = self.registered_number();
        let is_ahead = claims::shows_register_behind(claim, old, view);
        if is_ahead {
            send(from, Message::Ahead { claim, view }, out);
        }
        is_ahead
    }

    /// Whether the staged view has the number `old`, which the controller's register gave as the
    /// latest view: then it was registered without this replica's knowledge.
    fn is_staged_for(&self, old: ViewNumber) -> bool {
        self.number < old && self.staged_number() == Some(old)
    }
}

fn send(to: Address, message: Message, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
