//! An unreadable journal entry is kept, and does not block the other roles.

use std::sync::Arc;

use bytes::Bytes;
use seriatim_host::{Host, HostError, RegisterPlace};
use seriatim_model::wire::{Encoder, Wire};
use seriatim_model::{Durability, Endpoint, LogId};
use seriatim_store::{Disk, Journal, JournalIdentity, MemoryDisk, RoleKey};

use crate::common::{
    LOG, OWN, SHARD, config, incarnation, open, others_are_heard, seal, with_replica, write_all,
};

const UNREADABLE: &[u8] = b"?????";

/// Writes an entry that its role cannot read, as if from a later version.
fn write_unreadable(disk: &MemoryDisk, log: LogId, endpoint: Endpoint) {
    let config = config(disk);
    let identity = JournalIdentity { cluster: config.cluster, node: config.node };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (mut journal, _) = Journal::open(&disk, identity, config.secret, config.journal).unwrap();
    let mut own = Encoder::new();
    1u8.encode(&mut own);
    Bytes::from_static(UNREADABLE).encode(&mut own);
    journal.append(RoleKey { log, endpoint }, &own.finish());
    while let Some(write) = journal.next_write() {
        journal.written(write.perform(&*disk)).unwrap();
    }
}

/// Where the last problem says that the role's state was put aside.
fn place_told(host: &Host, endpoint: Endpoint) -> String {
    let problem = host.problems().last().expect("it is told of");
    assert_eq!((problem.log, problem.endpoint), (LOG, endpoint));
    let (_, rest) = problem.cause.split_once("put aside as ").unwrap_or_else(|| panic!("{}", problem.cause));
    rest.split(',').next().unwrap().to_owned()
}

fn keeps_entries(disk: &MemoryDisk, place: &str) -> bool {
    disk.content(&format!("{place}/journal-entries")).is_some_and(|content| content.ends_with(UNREADABLE))
}

#[test]
fn a_sequencing_replica_goes_on_in_another_life_and_the_journal_s_files_are_used_again() {
    let (mut host, disk) = with_replica(Durability::Disk);
    seal(&mut host, 1);
    write_all(&mut host, &disk);
    let shard = incarnation(&host);
    let before = host.sequencer(LOG).unwrap().member();
    drop(host);
    write_unreadable(&disk, LOG, Endpoint::Sequencer);

    let mut host = open(&disk);
    let place = place_told(&host, Endpoint::Sequencer);
    let after = host.sequencer(LOG).unwrap().member();
    assert_ne!(before, after);
    assert_eq!(incarnation(&host), shard, "the other role is as it was");
    // A checkpoint replaces the unreadable entry.
    others_are_heard(&mut host);
    write_all(&mut host, &disk);
    drop(host);
    let host = open(&disk);
    assert_eq!(host.problems(), []);
    assert_eq!(host.sequencer(LOG).unwrap().member(), after);
    assert!(keeps_entries(&disk, &place), "{place}: {:?}", disk.files());
}

#[test]
fn a_shard_replica_keeps_with_its_store_what_the_journal_said() {
    let (host, disk) = with_replica(Durability::Disk);
    let before = incarnation(&host);
    drop(host);
    write_unreadable(&disk, LOG, Endpoint::Shard(SHARD));
    let stored = disk.files().into_iter().filter(|file| file.starts_with("logs/")).count();

    let host = open(&disk);
    let place = place_told(&host, Endpoint::Shard(SHARD));
    assert_ne!(incarnation(&host), before);
    assert!(keeps_entries(&disk, &place));
    let kept = disk.files().into_iter().filter(|file| file.starts_with(&format!("{place}/"))).count();
    assert_eq!(kept, stored + 1);
}

#[test]
fn a_start_that_died_after_the_store_was_put_aside_is_made_good() {
    let (host, disk) = with_replica(Durability::Disk);
    drop(host);
    write_unreadable(&disk, LOG, Endpoint::Shard(SHARD));
    // The journal does not record this yet, so each start puts the state aside.
    let first = place_told(&open(&disk), Endpoint::Shard(SHARD));
    let host = open(&disk);
    let second = place_told(&host, Endpoint::Shard(SHARD));
    assert_ne!(first, second);
    assert!(keeps_entries(&disk, &first) && keeps_entries(&disk, &second));
}

#[test]
fn a_register_that_cannot_be_read_keeps_its_node_from_starting() {
    let disk = MemoryDisk::new();
    let register = || {
        let mut config = config(&disk);
        config.register = RegisterPlace::Node { node: OWN, address: config.address.clone() };
        Host::open(config, Arc::new(disk.clone()))
    };
    let mut host = register().unwrap();
    write_all(&mut host, &disk);
    drop(host);
    write_unreadable(&disk, LogId(0), Endpoint::Register);
    let files = disk.files();
    let error = register().unwrap_err();
    assert!(matches!(error, HostError::Entry { .. }), "{error}");
    assert!(error.to_string().contains("Register"), "{error}");
    assert_eq!(disk.files(), files);
}

#[test]
fn what_cannot_be_put_aside_keeps_its_node_from_starting() {
    let (host, disk) = with_replica(Durability::Disk);
    drop(host);
    write_unreadable(&disk, LOG, Endpoint::Shard(SHARD));
    disk.set_capacity(Some(disk.used()));
    let error = Host::open(config(&disk), Arc::new(disk.clone())).unwrap_err();
    assert!(error.to_string().contains("cannot be put aside as logs/"), "{error}");
    disk.set_capacity(None);
    place_told(&open(&disk), Endpoint::Shard(SHARD));
}
