//! A client's answers about granted, unwritten positions.

use seriatim_model::{
    Address, Endpoint, NodeId, Position, RecordId, SessionId, ShardId, Span, Time, ViewNumber,
};

use super::ShardMessage;
use super::client::{LogClient, Out, Place, send};
use super::message::Message;
use crate::parts::appending::ClientEffect;
use crate::parts::junk;
use crate::parts::timeouts::RECONNECT_AFTER;

impl LogClient {
    /// Answers the sequencer's question about unwritten positions. If the head has the record, the
    /// position counts as `left`: others may pass the record down the chain, and nothing else can
    /// be written there.
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
            // The position's grant may be in flight.
            return take == self.take && !self.is_recovering && self.granted < self.end();
        };
        let place = self.pending[(number - self.base) as usize].place;
        let is_to_head = matches!(place, Place::At { hops: 0, .. });
        let limits = self.config.options.limits;
        is_to_head && self.log.view().is_some_and(|view| !self.writes.are_cut_off(now, view, &place, limits))
    }

    /// The view is over, and a shard asks for records for vacant positions. From now on no answer
    /// of that view counts: the client writes an offered record nowhere else.
    pub(super) fn offer(
        &mut self,
        now: Time,
        (shard, node): (ShardId, NodeId),
        (claim, old): (ViewNumber, ViewNumber),
        spans: &[Span],
        out: &mut Out,
    ) {
        let (mut runs, mut bytes) = (vec![], 0);
        let mut upto = spans.last().map_or(Position::ZERO, |span| span.end());
        if old == self.log.view_number() {
            self.is_over = true;
            self.log.was_fenced(now, claim);
            let most = self.config.options.limits.batch_bytes;
            let ranges = spans.iter().map(|span| span.first..span.end());
            for (position, number) in ranges.flat_map(|range| self.placed.range(range)) {
                let pending = &mut self.pending[(*number - self.base) as usize];
                let (Place::At { sent, .. }, Some(session)) = (&mut pending.place, self.session) else {
                    continue;
                };
                if bytes > 0 && bytes + pending.record.size() > most {
                    upto = *position;
                    break;
                }
                *sent = true;
                bytes += pending.record.size();
                let id = RecordId { session, number: *number };
                junk::push(&mut runs, *position, (id, pending.record.clone()));
            }
        }
        let to = Address::Node(node, Endpoint::Shard(shard));
        out.push(ClientEffect::Send { to, message: ShardMessage::Offer { claim, upto, runs }.into() });
    }

    /// Announces the client over the next connection.
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
