//! The aims of the next attempt, beyond a view.

use seriatim_model::Time;

use super::Controller;
use super::copies::lost;
use crate::control::attempt::Goal;
use crate::mutation::Mutation;

/// The aims of an attempt that begins now.
pub(super) fn goal(controller: &Controller, now: Time) -> Goal {
    let short =
        controller.short_since.is_some_and(|since| now >= since + controller.options.limits.replace_after);
    let accepts = controller.orders.accepts_at(now);
    Goal {
        // Of other losses the operator who gives up what retired shards had was not told.
        accepts_loss: accepts && (controller.given_up.is_empty() || controller.gives_up_all),
        given_up: if accepts { controller.given_up.clone() } else { vec![] },
        lost: lost(controller, now),
        keepers: controller.keepers.clone(),
        replaces: short,
        leaves_sequencers: controller.options.mutates(Mutation::SequencersUnreplaced),
        drains_early: controller.options.mutates(Mutation::DrainedUncopied),
        joins: !controller.is_joining_hard,
        gather_for: controller.rejoin.gather_for(controller.options.limits.attempt_for),
    }
}
