//! A client's word on positions that it was given and that are not written.

use seriatim_model::{Position, SessionId, Time};

use super::client::{LogClient, Out, Place, send};
use super::message::Message;
use crate::parts::pauses::RECONNECT_AFTER;
use crate::shard::Span;

impl LogClient {
    /// The sequencer asks whether it still writes these. Where the head of the chain has the record, others may bring it
    /// down the chain: nothing else comes there any more.
    pub(super) fn is_asked(&self, now: Time, session: SessionId, take: u64, spans: &[Span], out: &mut Out) {
        let positions = spans.iter().flat_map(|span| span.positions());
        let left = positions.filter(|position| !self.is_writing(now, session, take, *position));
        self.say_writing(session, Span::of(left), out);
    }

    fn is_writing(&self, now: Time, session: SessionId, take: u64, position: Position) -> bool {
        if Some(session) != self.session {
            return false;
        }
        let Some(number) = self.placed.get(&position) else {
            // It may have been given, and the answer be on its way.
            return take == self.take && !self.is_settling && self.told < self.end();
        };
        let place = self.pending[(number - self.base) as usize].place;
        let is_to_head = matches!(place, Place::At { hops: 0, .. });
        let limits = self.config.options.limits;
        is_to_head && self.log.view().is_some_and(|view| !self.writes.are_cut_off(now, view, &place, limits))
    }

    /// The connection to the sequencer broke: it is told, over the next one, that this client is there.
    pub(super) fn announce_later(&mut self, now: Time) {
        self.announce_at = (!self.placed.is_empty()).then_some(now + RECONNECT_AFTER);
    }

    pub(super) fn announce_if_due(&mut self, now: Time, out: &mut Out) {
        if self.announce_at.take_if(|at| now >= *at).is_some()
            && let Some(session) = self.session
        {
            self.say_writing(session, vec![], out);
        }
    }

    fn say_writing(&self, session: SessionId, left: Vec<Span>, out: &mut Out) {
        let Some(view) = self.log.view() else { return };
        out.push(send(view.leader, Message::Writing { view: view.number, session, left }));
    }
}
