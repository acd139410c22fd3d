//! Telling roles which view stands: roles that it does without, and roles that may not know that it
//! names them.

use seriatim_model::{Address, NodeId, Time, ViewNumber};

use super::{Controller, Message, left_out, named, retired, send};
use crate::roles::RoleEffect;

impl Controller {
    /// Tells the roles that the view does without: a role that was cut off may think that its old
    /// view goes on.
    pub(super) fn remind(&self, now: Time, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        self.full.ask_for_trims(self.node, entry, out);
        self.ask_whether_whole(now, out);
        self.tell(left_out(entry).chain(self.dropped.iter().copied()).collect(), out);
    }

    /// Tells the roles that the view names of it, if it is newer than the one that this node knew:
    /// the controller that registered it may be gone. A role that lost its disk since does not know
    /// that it is a member.
    pub(super) fn pass_on_news(&self, known: Option<ViewNumber>, out: &mut Vec<RoleEffect>) {
        if let Some(entry) = self.current.as_ref().filter(|entry| Some(entry.view_number()) > known) {
            self.tell(named(entry).chain(retired(entry)).collect(), out);
        }
    }

    /// Tells the roles that a node has, or should have, which view stands.
    pub(super) fn remind_roles_of(&self, node: NodeId, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        let is_there = |to: &Address| matches!(to, Address::Node(other, _) if *other == node);
        let away = left_out(entry).chain(self.dropped.iter().copied()).chain(retired(entry));
        let roles = named(entry).chain(away);
        self.tell(roles.filter(is_there).collect(), out);
    }

    /// Whether there are roles to remind that the view does without them.
    pub(super) fn are_some_away(&self) -> bool {
        !self.dropped.is_empty() || self.current.iter().any(|entry| left_out(entry).next().is_some())
    }

    /// The time before which no view takes back all roles of this node that the latest view does
    /// without.
    #[must_use]
    pub fn takes_back_at(&self, node: NodeId) -> Time {
        let away = self.current.iter().flat_map(|entry| left_out(entry));
        let of_node = away.filter(|role| matches!(role, Address::Node(other, _) if *other == node));
        of_node.map(|role| self.rejoin.returns_at(role)).max().unwrap_or(Time::ZERO)
    }

    /// Tells roles which view stands, if their nodes answer.
    fn tell(&self, roles: Vec<Address>, out: &mut Vec<RoleEffect>) {
        let Some(entry) = &self.current else { return };
        let answers = |to: &Address| matches!(to, Address::Node(node, _) if !self.suspected.contains(node));
        for to in roles.into_iter().filter(answers) {
            send(to, Message::Registered { entry: (**entry).clone() }, out);
        }
    }
}
