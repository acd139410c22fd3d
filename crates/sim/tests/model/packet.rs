//! Messages in flight, and whether they can still have an effect.

use seriatim_model::{Position, ViewNumber};
use seriatim_protocol::parts::sequencing;
use seriatim_protocol::roles::SequencingRole;
use seriatim_protocol::{Message, Mutation, control, erwin, shard};

use crate::alike::{Sent, by_digest};
use crate::place::{Place, Placed, Role};

pub(crate) type Packet = Sent<Place>;

by_digest! { Packet }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Appends and order of a view, or the flush under a claim.
    Data(ViewNumber),
    Answer,
    Stage(ViewNumber),
    Registered(ViewNumber),
    /// Any other question under a claim.
    Attempt(ViewNumber),
}

impl Packet {
    /// The packet of a message. `None` if the message changes no state and no promise.
    ///
    /// This omits messages that only make things happen sooner, or again: the model's actions wake
    /// controllers and inform clients of views, and a preempted attempt may stop at any time.
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
            // The bound only spares the leader a repetition.
            *stable = Position::ZERO;
        }
        matters.then(|| Self::by(from, to, message))
    }

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

    pub(crate) fn is_seal(&self) -> bool {
        matches!(self.message, Message::Control(control::Message::Seal { .. }))
    }

    /// Whether the message is a question. A second answer would only replace the first.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self.message, Message::Sequencing(sequencing::Message::CheckTail { .. }))
    }

    /// Whether it can have no effect on `to` again, because its view or step is over. A crashed
    /// replica is as new: `crashes` says whether one may still crash.
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
                // The shard has answered this batch, and knows its stable bound.
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
