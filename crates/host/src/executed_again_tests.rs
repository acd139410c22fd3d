//! Commands that were executed before are not journaled again.

use std::sync::Arc;

use seriatim_model::storage::{Run, StorageCommand};
use seriatim_model::{
    Durability, Endpoint, Incarnation, Input, LogConfig, LogId, Member, NodeId, Position, Record, RecordId,
    SessionId, ShardId, Ticket, Time, ViewNumber,
};
use seriatim_protocol::Options;
use seriatim_store::{JournalOptions, MemoryDisk, RoleKey, Secret, ShardOptions};

use crate::host::{Event, Host, HostConfig};
use crate::recovery::new_replica;
use crate::register::RegisterPlace;

const KEY: RoleKey = RoleKey { log: LogId(1), endpoint: Endpoint::Shard(ShardId(0)) };

fn host_on(disk: &MemoryDisk) -> Host {
    let config = HostConfig {
        cluster: 7,
        node: NodeId(2),
        address: "node-2:7700".into(),
        register: RegisterPlace::Node { node: NodeId(1), address: "node-1:7700".into() },
        seed: 1,
        secret: Secret::new(1),
        options: Options::default(),
        journal: JournalOptions::default(),
        shard_options: ShardOptions::default(),
    };
    let mut host = Host::open(config, Arc::new(disk.clone())).unwrap();
    let me = Member { node: NodeId(2), incarnation: Incarnation(1) };
    let log = LogConfig { durability: Durability::Disk, ..LogConfig::default() };
    let role =
        new_replica(&host.config, &host.disk, KEY.log, ShardId(0), me, log, &mut host.problems).unwrap();
    host.roles.insert(KEY, role);
    host
}

fn write_all(host: &mut Host, disk: &MemoryDisk) {
    while let Some(write) = host.next_journal_write(Time::ZERO) {
        host.handle(Time::ZERO, Event::JournalWritten(write.perform(disk)));
    }
}

#[test]
fn a_megabyte_that_is_bound_ten_times_is_journaled_once() {
    let disk = MemoryDisk::new();
    let mut host = host_on(&disk);
    let name = |number| RecordId { session: SessionId(1), number };
    let records = (0..100).map(|number| (name(number), Record::new(&[number as u8; 10_000], 0))).collect();
    let bind = StorageCommand::Bind { view: ViewNumber(1), runs: vec![Run { first: Position(0), records }] };
    // Creates the journal's files.
    host.store(Time::ZERO, KEY, Ticket(0), &StorageCommand::Trim(Position(0)));
    write_all(&mut host, &disk);
    host.local.clear();
    let before = disk.counters().bytes_written;
    host.store(Time::ZERO, KEY, Ticket(1), &bind);
    host.store(Time::ZERO, KEY, Ticket(2), &bind);
    assert_eq!(host.writes.len(), 2, "the second waits for the first's entry");
    write_all(&mut host, &disk);
    assert!(host.writes.is_empty(), "both are durable");
    for ticket in 3..=10 {
        host.store(Time::ZERO, KEY, Ticket(ticket), &bind);
        assert!(
            matches!(host.local.pop_back(), Some((KEY, Input::Persisted(Ticket(found)))) if found == ticket)
        );
        assert!(host.next_journal_write(Time::ZERO).is_none(), "nothing is left to be written");
    }
    let written = disk.counters().bytes_written - before;
    assert!(written < 2_200_000, "{written} bytes for a megabyte in a segment and in the journal");
}
