//! The trims of a replica: in a view, outside of all views, and during a view change.

use seriatim_model::storage::StorageCommand;
use seriatim_model::{Address, Endpoint, Position, ViewNumber};

use super::core::{Core, send};
use super::leftovers;
use super::message::Message;
use super::path::DataPath;
use super::read_error::ReadError;
use crate::mutation::Mutation;
use crate::roles::RoleEffect;

impl Core {
    /// Receives a client's trim, or from the controller on its node the trim point of a view
    /// without the replica.
    pub(super) fn told_to_trim(
        &mut self,
        path: &mut dyn DataPath,
        from: Address,
        (request, view): (u64, ViewNumber),
        position: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.is_open() && view == self.view_number() {
            self.trim(from, request, position, out);
        } else if self.is_told_by_controller(from) {
            self.trim_outside(path, view, position, out);
        } else {
            self.trim_when_fenced(view, position);
            send(from, self.fenced(), out);
        }
        assert_trimmed_is_final(self);
    }

    pub(super) fn trim_below(&mut self, position: Position, out: &mut Vec<RoleEffect>) {
        if position > self.trim {
            self.trim = position;
            self.memory.history.forget_below(position);
            self.write_trim(out);
            self.readers.trimmed(position, out);
            self.surveys_trimmed();
            self.missing = self.missing.map(|range| range.not_below(position));
            self.leave_gaps();
        }
    }

    pub(super) fn write_trim(&mut self, out: &mut Vec<RoleEffect>) {
        self.trim_write = self.gate.store(StorageCommand::Trim(self.trim), out);
        self.trim_refused = false;
    }

    pub(super) fn write_refused_trim(&mut self, out: &mut Vec<RoleEffect>) {
        if self.trim_refused {
            self.write_trim(out);
        }
    }

    pub(super) fn trim(
        &mut self,
        from: Address,
        request: u64,
        position: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        if position > self.stable {
            self.ask_primary(out);
            let error = ReadError::NotStable { stable: self.stable };
            return send(from, Message::ReadFailed { request, error }, out);
        }
        self.trim_below(position, out);
        self.write_refused_trim(out);
        leftovers::ask_as_member(self, out);
        self.gate.confirm(from, Message::Trimmed { request, first: self.trim }, out);
    }

    fn is_told_by_controller(&self, from: Address) -> bool {
        from == Address::Node(self.me().node, Endpoint::Controller)
    }

    /// Follows the trim of a view without this replica: positions below are final. Where each
    /// replica serves only its own store, this replica's stable bound limits the trim.
    fn trim_outside(
        &mut self,
        path: &mut dyn DataPath,
        view: ViewNumber,
        position: Position,
        out: &mut Vec<RoleEffect>,
    ) {
        let is_a_members_own = view <= self.view_number() && self.is_named();
        if is_a_members_own || self.options.mutates(Mutation::OutsideUntrimmed) {
            return;
        }
        // A view change relies on the reported bound, and may start a view lower.
        let is_counted_on = path.applied().is_some() || self.memory.claim > view;
        let position = if is_counted_on { position.min(self.stable) } else { position };
        let is_news = position > self.trim || position > self.stable || path.unplaced() > 0;
        self.trim_below(position, out);
        self.advance_stable(path, position, out);
        // Records without positions would keep their segments. If a view names the replica again,
        // it copies from the members.
        if self.memory.claim <= view {
            path.discard_unplaced(self, out);
            leftovers::ask(self, view, is_news, out);
        }
        // Nothing else keeps the segments now.
        if is_news || self.trim_refused {
            self.write_trim(out);
        }
    }

    /// Defers a trim during a view change: the attempt relies on the reported state and may wait
    /// for room.
    fn trim_when_fenced(&mut self, view: ViewNumber, position: Position) {
        if self.is_named() && view == self.view_number() && position <= self.stable {
            self.wanted_trim = self.wanted_trim.max(position);
        }
    }

    pub(super) fn trim_as_wanted(&mut self, out: &mut Vec<RoleEffect>) {
        let wanted = std::mem::take(&mut self.wanted_trim);
        // A failed write may have lowered the stable bound.
        self.trim_below(wanted.min(self.stable), out);
        assert_trimmed_is_final(self);
    }
}

fn assert_trimmed_is_final(Core { trim, stable, .. }: &Core) {
    assert!(trim <= stable, "positions below {trim} are trimmed, and below {stable} final");
}
