//! Fixed seeds, with all faults; and that a seed is all that a run depends on.

use seriatim_model::Order;
use seriatim_sim::plan::Plan;
use seriatim_sim::profiles;
use seriatim_sim::run::run;

/// Runs the plans of some seeds and demands that no checker objects.
///
/// A single seed is one that failed once, before nodes had bounds of their own: it means what it meant then.
fn all_clean(name: &str, plan: impl Fn(u64) -> Plan, seeds: std::ops::Range<u64>) {
    let failed_once = seeds.end - seeds.start == 1;
    for seed in seeds {
        let plan = plan(seed);
        let differs = plan.nodes_differ || plan.lasts_long;
        assert!(!(failed_once && differs), "{name}, seed {seed} means something else now");
        let outcome = run(plan, false);
        let objections: Vec<String> = outcome.objections.iter().map(ToString::to_string).collect();
        assert!(objections.is_empty(), "{name}, seed {seed}: {}", objections.join("\n"));
    }
}

#[test]
fn fixed_seeds_with_all_faults_are_clean() {
    all_clean("all faults", Plan::from_seed, 0..200);
}

/// Seeds that failed once, and why. A seed stands for something else whenever a kind of fault is added.
#[test]
fn seeds_that_failed_once_are_clean() {
    let seeds = [
        // A node died after a dismissed replica's store was removed, and before the journal told of it.
        8_002_440, 8_005_379, 8_010_147, 8_014_682, //
        // A start that found no room used up what an orderly end had left.
        11_007_069, //
        // A replica that had been away was alone before it knew how far the log was trimmed.
        13_001_003, //
        // A trim point outlived the rest of a store, and hid what came after an accepted loss.
        20_004_492, //
        // Replicas forgot in a restart that they had been members.
        14_000_986, 14_001_073, 14_001_502, //
        // A leader that had forgotten a session said that it had ended; a follower still took its appends.
        63_008_836, //
        // A leader that had forgotten a session asked again where it ended, and was not answered.
        63_001_671, //
        // A replica that was new did not mend what was damaged before it copied, and then nobody had that any more.
        6_001_214,
    ];
    for seed in seeds {
        all_clean("all faults", Plan::from_seed, seed..seed + 1);
    }
    all_clean("many sessions", profiles::many_sessions, 0..20);
    // A copy that stood before a gap did not get what lay behind it; nobody was complete ever again.
    for seed in [5, 2_000_175, 2_017_743] {
        all_clean("accepted losses", profiles::accepted_losses, seed..seed + 1);
    }
}

/// The plan of a seed, for a log whose clients put records on shards themselves.
fn st(seed: u64) -> Plan {
    Plan::from_seed(seed).ordered(Order::ErwinSt)
}

#[test]
fn fixed_seeds_of_corfu_with_all_faults_are_clean() {
    all_clean("shut out", profiles::shut_out, 0..20);
    all_clean("resumed, and accepted losses", profiles::resumed_losses, 0..40);
    // The next view began below the tail that a session was opened at, and gave it positions there.
    let corfu = |seed| profiles::resumed(seed).ordered(Order::Corfu);
    all_clean("resumed, corfu", corfu, 206..207);
    let of = |profile: fn(u64) -> Plan| move |seed| profile(seed).ordered(Order::Corfu);
    all_clean("all faults, corfu", of(Plan::from_seed), 0..150);
    all_clean("chains", profiles::chains, 0..20);
    all_clean("accepted losses, corfu", of(profiles::accepted_losses), 0..20);
    all_clean("copies, corfu", of(profiles::copies), 0..20);
    all_clean("reshaped, corfu", of(profiles::reshaped), 0..20);
    all_clean("many sessions, corfu", of(profiles::many_sessions), 0..20);
    // A sequencer took itself for late by seconds, and with it everybody whose connection had closed.
    all_clean("many sessions, corfu", of(profiles::many_sessions), 61_001..61_002);
    // A primary that was away knew more to be final than the view that wrote it anew: it took the old versions for
    // valid when it was back without its memory.
    all_clean("all faults, corfu", of(Plan::from_seed), 1425..1426);
    // A late question for a flush was answered with a claim that was not durable yet.
    all_clean("all faults, corfu", of(Plan::from_seed), 7_007_997..7_007_998);
    // Records that the replicas of one shard still knew were given up with another shard.
    all_clean("all faults, corfu", of(Plan::from_seed), 3560..3561);
    // Replicas of two shards could not read what they were to flush, and took turns together.
    all_clean("all faults, corfu", of(Plan::from_seed), 880_008_697..880_008_698);
    // A client kept back what had a position because a disk was behind: it was overdue, and was filled.
    all_clean("two logs, corfu", of(profiles::two_logs), 70_000_079..70_000_080);
    all_clean("half trimmed", profiles::half_trimmed, 0..20);
    // A view wrote anew from below what one replica had trimmed: it wrote junk there, and a replica that was new gave it out.
    all_clean("all faults, corfu", of(Plan::from_seed), 80_005_545..80_005_546);
    // The controller that said that the log is unavailable restarted, and no other took that back.
    all_clean("all faults, corfu", of(Plan::from_seed), 930_007_152..930_007_153);
}

