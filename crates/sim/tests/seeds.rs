//! Seeds that failed once, and why. They are tried for ever; what every ordering must pass besides
//! is in `conformance.rs`.
//!
//! A seed stands for something else whenever a kind of fault is added, or its profile is changed.

use seriatim_model::Order::{self, Belfast, Corfu, ErwinBb, ErwinSt, Scalog};
use seriatim_sim::profiles::{self, Profile};
use seriatim_sim::run::run;

/// Runs some seeds of a profile and demands that no checker objects.
fn clean(profile: Profile, order: Order, seeds: &[u64]) {
    for seed in seeds {
        let outcome = run(profile.plan(*seed, order), false);
        let objections: Vec<String> = outcome.objections.iter().map(ToString::to_string).collect();
        let name = profile.name;
        assert!(objections.is_empty(), "{name}, {order}, seed {seed}: {}", objections.join("\n"));
    }
}

/// The same for any plan of a log, from before nodes had bounds of their own: each means what it
/// meant then.
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
        // A node died after a dismissed replica's store was removed, and before the journal told of
        // it.
        8_002_440, 8_005_379, 8_010_147, 8_014_682, //
        // A start that found no room used up what an orderly end had left.
        11_007_069, //
        // A replica that had been away was alone before it knew how far the log was trimmed.
        13_001_003, //
        // A trim point outlived the rest of a store, and hid what came after an accepted loss.
        20_004_492, //
        // Replicas forgot in a restart that they had been members.
        14_000_986, 14_001_073, 14_001_502, //
        // A leader that had forgotten a session said that it had ended; a follower still took its
        // appends.
        63_008_836, //
        // A leader that had forgotten a session asked again where it ended, and was not answered.
        63_001_671, //
        // A replica that was new did not mend what was damaged before it copied, and then nobody
        // had that any more.
        6_001_214,
    ];
    any_clean(ErwinBb, &seeds);
    // Some of them failed while applications did not mind the order of their appends, which other
    // plans no longer have where no append is tried again.
    let drawn = |seed: &u64| (profiles::ANY.make)(*seed).workload.unordered;
    for seed in seeds.into_iter().filter(drawn) {
        let mut plan = profiles::ANY.plan(seed, ErwinBb);
        plan.workload.unordered = true;
        assert!(run(plan, false).objections.is_empty(), "seed {seed}, in any order");
    }
    // A copy that stood before a gap did not get what lay behind it; nobody was complete ever
    // again.
    clean(profiles::ACCEPTED_LOSSES, ErwinBb, &[5, 2_000_175, 2_017_743]);
}

#[test]
fn seeds_of_erwin_st_that_failed_once_are_clean() {
    let seeds = [
        // An append that was acknowledged by name only stayed so when a later one was located.
        108,
        133, //
        // A subscription went on with what lay before an accepted loss.
        30,
        215,
        399, //
        // The names of one view counted with the records of the next.
        100_058, //
        // A backup did not obey a primary that had what an attempt that died had given up.
        101_559,
        103_237, //
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
        65_008_155, //
        // A client whose session was forgotten put a record again and again, and asked nobody who
        // would say so.
        97_000_210,
        97_003_604, //
        // A client took the word of one member that had forgotten its session for its end; another
        // member took appends.
        1_900_004_657,
    ];
    any_clean(ErwinSt, &seeds);
    // A log counted as given up while a view was flushed whose batches had been lost together, and
    // were sent again one by one.
    clean(profiles::ANY, ErwinSt, &[26_205_087]);
    // A table was full of sessions that had been opened at tails which the log had not reached: it
    // took no other.
    clean(profiles::MANY_SESSIONS, ErwinSt, &[1452]);
    // A view change waited for records that came one by one, with a pause after each.
    clean(profiles::OVERLOAD_CRASH, ErwinSt, &[71_000_214, 71_000_566]);
    // A node that was left out kept records that nobody counts any more, and with them all its
    // segments.
    clean(profiles::SMALL_DISKS, ErwinSt, &[30_000_029, 30_100_078]);
    // An operator accepted a loss while the only node with a shard's records was suspected for a
    // moment. The view lost these records.
    clean(profiles::RESHAPED_LOSSES, ErwinSt, &[520_262]);
}

#[test]
fn seeds_of_corfu_that_failed_once_are_clean() {
    let seeds = [
        // A primary that was away knew more to be final than the view that wrote it anew: it took
        // the old versions for valid when it was back without its memory.
        1425, //
        // A late question for a flush was answered with a claim that was not durable yet.
        7_007_997, //
        // Records that the replicas of one shard still knew were given up with another shard.
        3560, //
        // Replicas of two shards could not read what they were to flush, and took turns together.
        880_008_697, //
        // A view wrote anew from below what one replica had trimmed: it wrote junk there, and a
        // replica that was new gave it out.
        80_005_545, //
        // The controller that said that the log is unavailable restarted, and no other took that
        // back.
        930_007_152,
    ];
    any_clean(Corfu, &seeds);
    // A view wrote anew what was final and read; all memory was lost before anybody heard of it,
    // and that counted as missing.
    clean(profiles::ANY, Corfu, &[26_106_486]);
    // Records were damaged on the primary, and a backup had missed that they are final: in a quiet
    // log it never learned it.
    clean(profiles::ANY, Corfu, &[28_000_078]);
    // The next view began below the tail that a session was opened at, and gave it positions there.
    clean(profiles::RESUMED, Corfu, &[206]);
    // A sequencer took itself for late by seconds, and with it everybody whose connection had
    // closed.
    clean(profiles::MANY_SESSIONS, Corfu, &[61_001]);
    // A client kept back what had a position because a disk was behind: it was overdue, and was
    // filled.
    clean(profiles::TWO_LOGS, Corfu, &[70_000_079]);
    // An operator waited for a node that paused, and a primary which had answered lost power: it
    // did not know any more how much is stable, and a checker took it for one that never had.
    clean(profiles::ABSENT_PRIMARIES, Corfu, &[30_000_006]);
}

