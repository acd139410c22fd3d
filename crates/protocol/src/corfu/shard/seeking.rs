//! Search for a session's records, for a run that resumes it: no role remembers the session's
//! positions.
//!
//! A replica reads final records only, and reports the bound below which it has everything.

use seriatim_model::{Address, Position, SessionId, ViewNumber};

use super::message::Message;
use super::{Chain, OwnRead, own_positions};
use crate::mutation::Mutation;
use crate::roles::RoleEffect;
use crate::shard::{Core, OwnOutcome, send};

impl Chain {
    /// Starts the search. While positions are not final, there is no answer; the client retries.
    pub(super) fn seek(
        &mut self,
        core: &mut Core,
        client: Address,
        (view, session): (ViewNumber, SessionId),
        (from, end): (Position, Position),
        out: &mut Vec<RoleEffect>,
    ) {
        let is_early = end > core.stable && !core.options.mutates(Mutation::SoughtEarly);
        if is_early || from >= end {
            return;
        }
        let (trim, found) = (core.trim, vec![]);
        if end <= trim {
            return send(client, Message::Sought { view, session, from, upto: end, trim, found }, out);
        }
        let read = OwnRead::Seek { client, view, session, from };
        if let Some(question) = self.read_for_client(read, core.options.limits.waiting_reads) {
            core.look_up(question, from.max(trim), end, out);
        }
    }
}

/// Sends the records read. A missing range or a damaged record ends the answer.
pub(super) fn sought(
    core: &Core,
    client: Address,
    (view, session): (ViewNumber, SessionId),
    from: Position,
    outcome: OwnOutcome,
    out: &mut Vec<RoleEffect>,
) {
    let Some(known) = core.memory.view.as_ref() else { return };
    let (mut upto, mut found, trim) = (from, vec![], core.trim);
    if let Ok((records, end)) = outcome {
        let mut there = records.into_iter().map(|stored| (stored.position, stored.id)).peekable();
        upto = end;
        for position in own_positions(&known.placement, core.shard, from.max(trim), end) {
            while there.next_if(|(earlier, _)| *earlier < position).is_some() {}
            match there.next_if(|(at, _)| *at == position) {
                Some((at, id)) if id.session == session => found.push((at, id)),
                Some(_) => {}
                None if core.options.mutates(Mutation::SoughtEarly) => {}
                None => {
                    upto = position;
                    break;
                }
            }
        }
    }
    send(client, Message::Sought { view, session, from, upto, trim, found }, out);
}
