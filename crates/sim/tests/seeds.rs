//! Seeds that failed once, and why. They stay here; `conformance.rs` checks every ordering.
//!
//! A seed means another run after a change of the faults or of its profile.

use seriatim_model::Order::{self, Belfast, Corfu, ErwinBb, ErwinSt, Scalog};
use seriatim_sim::profiles::{self, Profile};
use seriatim_sim::run::run;

fn clean(profile: Profile, order: Order, seeds: &[u64]) {
    for seed in seeds {
        let outcome = run(profile.plan(*seed, order), false);
        let objections: Vec<String> = outcome.objections.iter().map(ToString::to_string).collect();
        let name = profile.name;
        assert!(objections.is_empty(), "{name}, {order}, seed {seed}: {}", objections.join("\n"));
    }
}

/// The seeds date from before nodes had their own limits, and must still mean the same.
fn any_clean(order: Order, seeds: &[u64]) {
    for seed in seeds {
        let plan = profiles::ANY.plan(*seed, order);
        let differs = plan.nodes_differ || plan.lasts_long;
        assert!(!differs, "{order}, seed {seed} means something else now");
    }
    clean(profiles::ANY, order, seeds);
}

#[test]
fn seeds_of_erwin_bb_that_failed_once_are_clean() {
    let seeds = [
        // A node died between the removal of a dismissed replica's store and its journal entry.
        8_002_440, 8_005_379, 8_010_147, 8_014_682, //
        // A start without disk space used up the state left by an orderly stop.
        11_007_069, //
        // A returning replica was alone before it knew the trim point.
        13_001_003, //
        // A trim point outlived its store, and hid records after an accepted loss.
        20_004_492, //
        // Restarted replicas forgot that they had been members.
        14_000_986, 14_001_073, 14_001_502, //
        // A leader reported the end of a forgotten session; a follower still accepted its appends.
        63_008_836, //
        // A leader asked again for a forgotten session's end, without an answer.
        63_001_671, //
        // A new replica copied before it repaired damaged records, which then no replica had.
        6_001_214,
    ];
    any_clean(ErwinBb, &seeds);
    // Some failed with unordered appends, which plans without retries no longer have.
    let drawn = |seed: &u64| (profiles::ANY.make)(*seed).workload.unordered;
    for seed in seeds.into_iter().filter(drawn) {
        let mut plan = profiles::ANY.plan(seed, ErwinBb);
        plan.workload.unordered = true;
        assert!(run(plan, false).objections.is_empty(), "seed {seed}, in any order");
    }
    // A copy before a gap did not get the records behind it; no replica became complete again.
    clean(profiles::ACCEPTED_LOSSES, ErwinBb, &[5, 2_000_175, 2_017_743]);
}

#[test]
fn seeds_of_erwin_st_that_failed_once_are_clean() {
    let seeds = [
        // An append acknowledged by name had no position until a later one was located.
        108,
        133, //
        // A subscription resumed with records before an accepted loss.
        30,
        215,
        399, //
        // The names of one view counted with the records of the next.
        100_058, //
        // A backup did not obey a primary with records abandoned by an interrupted attempt.
        101_559,
        103_237, //
        // A backup asked only its primary, whose copy was damaged.
        104_298, //
        // A session opened far above the final positions counted as ended before its first append.
        78_360, //
        // A follower confirmed an unknown session's end without keeping it.
        62_003_873, //
        // A leader kept an ended session for longer than the shards relied on.
        65_002_483, //
        // A follower kept a forgotten session's end at 0.
        60_002_679, //
        // An order was answered as before its failed write, without its no-op.
        62_008_269, //
        // A put of a void record was acknowledged after its mark as void was forgotten.
        65_008_155, //
        // A client with a forgotten session repeated a put, and asked no replica that would report
        // it.
        97_000_210,
        97_003_604, //
        // A client accepted a session's end from a member that had forgotten the session; another
        // member accepted appends.
        1_900_004_657,
    ];
    any_clean(ErwinSt, &seeds);
    // A log counted as abandoned while a flush sent lost batches again one by one.
    clean(profiles::ANY, ErwinSt, &[26_205_087]);
    // Sessions opened at tails above the log filled a table, which rejected others.
    clean(profiles::MANY_SESSIONS, ErwinSt, &[1452]);
    // A view change waited for single records, with a pause after each.
    clean(profiles::OVERLOAD_CRASH, ErwinSt, &[71_000_214, 71_000_566]);
    // An excluded node kept records that no longer count, and so all segments.
    clean(profiles::SMALL_DISKS, ErwinSt, &[30_000_029, 30_100_078]);
    // An operator accepted a loss while the only node with a shard's records was suspected. The
    // view lost them.
    clean(profiles::RESHAPED_LOSSES, ErwinSt, &[520_262]);
}