#[test]
fn seeds_of_belfast_that_failed_once_are_clean() {
    // A shard was retired whose last replica had a damaged record, and asked nobody else for it.
    clean(profiles::ANY, Belfast, &[28_002_062]);
    // A node with a replica of a retired shard was to leave: nobody else gets what that has.
    clean(profiles::DEPARTURES, Belfast, &[30_000_034]);
    // A replica of a retired shard copied records when it was retired, and then asked for no cuts
    // that it had missed.
    clean(profiles::DEPARTURES, Belfast, &[57]);
    // The only whole replica lost its disk before the view was registered that counted on it; its
    // shard was retired in the next one, and nobody was there to give up what it had.
    clean(profiles::ANY, Belfast, &[28_004_106]);
}

#[test]
fn seeds_of_scalog_that_failed_once_are_clean() {
    let seeds = [
        // An acknowledged append was repeated after an accepted loss, and was judged by where it
        // was the second time.
        6_001_742, //
        // A replica that restarted between a flush and its view took what was flushed for lacking.
        276, //
        // A new view's leader spoke before a replica knew the view: that left a hole in what the
        // replica gives out.
        370, //
        // A replica that was away learned late of a view after which there was another one, and
        // took itself for a member.
        1_010_613, //
        // A cut that completed a view was taken for one of the next view's local log.
        13_065, //
        // A backup that was sent the same again and the primary that was told so did not stop.
        420, //
        // One disk was damaged, another replica lost its memory, and the third was left out of a
        // view: nobody else had the record, and a subscription ended with that.
        201_459, //
        // A loss was accepted of one shard, and a checker took it for one of what another shard had
        // given out.
        210_004_791,
    ];
    any_clean(Scalog, &seeds);
    // A member that had forgotten a session meanwhile, and was asked again where it is frozen, said
    // another number.
    clean(profiles::ANY, ErwinSt, &[2_000_003_706]);
    // All nodes were ended and started while one had claimed: its claim was left alone although
    // nobody worked at it.
    clean(profiles::ANY, Scalog, &[1_900_012_927]);
    // A record that a closing cut had covered went with the memory of two nodes; its client
    // appended it again.
    clean(profiles::ANY, Scalog, &[2_000_000_693]);
    // Replicas that went by a view with another placement gave out less than one of them had
    // predicted, and that was confirmed.
    clean(profiles::ANY, ErwinBb, &[2_000_003_878]);
    // A controller that did not hear the nodes which were needed claimed again before it was
    // another's turn.
    clean(profiles::LOST_FOR_GOOD, Scalog, &[30_000_217]);
}

/// A record is whole nowhere but on a replica that stood in for another one, and that the next view
/// does without.
#[test]
fn a_whole_copy_outside_the_view_is_asked_for() {
    clean(profiles::MENDING, ErwinBb, &[99, 106, 186]);
    clean(profiles::MENDING, Corfu, &[182, 185]);
}

#[test]
fn faults_on_nodes_that_take_their_time_are_borne() {
    // Each view left out a node that took more than 200 ms to answer, and the next one took it back
    // and left out another.
    clean(profiles::TAKING_TIME, ErwinBb, &[229]);
    clean(profiles::TAKING_TIME, Scalog, &[229]);
    // The answer about the position of a no-op did not name the no-ops before it, and these passed
    // for appended.
    clean(profiles::TAKING_TIME, ErwinSt, &[700_018_366]);
    // Clients sent everything again from a gap on, for each message that had come behind it.
    clean(profiles::TAKING_TIME, ErwinBb, &[700_000_924]);
    // The range that a replica lacked began with a gap after a trim, and the replica asked for that
    // for ever.
    clean(profiles::TAKING_TIME, ErwinBb, &[910_002_752]);
    // A shard was blamed for what it had said before a view gave it places that another had had,
    // all trimmed.
    clean(profiles::TAKING_TIME, ErwinBb, &[700_011_473]);
    // Replicas asked the leader about the same orphans without a pause, and its answers kept all
    // else from them.
    clean(profiles::TAKING_TIME, ErwinSt, &[1_500_010_256]);
    // A member that a later claim had sealed confirmed something in the view that it heard of late.
    clean(profiles::TAKING_TIME, Scalog, &[1_400_007_224]);
}

#[test]
fn load_that_was_too_much_once_is_borne() {
    // Positions were filled a while after they were given out, whatever their clients were doing.
    clean(profiles::SLOW_CLIENTS, Corfu, &[12, 13, 21, 23]);
    // Each replica that was taken back cost another its place, which asked its own node's
    // controller to undo that.
    clean(profiles::LONG_VIEW_CHANGE, Corfu, &[22, 23]);
    // Names were ordered without a bound for what the slow disk had to write for them.
    clean(profiles::OVERLOAD_SLOW_DISK, ErwinSt, &[8, 20, 31]);
}
