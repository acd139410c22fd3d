//! More load than there is capacity: nodes that are busy, disks and links that are slow, and nothing more.

use seriatim_model::Order;
use seriatim_sim::plan::Plan;
use seriatim_sim::profiles;
use seriatim_sim::run::run;

/// Demands that no checker objects to some seeds of a profile.
fn all_clean(name: &str, profile: fn(u64) -> Plan, orders: &[Order], seeds: std::ops::Range<u64>) {
    for order in orders {
        for seed in seeds.clone() {
            let outcome = run(profile(seed).ordered(*order), false);
            let objections: Vec<String> = outcome.objections.iter().map(ToString::to_string).collect();
            assert!(objections.is_empty(), "{name}, {order}, seed {seed}: {}", objections.join("\n"));
        }
    }
}

#[test]
fn a_busy_cluster_is_a_well_one() {
    all_clean("within capacity", profiles::within_capacity, &Order::ALL, 0..6);
}

#[test]
fn faults_strike_nodes_that_take_their_time() {
    all_clean("taking time", profiles::taking_time, &Order::ALL, 0..60);
    // Each view left out a node that took more than 200 ms to answer, and the next one took it back and left out another.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinBb, Order::Scalog], 229..230);
    // The answer about the position of a no-op did not name the no-ops before it, and these passed for appended.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinSt], 700_018_366..700_018_367);
    // Clients sent everything again from a gap on, for each message that had come behind it.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinBb], 700_000_924..700_000_925);
    // The range that a replica lacked began with a gap after a trim, and the replica asked for that for ever.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinBb], 910_002_752..910_002_753);
    // A shard was blamed for what it had said before a view gave it places that another had had, all trimmed.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinBb], 700_011_473..700_011_474);
    // Replicas asked the leader about the same orphans without a pause, and its answers kept all else from them.
    all_clean("taking time", profiles::taking_time, &[Order::ErwinSt], 1_500_010_256..1_500_010_257);
    // A member that a later claim had sealed confirmed something in the view that it heard of late.
    all_clean("taking time", profiles::taking_time, &[Order::Scalog], 1_400_007_224..1_400_007_225);
}

#[test]
fn more_than_a_cluster_can_do_slows_it_down_and_that_is_all() {
    all_clean("overload", profiles::overload, &Order::ALL, 0..3);
    all_clean("burst", profiles::burst, &Order::ALL, 0..3);
    all_clean("overload and resets", profiles::overload_resets, &Order::ALL, 0..3);
    all_clean("large records", profiles::large_records, &Order::ALL, 0..3);
}

#[test]
fn a_slow_client_is_waited_for() {
    all_clean("slow clients", profiles::slow_clients, &Order::ALL, 0..6);
    // Positions were filled a while after they were given out, whatever their clients were doing.
    for seed in [12, 13, 21, 23] {
        all_clean("slow clients", profiles::slow_clients, &[Order::Corfu], seed..seed + 1);
    }
}

#[test]
fn a_node_that_dies_fails_no_append() {
    // Positions that were given out, and whose records were on their way, were filled when the view changed.
    all_clean("a death amid writes", profiles::death_amid_writes, &Order::ALL, 0..4);
}

#[test]
fn a_session_does_not_wait_for_one_shard_after_the_other() {
    all_clean("one session", profiles::one_session, &Order::ALL, 0..4);
}

#[test]
fn a_long_log_makes_no_step_long() {
    all_clean("a long log", profiles::long_log, &Order::ALL, 0..2);
}

#[test]
fn a_log_that_is_asked_for_too_much_is_not_felt_by_another() {
    all_clean("two logs", profiles::two_logs, &Order::ALL, 0..4);
}

#[test]
fn a_node_that_only_beats_is_done_without() {
    all_clean("mute", profiles::mute, &Order::ALL, 0..6);
}

#[test]
fn an_overloaded_cluster_outlives_a_node() {
    all_clean("overload and a crash", profiles::overload_crash, &Order::ALL, 0..3);
    all_clean("a long view change", profiles::long_view_change, &Order::ALL, 0..2);
    // Each replica that was taken back cost another its place, which asked its own node's controller to undo that.
    all_clean("a long view change", profiles::long_view_change, &[Order::Corfu], 22..24);
}

#[test]
fn an_overloaded_cluster_goes_at_the_pace_of_its_slowest_disk() {
    all_clean("overload and a slow disk", profiles::overload_slow_disk, &Order::ALL, 0..3);
    // Names were ordered without a bound for what the slow disk had to write for them.
    for seed in [8, 20, 31] {
        all_clean(
            "overload and a slow disk",
            profiles::overload_slow_disk,
            &[Order::ErwinSt],
            seed..seed + 1,
        );
    }
}

#[test]
fn the_same_seed_is_the_same_run_under_load() {
    let [once, again] = [(); 2].map(|()| run(profiles::within_capacity(1), false));
    assert_eq!(once.hash, again.hash);
    assert_ne!(once.hash, run(profiles::within_capacity(2), false).hash);
}