#[test]
fn fixed_seeds_of_scalog_with_all_faults_are_clean() {
    let of = |profile: fn(u64) -> Plan| move |seed| profile(seed).ordered(Order::Scalog);
    all_clean("all faults, scalog", of(Plan::from_seed), 0..150);
    all_clean("cuts", profiles::cuts, 0..20);
    for (name, profile) in [
        ("accepted losses", profiles::accepted_losses as fn(u64) -> Plan),
        ("copies", profiles::copies),
        ("reshaped", profiles::reshaped),
        ("power losses", profiles::power_losses),
        ("racing controllers", profiles::racing_controllers),
        ("many sessions", profiles::many_sessions),
        ("resumed", profiles::resumed),
    ] {
        all_clean(&format!("{name}, scalog"), of(profile), 0..20);
    }
    // An acknowledged append was repeated after an accepted loss, and was judged by where it was the second time.
    all_clean("all faults, scalog", of(Plan::from_seed), 6_001_742..6_001_743);
    // A replica that restarted between a flush and its view took what was flushed for lacking.
    all_clean("all faults, scalog", of(Plan::from_seed), 276..277);
    // A new view's leader spoke before a replica knew the view: that left a hole in what the replica gives out.
    all_clean("all faults, scalog", of(Plan::from_seed), 370..371);
    // A replica that was away learned late of a view after which there was another one, and took itself for a member.
    all_clean("all faults, scalog", of(Plan::from_seed), 1_010_613..1_010_614);
    // A cut that completed a view was taken for one of the next view's local log.
    all_clean("all faults, scalog", of(Plan::from_seed), 13_065..13_066);
    // A backup that was sent the same again and the primary that was told so did not stop.
    all_clean("all faults, scalog", of(Plan::from_seed), 420..421);
    // One disk was damaged, another replica lost its memory, and the third was left out of a view: nobody else had the
    // record, and a subscription ended with that.
    all_clean("all faults, scalog", of(Plan::from_seed), 201_459..201_460);
    // A loss was accepted of one shard, and a checker took it for one of what another shard had given out.
    all_clean("all faults, scalog", of(Plan::from_seed), 210_004_791..210_004_792);
}

#[test]
fn fixed_seeds_of_erwin_st_with_all_faults_are_clean() {
    all_clean("all faults, erwin-st", st, 0..150);
    all_clean("lost records", profiles::lost_records, 0..20);
    all_clean("lookups", profiles::lookups, 0..20);
    all_clean("orphans", profiles::orphans, 0..20);
    all_clean("resumed", profiles::resumed, 0..20);
    let of = |profile: fn(u64) -> Plan| move |seed| profile(seed).ordered(Order::ErwinSt);
    for (name, profile) in [
        ("churn", profiles::churn as fn(u64) -> Plan),
        ("half seen", profiles::half_seen),
        ("copies", profiles::copies),
        ("power losses", profiles::power_losses),
        ("racing controllers", profiles::racing_controllers),
    ] {
        all_clean(&format!("{name}, erwin-st"), of(profile), 0..5);
    }
    all_clean("many sessions, erwin-st", of(profiles::many_sessions), 0..20);
    // A table was full of sessions that had been opened at tails which the log had not reached: it took no other.
    all_clean("many sessions, erwin-st", of(profiles::many_sessions), 1452..1453);
    // A view change waited for records that came one by one, with a pause after each.
    for seed in [71_000_214, 71_000_566] {
        all_clean("overload and a crash, erwin-st", of(profiles::overload_crash), seed..seed + 1);
    }
}

#[test]
fn seeds_of_erwin_st_that_failed_once_are_clean() {
    let seeds = [
        // An append that was acknowledged by name only stayed so when a later one was located.
        108, 133, //
        // A subscription went on with what lay before an accepted loss.
        30, 215, 399, //
        // The names of one view counted with the records of the next.
        100_058, //
        // A backup did not obey a primary that had what an attempt that died had given up.
        101_559, 103_237, //
        // A backup asked only its primary, whose copy was damaged.
        104_298, //
        // A session opened far above what was final counted as over before number 0 was admitted.
        78_360, //
        // A follower that did not know an old session confirmed its end, and did not keep it.
        62_003_873, //
        // A leader kept a session for longer than the shards relied on, because it had ended.
        65_002_483, //
        // A follower that had forgotten a session kept an end at 0.
        60_002_679, //
        // An order was answered as before its write failed, without the no-op that it had come to.
        62_008_269, //
        // A put of a record that was void was acknowledged when the mark had been forgotten.
        65_008_155,
        // A client whose session was forgotten put a record again and again, and asked nobody who would say so.
        97_000_210, 97_003_604,
    ];
    for seed in seeds {
        all_clean("all faults, erwin-st", st, seed..seed + 1);
    }
    // A client took the word of one member that had forgotten its session for its end; another member took appends.
    all_clean("all faults, erwin-st", st, 1_900_004_657..1_900_004_658);
}

