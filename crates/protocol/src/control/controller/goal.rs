//! The aims of the next attempt.

use std::time::Duration;

use seriatim_model::Time;

use super::Controller;
use super::copies::lost;
use crate::control::attempt::Goal;
use crate::mutation::Mutation;

/// How long a member may be absent before another node replaces it.
pub(super) fn patience(controller: &Controller) -> Duration {
    match controller.options.mutates(Mutation::ReplacedAtOnce) {
        true => Duration::ZERO,
        false => controller.options.limits.replace_after,
    }
}

pub(super) fn goal(controller: &Controller, now: Time) -> Goal {
    let patience = patience(controller);
    let accepts = controller.orders.accepts_at(now);
    Goal {
        // The operator who abandoned records of retired shards did not see other losses.
        accepts_loss: accepts && (controller.given_up.is_empty() || controller.gives_up_all),
        given_up: if accepts { controller.given_up.clone() } else { vec![] },
        lost: lost(controller, now),
        keepers: controller.keepers.clone(),
        replaces: controller.absences.overdue_kinds(now, patience).collect(),
        leaves_sequencers: controller.options.mutates(Mutation::SequencersUnreplaced),
        drains_early: controller.options.mutates(Mutation::DrainedUncopied),
        joins: !controller.is_joining_hard,
        gather_for: controller.rejoin.gather_for(controller.options.limits.attempt_for),
    }
}
