//! A returning node waits for the others, and discards its state if its disk was set back.

use seriatim_host::{Cause, Host, Liveness};
use seriatim_model::{Durability, Endpoint};
use seriatim_protocol::control;
use seriatim_store::MemoryDisk;

use crate::common::{
    OTHER, SHARD, THIRD, cluster, fence, incarnation, liveness, open, with_replica, write_all,
};

fn takes_part(host: &mut Host, disk: &MemoryDisk, claim: u64) -> bool {
    has_answered(host);
    fence(host, Durability::Disk, claim);
    write_all(host, disk);
    has_answered(host)
}

/// Whether the replica sent anything since the last call.
fn has_answered(host: &mut Host) -> bool {
    host.take_sends().iter().any(|sent| sent.from == Endpoint::Shard(SHARD))
}

fn killed_with_replica() -> MemoryDisk {
    with_replica(Durability::Disk).1
}

#[test]
fn a_node_that_comes_back_takes_part_when_all_others_were_heard_or_are_suspected() {
    let disk = killed_with_replica();
    let mut host = open(&disk);
    assert!(!takes_part(&mut host, &disk, 2), "the register has not told who there is");
    cluster(&mut host);
    liveness(&mut host, Liveness::Told(OTHER));
    assert!(!takes_part(&mut host, &disk, 2), "the third may remember something");
    let unwell = Cause::Unwell(control::Ailment::DiskStalled);
    liveness(&mut host, Liveness::Suspected(THIRD, unwell));
    assert!(!takes_part(&mut host, &disk, 2), "it is there, and says what it remembers in a moment");
    liveness(&mut host, Liveness::Suspected(THIRD, Cause::Closed));
    assert!(takes_part(&mut host, &disk, 2));
}

#[test]
fn a_start_that_is_cut_short_writes_nothing_that_would_hide_how_little_there_was() {
    let disk = killed_with_replica();
    let began = open(&disk).mark();
    for _ in 0..3 {
        let mut host = open(&disk);
        cluster(&mut host);
        write_all(&mut host, &disk);
        assert!(!takes_part(&mut host, &disk, 2));
    }
    assert_eq!(format!("{:?}", open(&disk).mark()), format!("{began:?}"));
}

#[test]
fn a_disk_that_was_set_back_holds_nothing_that_counts() {
    let disk = killed_with_replica();
    let before = incarnation(&open(&disk)).unwrap();
    let mut host = open(&disk);
    cluster(&mut host);
    liveness(&mut host, Liveness::SetBack(OTHER));
    for node in [OTHER, THIRD] {
        liveness(&mut host, Liveness::Told(node));
    }
    assert_eq!(incarnation(&host), None);
    assert!(host.problems().iter().any(|problem| problem.cause.contains("set back")));
    fence(&mut host, Durability::Disk, 2);
    assert!(!has_answered(&mut host), "not before the journal says so");
    write_all(&mut host, &disk);
    assert!(has_answered(&mut host), "what nodes said meanwhile is heard then");
    let after = incarnation(&host).unwrap();
    assert_ne!(before, after);
    drop(host);
    // The new incarnation stays, also with the later checkpoint.
    assert_eq!(incarnation(&open(&disk)), Some(after));
}

#[test]
fn a_node_that_is_told_too_late_ends_and_has_forgotten_its_replicas_at_the_next_start() {
    let disk = killed_with_replica();
    let mut host = open(&disk);
    cluster(&mut host);
    for node in [OTHER, THIRD] {
        liveness(&mut host, Liveness::Told(node));
    }
    assert!(takes_part(&mut host, &disk, 2));
    liveness(&mut host, Liveness::SetBack(THIRD));
    assert_eq!(host.failure(), None, "the journal has to say so first");
    write_all(&mut host, &disk);
    assert!(host.failure().is_some_and(|cause| cause.contains("Start the node again")));
    drop(host);
    assert_eq!(incarnation(&open(&disk)), None);
}
