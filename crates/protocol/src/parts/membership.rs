//! A sequencing replica's place in the views of its log: the claim that it obeys, its view, and the
//! view that is staged at it.

use seriatim_model::wire::wire_struct;
use seriatim_model::{Address, Member, Position, Time, View, ViewNumber};

use super::claims;
use super::{Carried, Reports, sequencing};
use crate::control::message::Message;
use crate::mutation::{Mutation, Options};
use crate::roles::RoleEffect;

/// A replica's knowledge of views. Everything that it holds belongs to the view `number`.
///
/// Invariant: it is open only in a view that names this incarnation, while no higher claim was
/// seen, and not after a restart.
#[derive(Clone, Debug)]
pub struct Membership {
    /// This incarnation of the replica.
    pub me: Member,
    /// The highest claim seen, or the number of the view.
    pub claim: ViewNumber,
    /// The view that what the replica holds belongs to.
    pub number: ViewNumber,
    /// That view itself; missing while it was adopted by a seal, and not seen registered.
    pub view: Option<View>,
    /// The view that it is prepared to start.
    pub staged: Option<Staged>,
    restarted: bool,
    unavailable: Option<String>,
    reports: Reports,
    /// Whether the mutation is on by which a node is taken for the member that it was in another
    /// incarnation.
    is_amnesiac: bool,
}

/// A view that a replica is prepared to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its number.
    pub claim: ViewNumber,
    /// How far the log is ordered when it starts.
    pub ordered: Position,
    /// The knowledge of the view before.
    pub carried: Carried,
}

wire_struct! { Staged { claim, ordered, carried } }

/// The consequence for a replica of being sealed, or staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealOutcome {
    /// Nothing: it was before.
    Still,
    /// Its work in its view is over.
    Newly {
        /// Whether what it is prepared for is the old view now: that was registered, and the
        /// replica did not see it start.
        adopts: bool,
    },
}

/// The consequence for a replica of a view's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registered {
    /// Nothing.
    Known,
    /// It is prepared for it, and starts it.
    Starts,
    /// It cannot start it, and what it does in its own view is over: as if it was sealed.
    Ends,
    /// It cannot start it.
    CannotStart,
}

impl Membership {
    /// That of a replica without memory: it takes part in nothing until it is staged.
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

    /// Whether it takes part in this one.
    #[must_use]
    pub fn accepts(&self, view: ViewNumber) -> bool {
        self.is_open() && view == self.number
    }

    fn is_named_in(&self, view: &View) -> bool {
        view.names_sequencer(self.me)
            || self.is_amnesiac && view.sequencers.iter().any(|member| member.node == self.me.node)
    }

    /// The latest view that it knows to have been registered.
    #[must_use]
    pub fn registered_number(&self) -> ViewNumber {
        self.number.max(self.reports.cannot_start())
    }

    /// The answer to messages of views that it takes no part in.
    #[must_use]
    pub fn rejection(&self) -> sequencing::Message {
        sequencing::Message::Rejected { view: self.registered_number(), why: self.unavailable.clone() }
    }

    /// No view can be formed.
    pub fn note_unavailable(&mut self, why: String) {
        self.unavailable = Some(why);
    }

    /// A controller seals view `old` for a claim: from now on the replica obeys no lower claim.
    /// Nothing, if it refuses the seal. A replica that `resists`, by a mutation, obeys as it did.
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

    /// A controller prepares the replica to start a view after `old`, beside what it holds.
    /// Nothing, if it is refused.
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
        // A view that was registered, and not seen to start, is not to be overwritten.
        Some(SealOutcome::Newly { adopts: self.is_staged_for(old) })
    }

    /// The replica is prepared to start a view.
    pub fn prepare(&mut self, staged: Staged) {
        self.claim = staged.claim;
        self.staged = Some(staged);
    }

    /// The number of the view that it is prepared to start.
    #[must_use]
    pub fn staged_number(&self) -> Option<ViewNumber> {
        self.staged.as_ref().map(|staged| staged.claim)
    }

    /// A view is registered.
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

    /// Becomes a member of view `number`, which may not be seen registered yet. Returns what it was
    /// prepared with; or without that, only where the view starts.
    pub fn adopt(&mut self, number: ViewNumber, start: Position) -> Staged {
        self.number = number;
        self.view = None;
        let staged = self.staged.take().filter(|staged| staged.claim == number);
        staged.unwrap_or(Staged { claim: number, ordered: start, carried: Carried::default() })
    }

    /// The view that was adopted is registered. Says whether this replica leads it.
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

    /// A view is registered that was adopted before: from now on its members are known. It was
    /// sealed by a higher claim, and stays so.
    pub fn learn(&mut self, view: &View) {
        if view.number == self.number && self.view.is_none() {
            self.view = Some(view.clone());
        }
    }

    /// The replica's memory is from before a restart: it waits for a new view.
    pub fn was_restarted(&mut self) {
        self.restarted = true;
    }

    /// Gives an attempt that sealed the replica time before it asks for a view itself.
    pub fn back_off(&mut self, now: Time) {
        self.reports.back_off(now);
    }

    /// When to call [`report`](Self::report) at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        (!self.is_open()).then_some(self.reports.deadline())
    }

    /// Asks for a view now and then, where it takes part in none.
    pub fn report(&mut self, now: Time, out: &mut Vec<RoleEffect>) {
        if !self.is_open() {
            self.reports.report(now, self.me, self.number, out);
        }
    }

    /// Tells a controller that another one has a higher claim.
    pub fn tell_preempted(&self, controller: Address, out: &mut Vec<RoleEffect>) {
        send(controller, Message::Preempted { claim: self.claim }, out);
    }

    /// Whether it knows a registered view that the claimant's register does not: it says so, and
    /// obeys no claim that would replace that view by what came before it.
    fn is_ahead(&self, from: Address, claim: ViewNumber, old: ViewNumber, out: &mut Vec<RoleEffect>) -> bool {
        let view = self.registered_number();
        let is_ahead = claims::shows_register_behind(claim, old, view);
        if is_ahead {
            send(from, Message::Ahead { claim, view }, out);
        }
        is_ahead
    }

    /// Whether it is prepared for view `old`, which was registered, and did not see it start.
    fn is_staged_for(&self, old: ViewNumber) -> bool {
        self.number < old && self.staged_number() == Some(old)
    }
}

fn send(to: Address, message: Message, out: &mut Vec<RoleEffect>) {
    out.push(RoleEffect::Send { to, message: message.into() });
}
