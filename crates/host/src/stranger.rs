//! The answers of a node for a role that it does not host.

use seriatim_model::{Incarnation, Position, ViewNumber};
use seriatim_protocol::{Message, control, corfu, erwin, scalog, shard};

/// The answer for a role that is not here: the asker should look again where it is.
pub(crate) fn unknown_role(message: &Message) -> Option<Message> {
    let rejected = erwin::Message::Rejected { view: ViewNumber::NONE, why: None };
    let held = shard::Held::default();
    let fenced = shard::Message::Fenced { claim: ViewNumber::NONE, incarnation: Incarnation(0), held };
    match message {
        Message::Erwin(
            erwin::Message::Append { .. } | erwin::Message::CheckTail { .. } | erwin::Message::Locate { .. },
        ) => Some(rejected.into()),
        Message::Corfu(
            corfu::Message::Next { .. } | corfu::Message::CheckTail { .. } | corfu::Message::Close { .. },
        ) => Some(corfu::Message::Rejected { view: ViewNumber::NONE, why: None }.into()),
        Message::Corfu(corfu::Message::Status { request }) => {
            let (view, next) = (ViewNumber::NONE, Position::ZERO);
            let (request, open, unwritten, sessions) = (*request, false, 0, 0);
            Some(corfu::Message::StatusIs { request, view, open, next, unwritten, sessions }.into())
        }
        Message::Scalog(
            scalog::Message::Locate { .. }
            | scalog::Message::CheckTail { .. }
            | scalog::Message::Close { .. },
        ) => Some(scalog::Message::Rejected { view: ViewNumber::NONE, why: None }.into()),
        Message::Scalog(scalog::Message::Status { request }) => {
            let (view, end) = (ViewNumber::NONE, Position::ZERO);
            let (request, open, held, sessions) = (*request, false, 0, 0);
            Some(scalog::Message::StatusIs { request, view, open, end, held, sessions }.into())
        }
        Message::Erwin(erwin::Message::Status { request }) => {
            let nothing = erwin::Message::StatusIs {
                request: *request,
                view: ViewNumber::NONE,
                open: false,
                ordered: Position::ZERO,
                held: 0,
                sessions: 0,
            };
            Some(nothing.into())
        }
        Message::Shard(
            shard::Message::Read { .. }
            | shard::Message::Map { .. }
            | shard::Message::Subscribe { .. }
            | shard::Message::Trim { .. }
            | shard::Message::Write { .. }
            | shard::Message::Submit { .. }
            | shard::Message::Confirm { .. }
            | shard::Message::Seek { .. },
        ) => Some(fenced.into()),
        // The node lost its disk, and with it a role that the log counts on.
        Message::Control(control::Message::Registered { entry }) => {
            let (view, cannot_start) = (ViewNumber::NONE, entry.view_number());
            Some(control::Message::Report { view, cannot_start, incarnation: Incarnation(0) }.into())
        }
        _ => None,
    }
}