#[test]
fn seeds_of_corfu_that_failed_once_are_clean() {
    let seeds = [
        // A primary returned without its memory: it took rewritten versions of final records for
        // valid.
        1425, //
        // A late question for a flush was answered with a claim that was not durable yet.
        7_007_997, //
        // Records of one shard, still on its replicas, were abandoned with another shard.
        3560, //
        // Replicas of two shards could not read records to flush, and took turns together.
        880_008_697, //
        // A view rewrote positions below one replica's trim point as junk, and a new replica served
        // it.
        80_005_545, //
        // A controller that reported a log unavailable restarted, and no other withdrew the report.
        930_007_152,
    ];
    any_clean(Corfu, &seeds);
    // A view rewrote final records; all memory was lost before the news spread, and they counted as
    // missing.
    clean(profiles::ANY, Corfu, &[26_106_486]);
    // Records were damaged on the primary; a backup of the quiet log never learned that they are
    // final.
    clean(profiles::ANY, Corfu, &[28_000_078]);
    // The next view began below the tail of a new session, and gave it positions there.
    clean(profiles::RESUMED, Corfu, &[206]);
    // A sequencer considered itself seconds late, and so all clients with closed connections.
    clean(profiles::MANY_SESSIONS, Corfu, &[61_001]);
    // A client deferred a positioned record because a disk was behind: the position was filled.
    clean(profiles::TWO_LOGS, Corfu, &[70_000_079]);
    // An operator waited for a paused node, and a primary that had answered lost power and its
    // stable bound: a checker counted it as silent.
    clean(profiles::ABSENT_PRIMARIES, Corfu, &[30_000_006]);
}

#[test]
fn seeds_of_belfast_that_failed_once_are_clean() {
    // A retired shard's last replica had a damaged record, and asked no other for it.
    clean(profiles::ANY, Belfast, &[28_002_062]);
    // A node with a replica of a retired shard had to leave: no other got its records.
    clean(profiles::DEPARTURES, Belfast, &[30_000_034]);
    // A replica of a retired shard was copying at the retirement, and later asked for no cuts.
    clean(profiles::DEPARTURES, Belfast, &[57]);
    // The only complete replica lost its disk before its view was registered. The next view retired
    // the shard, and no replica was left to give up its records.
    clean(profiles::ANY, Belfast, &[28_004_106]);
}

#[test]
fn seeds_of_scalog_that_failed_once_are_clean() {
    let seeds = [
        // An acknowledged append was repeated after an accepted loss, and judged by its second
        // position.
        6_001_742, //
        // A replica restarted between a flush and its view, and counted flushed records as missing.
        276, //
        // A new view's leader sent messages before a replica knew the view, which left a hole in
        // the replica's answers.
        370, //
        // An absent replica learned late of a superseded view, and took itself for a member.
        1_010_613, //
        // A cut that completed a view counted for the next view's local log.
        13_065, //
        // A backup and its primary repeated the same messages forever.
        420, //
        // One disk was damaged, another replica lost its memory, and a view excluded the third: a
        // subscription ended.
        201_459, //
        // A checker took one shard's accepted loss for a loss of another's records.
        210_004_791,
    ];
    any_clean(Scalog, &seeds);
    // A member forgot a session, and when asked again reported another number of its freeze.
    clean(profiles::ANY, ErwinSt, &[2_000_003_706]);
    // All nodes restarted while one had a claim, which stayed although no controller worked on it.
    clean(profiles::ANY, Scalog, &[1_900_012_927]);
    // A record covered by a closing cut was lost with two nodes' memory; its client appended it
    // again.
    clean(profiles::ANY, Scalog, &[2_000_000_693]);
    // Replicas of a view with another placement served less than one of them had predicted, and
    // that was confirmed.
    clean(profiles::ANY, ErwinBb, &[2_000_003_878]);
    // A controller that did not hear required nodes claimed again before another's turn.
    clean(profiles::LOST_FOR_GOOD, Scalog, &[30_000_217]);
}

/// The only complete copy of a record is on a stand-in, which the next view excludes.
#[test]
fn a_whole_copy_outside_the_view_is_asked_for() {
    clean(profiles::MENDING, ErwinBb, &[99, 106, 186]);
    clean(profiles::MENDING, Corfu, &[182, 185]);
}

#[test]
fn faults_on_nodes_that_take_their_time_are_borne() {
    // Each view excluded a node slower than 200 ms, and the next took it back and excluded another.
    clean(profiles::TAKING_TIME, ErwinBb, &[229]);
    clean(profiles::TAKING_TIME, Scalog, &[229]);
    // The answer about a no-op's position did not name the no-ops before it, which counted as
    // appended.
    clean(profiles::TAKING_TIME, ErwinSt, &[700_018_366]);
    // Clients resent everything behind a gap, for each later message.
    clean(profiles::TAKING_TIME, ErwinBb, &[700_000_924]);
    // A replica's missing range began with a gap after a trim: the replica asked for it forever.
    clean(profiles::TAKING_TIME, ErwinBb, &[910_002_752]);
    // A shard was blamed for reports from before a view gave it another shard's trimmed places.
    clean(profiles::TAKING_TIME, ErwinBb, &[700_011_473]);
    // Replicas asked the leader about the same orphans without a pause; its answers displaced other
    // messages.
    clean(profiles::TAKING_TIME, ErwinSt, &[1_500_010_256]);
    // A member sealed by a later claim confirmed records in a view that it heard of late.
    clean(profiles::TAKING_TIME, Scalog, &[1_400_007_224]);
}

#[test]
fn load_that_was_too_much_once_is_borne() {
    // Positions were filled a fixed time after they were given out, even with active clients.
    clean(profiles::SLOW_CLIENTS, Corfu, &[12, 13, 21, 23]);
    // Each replica taken back displaced another, which asked its own controller to undo that.
    clean(profiles::LONG_VIEW_CHANGE, Corfu, &[22, 23]);
    // Names were ordered without a limit for the slow disk's resulting writes.
    clean(profiles::OVERLOAD_SLOW_DISK, ErwinSt, &[8, 20, 31]);
}
