//! A replica's store is removed only after the journal records that, and an end is orderly only if
//! everything was written.

use std::sync::Arc;
use std::time::Duration;

use seriatim_host::{Event, Host};
use seriatim_model::{Durability, Endpoint, LogId, Peer, Time, ViewNumber};
use seriatim_protocol as protocol;
use seriatim_protocol::control;
use seriatim_store::{MemoryDisk, ShardStore};

use crate::common::{
    LOG, OTHER, SHARD, config, fence, incarnation, keeps_store, open, others_are_heard, seal, tell,
    with_replica, write_all,
};

fn retire(host: &mut Host, log: LogId) {
    tell(host, Endpoint::Node, control::Message::RemoveLog { log }.into());
}

fn dismiss(host: &mut Host) {
    let message = control::Message::Dismiss { log: LOG, role: Endpoint::Shard(SHARD), view: ViewNumber(1) };
    tell(host, Endpoint::Node, message.into());
}

#[test]
fn a_node_that_dies_before_the_journal_tells_of_a_dismissal_still_has_the_store() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (mut host, disk) = with_replica(durability);
        dismiss(&mut host);
        assert!(host.replica(LOG, SHARD).is_none());
        drop(host);
        let host = open(&disk);
        assert_eq!(host.problems(), []);
        assert!(host.replica(LOG, SHARD).is_some());
    }
}

#[test]
fn records_that_the_journal_knows_nothing_of_outlive_the_node_s_new_replica() {
    for durability in [Durability::Disk, Durability::Memory] {
        let disk = MemoryDisk::new();
        let records = format!("{}/seg-00000001.records", ShardStore::directory(LOG, SHARD));
        disk.put(&records, vec![1; 100_000]);
        let mut host = open(&disk);
        assert_eq!(host.problems().len(), 1);
        assert!(disk.files().contains(&records), "where whoever puts the journal back looks for it");
        fence(&mut host, durability, 1);
        write_all(&mut host, &disk);
        assert!(host.replica(LOG, SHARD).is_some());
        let is_kept = |name: &String| disk.content(name).is_some_and(|content| content == [1; 100_000]);
        let kept: Vec<_> = disk.files().into_iter().filter(is_kept).collect();
        let directory = kept[0].rsplit_once('/').unwrap().0;
        assert!(host.problems()[1].cause.contains(directory), "{:?}", host.problems());
        drop(host);
        // The directory put aside is not taken for a store.
        let host = open(&disk);
        assert_eq!((host.problems(), host.replica(LOG, SHARD).is_some()), (&[][..], true));
        assert!(disk.files().contains(&kept[0]));
    }
}

#[test]
fn a_store_that_may_not_be_read_keeps_its_node_from_starting_and_stays_as_it_is() {
    for durability in [Durability::Disk, Durability::Memory] {
        let (host, disk) = with_replica(durability);
        drop(host);
        let files = disk.files();
        let bindings = format!("{}/seg-00000001.bindings", ShardStore::directory(LOG, SHARD));
        disk.set_unreadable(&bindings, Some(std::io::ErrorKind::PermissionDenied));
        let error = Host::open(config(&disk), Arc::new(disk.clone())).unwrap_err();
        assert!(error.to_string().contains(&bindings), "{error}");
        assert_eq!(disk.files(), files);
        disk.set_unreadable(&bindings, None);
        let host = open(&disk);
        assert_eq!(host.problems(), []);
        assert!(host.replica(LOG, SHARD).is_some());
    }
}

#[test]
fn a_dismissed_replica_leaves_nothing() {
    let (mut host, disk) = with_replica(Durability::Disk);
    dismiss(&mut host);
    write_all(&mut host, &disk);
    assert!(!keeps_store(&disk));
    drop(host);
    assert!(open(&disk).replica(LOG, SHARD).is_none());
}

#[test]
fn a_node_that_dies_between_the_journal_and_the_removal_removes_the_store_when_it_is_back() {
    let (mut host, disk) = with_replica(Durability::Disk);
    dismiss(&mut host);
    host.next_journal_write(Time::ZERO).unwrap().perform(&disk).unwrap();
    drop(host);
    assert!(keeps_store(&disk));
    assert!(open(&disk).replica(LOG, SHARD).is_none());
    assert!(!keeps_store(&disk));
}

#[test]
fn a_replica_comes_back_only_when_its_old_store_is_gone() {
    let (mut host, disk) = with_replica(Durability::Disk);
    let before = incarnation(&host);
    dismiss(&mut host);
    fence(&mut host, Durability::Disk, 1);
    assert!(host.replica(LOG, SHARD).is_none(), "the fence comes again");
    write_all(&mut host, &disk);
    fence(&mut host, Durability::Disk, 1);
    write_all(&mut host, &disk);
    let after = incarnation(&host);
    assert_ne!(before, after);
    drop(host);
    let host = open(&disk);
    assert_eq!(host.problems(), []);
    assert_eq!(incarnation(&host), after);
}

#[test]
fn a_new_life_does_not_take_its_predecessors_write_for_its_own() {
    let disk = MemoryDisk::new();
    let mut host = open(&disk);
    let has_sealed = |host: &mut Host| {
        let is_sealed =
            |message| matches!(message, protocol::Message::Control(control::Message::Sealed { .. }));
        host.take_sends().into_iter().any(|sent| is_sealed(sent.message))
    };
    seal(&mut host, 1);
    write_all(&mut host, &disk);
    assert!(has_sealed(&mut host));
    seal(&mut host, 2);
    let slow = host.next_journal_write(Time::ZERO).unwrap();
    let message = control::Message::Dismiss { log: LOG, role: Endpoint::Sequencer, view: ViewNumber(2) };
    tell(&mut host, Endpoint::Node, message.into());
    assert!(host.sequencer(LOG).is_none());
    seal(&mut host, 3);
    assert!(host.sequencer(LOG).is_some());
    host.handle(Time::ZERO, Event::JournalWritten(slow.perform(&disk)));
    host.finish_turn(Time::ZERO);
    assert!(!has_sealed(&mut host), "nothing of the new incarnation is written");
    write_all(&mut host, &disk);
    assert!(has_sealed(&mut host));
}

