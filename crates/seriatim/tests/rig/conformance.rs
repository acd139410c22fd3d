//! Scenarios for a log of each ordering with real processes, in sequence. All orderings of
//! [`Order::ALL`] run; a scenario that excludes some names the property that they lack, and the
//! reason.
//!
//! Scenarios with logs of all orderings in one cluster are in [`serve`], [`kill`](crate::kill),
//! [`failover`](crate::failover), [`departures`](crate::departures) and [`disks`](crate::disks).

use std::time::Duration;

use seriatim_client::Order;

use crate::{acceptance, bridge, chosen_shards, losses, serve, shards};

/// A required property, and why the scenario needs it.
type Need = (fn(Order) -> bool, &'static str);

/// A test per scenario: seconds per ordering, and required properties.
macro_rules! scenarios {
    ($($name:ident: $scenario:path, $seconds:literal $(, needs $property:expr, $why:literal)?;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for order in takes_part(&[$(($property, $why))?]) {
                let outcome = tokio::time::timeout(Duration::from_secs($seconds), $scenario(order)).await;
                assert!(outcome.is_ok(), "{order}: it does not come to an end");
            }
        }
    )*};
}

/// Returns the orderings with every required property; prints the others with the reason.
#[expect(clippy::print_stderr, reason = "what is not tried is no secret")]
fn takes_part(needs: &[Need]) -> Vec<Order> {
    let mut orders = Order::ALL.to_vec();
    for (is_met, why) in needs {
        orders.retain(|order| {
            let takes_part = is_met(*order);
            if !takes_part {
                eprintln!("not for {order}: {why}");
            }
            takes_part
        });
    }
    assert!(!orders.is_empty(), "no ordering is in it");
    orders
}

scenarios! {
    a_file_comes_back_as_it_went_in_through_kills_and_trims: acceptance::accept, 120;
    a_program_that_kept_its_first_session_goes_on_however_often_it_is_restarted:
        acceptance::goes_on_from_its_first_session, 60;
    a_program_that_lives_on_is_shut_out_by_the_one_that_goes_on_with_its_session:
        acceptance::shuts_out_an_earlier_run, 60, needs |order| !order.properties().continues_sessions,
        "a later run continues with the session itself";
    an_interrupted_append_goes_on: bridge::interrupted, 120;
    a_log_in_memory_is_unavailable_after_a_kill_and_keeps_what_is_final: losses::lose_memory, 120;
    a_shard_that_was_added_keeps_what_is_final_when_all_is_killed: losses::keep_an_added_shard, 60;
    what_follows_an_accepted_loss_is_kept_when_all_is_killed: losses::keep_what_follows_a_loss, 60;
    readers_beyond_an_accepted_loss_are_told_so: losses::end_readers_beyond_a_loss, 60;
    a_log_goes_on_through_segments_and_kills_and_keeps_every_position: serve::keeps_positions_through_segments, 200,
        needs |order| !order.is_lazy(), "an append is acknowledged without a position";
    subscriptions_to_chosen_shards_miss_nothing_while_shards_join: chosen_shards::read_while_others_join, 90;
    shards_join_and_leave_under_load: shards::change_shards_of, 150;
    shards_are_changed_many_times_in_a_row: shards::change_shards_in_a_row, 100;
    a_log_goes_on_without_a_shard_all_of_whose_nodes_are_killed: shards::lose_a_shard_of, 150,
        needs |order| order.has_quotas(), "it waits for the shard";
    what_a_shard_had_that_is_lost_for_good_is_given_up: shards::give_up_a_shard_of, 150,
        needs |order| order.has_quotas(), "it waits for the shard";
}
