//! Sends the current view to roles that may not know it.

use seriatim_model::{Address, NodeId, Time, ViewNumber};

use super::{Controller, Message, left_out, named, retired, send};
use crate::roles::RoleEffect;

impl Controller {
    /// Sends the view to excluded roles: they may have been cut off and still work in the old view.
    pub(super) fn remind(&self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        self.full.ask_for_trims(self.node, entry, out);
        self.ask_whether_whole(now, out);
        self.tell(left_out(entry).chain(self.dropped.iter().copied()).collect(), out);
    }

    /// Notifies all roles of a view that is new to this node: its controller may be down, and a
    /// role that lost its disk does not know that it is a member.
    pub(super) fn pass_on_news(&self, known: Option<ViewNumber>, out: &mut Vec<RoleEffect>) {
        if let Some(entry) = self.current.as_ref().filter(|entry| Some(entry.view_number()) > known) {
            self.tell(named(entry).chain(retired(entry)).collect(), out);
        }
    }

    /// Notifies all roles that a node has or should have.
    pub(super) fn remind_roles_of(&self, node: NodeId, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        let is_there = |to: &Address| matches!(to, Address::Node(other, _) if *other == node);
        let away = left_out(entry).chain(self.dropped.iter().copied()).chain(retired(entry));
        let roles = named(entry).chain(away);
        self.tell(roles.filter(is_there).collect(), out);
    }

    pub(super) fn are_some_away(&self) -> bool {
        !self.dropped.is_empty() || self.current.iter().any(|entry| left_out(entry).next().is_some())
    }

    /// No view takes back all excluded roles of this node before this time.
    #[must_use]
    pub fn takes_back_at(&self, node: NodeId) -> Time {
        let away = self.current.iter().flat_map(|entry| left_out(entry));
        let of_node = away.filter(|role| matches!(role, Address::Node(other, _) if *other == node));
        of_node.map(|role| self.rejoin.returns_at(role)).max().unwrap_or(Time::ZERO)
    }

    /// Sends the view to reachable roles.
    fn tell(&self, roles: Vec<Address>, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        let answers = |to: &Address| matches!(to, Address::Node(node, _) if !self.suspected.contains(node));
        for to in roles.into_iter().filter(answers) {
            send(to, Message::Registered { entry: (**entry).clone() }, out);
        }
    }
}
