//! Compares machines and messages by a digest of everything that affects behaviour.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::LocalKey;

use seriatim_model::{Effect, Input, Machine, Time};
use seriatim_protocol::Message;

/// Implements equality and hash by the digest.
macro_rules! by_digest {
    ($($of:ty),+) => {$(
        impl PartialEq for $of {
            fn eq(&self, other: &Self) -> bool {
                self.digest == other.digest
            }
        }

        impl std::hash::Hash for $of {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                state.write_u64(self.digest);
            }
        }
    )+};
}

pub(crate) use by_digest;

/// A sent message.
///
/// It may arrive at any later time, any number of times, or never: loss, duplication and reordering
/// need no further model.
#[derive(Clone)]
pub(crate) struct Sent<P> {
    pub(crate) from: P,
    pub(crate) to: P,
    pub(crate) message: Message,
    pub(crate) digest: u64,
}

impl<P: Debug> Sent<P> {
    pub(crate) fn by(from: P, to: P, message: Message) -> Self {
        let digest = digest(&format!("{from:?} {to:?} {message:?}"));
        Self { from, to, message, digest }
    }
}

impl<P: Debug> Debug for Sent<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} to {:?}: {:?}", self.from, self.to, self.message)
    }
}

pub(crate) fn digest(text: &str) -> u64 {
    // This hasher's keys are fixed, unlike those of a map's hasher.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

pub(crate) type Seen<O> = RefCell<BTreeMap<(u64, u64), Arc<O>>>;

/// Reuses known outcomes: machines are deterministic. `panicked` is the outcome of a failed
/// assertion.
pub(crate) fn remembered<O>(
    seen: &'static LocalKey<Seen<O>>,
    key: (u64, u64),
    work: impl FnOnce() -> O,
    panicked: impl FnOnce() -> O,
) -> Arc<O> {
    if let Some(outcome) = seen.with_borrow(|seen| seen.get(&key).cloned()) {
        return outcome;
    }
    let outcome = Arc::new(catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| panicked()));
    seen.with_borrow_mut(|seen| seen.insert(key, Arc::clone(&outcome)));
    outcome
}

/// Steps a machine until it has nothing to do at this time. Writes complete at once, reads later
/// than anything else.
pub(crate) fn run<M: Machine>(
    machine: &mut M,
    now: Time,
    first: Input<M::Message, M::Request>,
    perform: &mut dyn FnMut(Effect<M::Message, M::Reply>),
) {
    let mut inputs = VecDeque::from([first]);
    loop {
        let due = machine.deadline().is_some_and(|at| at <= now);
        let Some(input) = inputs.pop_front().or_else(|| due.then_some(Input::Wake)) else { return };
        let mut out = vec![];
        machine.step(now, input, &mut out);
        for effect in out {
            if let Effect::Store { ticket, .. } | Effect::Persist { ticket, .. } = &effect {
                inputs.push_back(Input::Persisted(*ticket));
            }
            perform(effect);
        }
    }
}
