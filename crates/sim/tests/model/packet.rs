//! Messages on their way, and which of them can still change anything.

use seriatim_model::{Position, ViewNumber};
use seriatim_protocol::parts::sequencing;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::{Message, Mutation, control, erwin, shard};

use crate::alike::{Sent, by_digest};
use crate::place::{Place, Placed, Role};

/// A message that was sent.
pub(crate) type Packet = Sent<Place>;

by_digest! { Packet }

/// The exchange that a message is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Appending and ordering in a view, or the flush under a claim.
    Data(ViewNumber),
    /// An answer to a client.
    Answer,
    /// Staging under a claim.
    Stage(ViewNumber),
    /// That a view is registered.
    Registered(ViewNumber),
    /// Anything else that is asked under a claim.
    Attempt(ViewNumber),
}

impl Packet {
    /// Nothing if it cannot change what is held or promised.
    ///
    /// Left out is what only makes things happen sooner, or again: a controller is woken by an
    /// action of the model, a client learns of a view by one, and an attempt that was preempted may
    /// stop at any time anyway.
    pub(crate) fn new(from: Place, to: Place, mut message: Message) -> Option<Self> {
        use {Place as To, control::Message as Control, erwin::Message as Erwin, shard::Message as Shard};
        let matters = match (&message, to) {
            (Message::Control(message), To::Controller(_)) => matches!(
                message,
                Control::Sealed { .. }
                    | Control::Flushed { .. }
                    | Control::Staged { .. }
                    | Control::Current { .. }
                    | Control::Get { .. }
            ),
            (Message::Shard(message), To::Controller(_)) => matches!(message, Shard::Fenced { .. }),
            (Message::Control(message), To::Register) => !matches!(message, Control::Lookup { .. }),
            (Message::Control(message), To::Sequencer(_)) => !matches!(message, Control::Unavailable { .. }),
            (Message::Shard(message), To::Sequencer(_)) => matches!(message, Shard::Bound { .. }),
            (Message::Erwin(message), To::Client(_)) => {
                matches!(message, Erwin::Acknowledged { .. } | Erwin::Tail { .. })
            }
            (_, To::Sequencer(_) | To::Shard(_)) => true,
            _ => false,
        };
        if let Message::Shard(Shard::Bound { stable, .. }) = &mut message {
            // It only keeps the leader from telling the shard again.
            *stable = Position::ZERO;
        }
        matters.then(|| Self::by(from, to, message))
    }

    /// The exchange that it is part of.
    pub(crate) fn part(&self) -> Part {
        use {control::Message as Control, erwin::Message as Erwin, shard::Message as Shard};
        match &self.message {
            Message::Erwin(
                Erwin::Append { view, .. } | Erwin::Truncate { view, .. } | Erwin::TruncateAck { view, .. },
            )
            | Message::Sequencing(sequencing::Message::CheckTail { view, .. })
            | Message::Shard(
                Shard::Bind { view, .. }
                | Shard::Bound { view, .. }
                | Shard::Stable { view, .. }
                | Shard::Replicate { view, .. }
                | Shard::Replicated { view, .. },
            ) => Part::Data(*view),
            Message::Control(Control::Stage { claim, .. }) => Part::Stage(*claim),
            Message::Control(Control::Registered { entry }) => Part::Registered(entry.view_number()),
            Message::Control(Control::Seal { claim, .. } | Control::Flush { claim, .. })
            | Message::Shard(Shard::Fence { claim, .. }) => Part::Attempt(*claim),
            Message::Control(Control::CompareAndSet { entry }) => Part::Attempt(entry.claimed),
            _ => Part::Answer,
        }
    }

    /// Whether it seals a replica.
    pub(crate) fn is_seal(&self) -> bool {
        matches!(self.message, Message::Control(control::Message::Seal { .. }))
    }

    /// Whether it asks for the tail. Another answer to the same question would only take the place
    /// of the first.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self.message, Message::Sequencing(sequencing::Message::CheckTail { .. }))
    }

    /// Whether it can never change anything any more, given the one that it goes to: its view or
    /// its step is over, and neither comes back. After a crash a replica is as if nothing had
    /// happened, so `crashes` says whether there may still be one.
    pub(crate) fn is_spent(&self, to: &Placed, mutation: Option<Mutation>, crashes: bool) -> bool {
        use {control::Message as Control, erwin::Message as Erwin, shard::Message as Shard};
        match (&self.message, &to.role) {
            (
                Message::Erwin(
                    Erwin::Append { view, .. }
                    | Erwin::Truncate { view, .. }
                    | Erwin::TruncateAck { view, .. },
                )
                | Message::Sequencing(sequencing::Message::CheckTail { view, .. }),
                Role::Sequencer(replica),
            ) => *view < replica.view_number(),
            (Message::Shard(Shard::Bound { view, .. }), Role::Sequencer(replica)) => {
                *view < replica.view_number()
            }
            (Message::Control(message), Role::Sequencer(replica)) if !crashes => match message {
                Control::Seal { claim, .. } | Control::Stage { claim, .. } => *claim < replica.claim(),
                Control::Flush { claim, .. } => {
                    *claim < replica.claim() && mutation != Some(Mutation::SealSkipped)
                }
                Control::Registered { entry } => entry.view_number() <= replica.view_number(),
                _ => false,
            },
            (Message::Shard(message), Role::Shard(replica, store)) => match message {
                // It is answered, and what it says of the stable bound is said again.
                Shard::Bind { view, batch, backups, stable, .. }
                    if backups.is_empty() && store.holds(*view, *batch) && *stable <= replica.stable() =>
                {
                    true
                }
                Shard::Bind { view, .. }
                | Shard::Stable { view, .. }
                | Shard::Replicate { view, .. }
                | Shard::Replicated { view, .. } => {
                    *view < replica.memory().claim && mutation != Some(Mutation::FenceSkipped)
                }
                Shard::Fence { claim, .. } => *claim < replica.memory().claim,
                _ => false,
            },
            (
                Message::Erwin(Erwin::Acknowledged { view, .. } | Erwin::Tail { view, .. }),
                Role::Client(client),
            ) => *view < client.entry().view_number() && mutation != Some(Mutation::MixedViews),
            (message, Role::Controller(controller)) => {
                let step = match message {
                    Message::Control(Control::Sealed { .. }) => "seal",
                    Message::Shard(Shard::Fenced { .. }) => "fence",
                    Message::Control(Control::Flushed { .. }) => "flush",
                    Message::Control(Control::Staged { .. }) => "stage",
                    _ => return false,
                };
                controller.step_name() != Some(step)
            }
            _ => false,
        }
    }
}