#[test]
fn every_profile_is_clean_without_a_defect() {
    all_clean("quiet", profiles::quiet, 0..10);
    all_clean("churn", profiles::churn, 0..20);
    all_clean("leader cut off", profiles::leader_cut_off, 0..10);
    all_clean("shard restarts", profiles::shard_restarts, 0..10);
    all_clean("dying attempts", profiles::dying_attempts, 0..20);
    all_clean("disorder", profiles::disorder, 0..10);
    all_clean("dying leaders", profiles::dying_leaders, 0..20);
    all_clean("forgetful", profiles::forgetful, 0..10);
    all_clean("half seen", profiles::half_seen, 0..10);
    all_clean("racing controllers", profiles::racing_controllers, 0..20);
    all_clean("absences", profiles::absences, 0..10);
    all_clean("power losses", profiles::power_losses, 0..10);
    all_clean("disk losses", profiles::disk_losses, 0..10);
    all_clean("disks that go back", profiles::set_back, 0..20);
    all_clean("bit rot", profiles::bit_rot, 0..10);
    all_clean("accepted losses", profiles::accepted_losses, 0..5);
    all_clean("trimmed absences", profiles::trimmed_absences, 0..10);
    all_clean("limited", profiles::limited, 0..10);
    all_clean("copies", profiles::copies, 0..10);
}

/// A record is whole nowhere but on a replica that stood in for another one, and that the next view does without.
#[test]
fn a_whole_copy_outside_the_view_is_asked_for() {
    for seed in [99, 106, 186] {
        all_clean("mending", profiles::mending, seed..seed + 1);
    }
    for seed in [182, 185] {
        all_clean("mending, corfu", |seed| profiles::mending(seed).ordered(Order::Corfu), seed..seed + 1);
    }
}

/// A client that is put off by a node which leads no more, and was not told, asks the register.
#[test]
fn clients_and_readers_leave_a_node_that_is_cut_off_from_the_others() {
    for order in Order::ALL {
        let cut_off = |seed| profiles::cut_off(seed).ordered(order);
        all_clean(&format!("cut off, {order}"), cut_off, 0..20);
    }
}

#[test]
fn everything_is_done_without_a_node_that_is_lost_for_good() {
    for order in Order::ALL {
        let lost = |seed| profiles::lost_for_good(seed).ordered(order);
        all_clean(&format!("lost for good, {order}"), lost, 0..16);
    }
    // A controller that did not hear the nodes which were needed claimed again before it was another's turn.
    let lost = |seed| profiles::lost_for_good(seed).ordered(Order::Scalog);
    all_clean("lost for good, unheard by one", lost, 30_000_217..30_000_218);
}

/// Each kind of fault, alone and early.
#[test]
fn parts_of_disks_and_lies_echoes_fleeting_logs_and_the_stores_own_bytes_are_borne() {
    for order in Order::ALL {
        let of = |profile: fn(u64) -> Plan| move |seed| profile(seed).ordered(order);
        all_clean("part losses", of(profiles::part_losses), 0..10);
        all_clean("lying disks", of(profiles::lying_disks), 0..10);
        all_clean("echoes", of(profiles::echoes), 0..5);
        all_clean("own bytes", of(profiles::own_bytes), 0..5);
        all_clean("fleeting logs", of(profiles::fleeting_logs), 0..10);
        all_clean("long faults", of(profiles::long_faults), 0..5);
    }
}

#[test]
fn one_fault_is_borne() {
    let order = |seed: u64| Order::ALL[seed as usize % Order::ALL.len()];
    let one = |seed: u64| profiles::one_fault(seed).ordered(order(seed));
    all_clean("one fault", one, 0..60);
}

#[test]
fn readers_are_told_which_shards_to_ask() {
    for seed in 0..5 {
        let told = run(profiles::lookups(seed), false).coverage.maps;
        assert!(told >= 10, "seed {seed}: {told} answers");
    }
}

#[test]
fn a_seed_run_twice_gives_the_same_run() {
    for seed in [3, 14, 159, 2653] {
        let (once, again) = (run(Plan::from_seed(seed), false), run(Plan::from_seed(seed), false));
        assert_eq!(once.hash, again.hash, "seed {seed}");
        assert_ne!(once.hash, run(Plan::from_seed(seed + 1), false).hash, "seed {seed} and the next");
    }
}

#[test]
fn disks_that_are_small_and_full_again_and_again_are_clean() {
    for order in Order::ALL {
        all_clean("small disks", |seed| profiles::small_disks(seed).ordered(order), 0..4);
    }
}