#[test]
fn a_new_replica_does_not_find_what_a_life_without_a_journal_entry_left() {
    for durability in [Durability::Disk, Durability::Memory] {
        let disk = MemoryDisk::new();
        let mut host = open(&disk);
        disk.put(&format!("{}/trim", ShardStore::directory(LOG, SHARD)), vec![1; 64]);
        fence(&mut host, durability, 1);
        assert_eq!(host.problems(), []);
        assert!(host.replica(LOG, SHARD).is_some());
    }
}

#[test]
fn a_replica_that_dies_before_the_journal_tells_of_it_leaves_nothing() {
    for durability in [Durability::Disk, Durability::Memory] {
        let disk = MemoryDisk::new();
        let mut host = open(&disk);
        fence(&mut host, durability, 1);
        assert!(host.replica(LOG, SHARD).is_some() && keeps_store(&disk));
        drop(host);
        assert_eq!(open(&disk).problems(), []);
        assert!(!keeps_store(&disk));
    }
}

#[test]
fn records_that_the_journal_knows_nothing_of_are_told_of_and_kept() {
    let disk = MemoryDisk::new();
    let directory = ShardStore::directory(LOG, SHARD);
    let (records, set_aside) =
        (format!("{directory}/seg-00000001.records"), format!("{directory}.damaged-1/trim"));
    disk.put(&records, vec![1; 100]);
    disk.put(&set_aside, vec![1; 64]);
    let host = open(&disk);
    let [problem] = host.problems() else { panic!("{:?}", host.problems()) };
    assert_eq!((problem.log, problem.endpoint), (LOG, Endpoint::Shard(SHARD)));
    assert!(problem.cause.contains(&directory), "{}", problem.cause);
    let files = disk.files();
    assert!(files.contains(&records) && files.contains(&set_aside), "{files:?}");
}

#[test]
fn a_log_that_the_register_does_not_know_is_told_of_once_unless_it_is_retired() {
    let (mut host, disk) = with_replica(Durability::Disk);
    let gone = |host: &mut Host, seconds| {
        let (peer, from, to) = (Peer::Node(OTHER), Endpoint::Register, Endpoint::Controller);
        let message = control::Message::Gone { log: LOG }.into();
        let now = Time::ZERO + Duration::from_secs(seconds);
        host.handle(now, Event::Message { peer, log: LOG, from, to, message });
    };
    gone(&mut host, 1);
    gone(&mut host, 9);
    assert_eq!(host.problems(), [], "it may have been deleted");
    gone(&mut host, 20);
    gone(&mut host, 40);
    let [problem] = host.problems() else { panic!("{:?}", host.problems()) };
    assert_eq!(problem.log, LOG);
    assert!(host.replica(LOG, SHARD).is_some() && keeps_store(&disk), "nothing is removed");
    let (mut host, _) = with_replica(Durability::Disk);
    gone(&mut host, 1);
    retire(&mut host, LOG);
    gone(&mut host, 20);
    assert_eq!(host.problems(), []);
}

#[test]
fn a_message_that_is_too_large_is_told_of_once_for_each_role() {
    let mut host = open(&MemoryDisk::new());
    for bytes in ["17 MB", "18 MB"] {
        host.note_unsent(LOG, Endpoint::Sequencer, bytes);
        host.note_unsent(LOG, Endpoint::Shard(SHARD), bytes);
    }
    let told: Vec<_> = host.problems().iter().map(|problem| (problem.endpoint, &*problem.cause)).collect();
    let cause = "a message cannot be sent: 17 MB";
    assert_eq!(told, [(Endpoint::Sequencer, cause), (Endpoint::Shard(SHARD), cause)]);
}

#[test]
fn a_late_seal_or_fence_does_not_bring_a_deleted_log_back() {
    let disk = MemoryDisk::new();
    let mut host = open(&disk);
    fence(&mut host, Durability::Disk, 1);
    retire(&mut host, LOG);
    // The journal forgets the log repeatedly.
    for other in 2..5 {
        write_all(&mut host, &disk);
        drop(host);
        host = open(&disk);
        seal(&mut host, 1);
        fence(&mut host, Durability::Disk, 1);
        assert!(host.sequencer(LOG).is_none() && host.replica(LOG, SHARD).is_none() && !keeps_store(&disk));
        retire(&mut host, LogId(other));
    }
}

#[test]
fn an_end_is_not_orderly_while_a_write_is_under_way() {
    let (mut host, disk) = with_replica(Durability::Memory);
    dismiss(&mut host);
    let write = host.next_journal_write(Time::ZERO).unwrap();
    write.perform(&disk).unwrap();
    host.close().unwrap_err();
}

#[test]
fn an_orderly_end_keeps_a_life_in_memory_and_a_kill_does_not() {
    let (host, disk) = with_replica(Durability::Memory);
    let before = incarnation(&host);
    host.close().unwrap();
    // The replica does not run again before the other nodes are heard.
    let mut host = open(&disk);
    assert_eq!(incarnation(&host), before);
    drop(host);
    host = open(&disk);
    assert_eq!(incarnation(&host), before);
    others_are_heard(&mut host);
    write_all(&mut host, &disk);
    drop(host);
    assert_ne!(incarnation(&open(&disk)), before);
}
