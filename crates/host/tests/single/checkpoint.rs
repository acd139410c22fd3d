//! Checkpoints go in bounded pieces between ordinary work, and a node killed at any point recovers.

use std::collections::BTreeMap;
use std::sync::Arc;

use seriatim_host::{Event, Host, HostConfig, RegisterPlace};
use seriatim_model::{
    ConnectionId, Durability, Endpoint, Incarnation, LogConfig, LogId, Peer, Time, ViewNumber,
};
use seriatim_protocol::control;
use seriatim_protocol::{self as protocol, shard};
use seriatim_store::{JournalOptions, MemoryDisk};

use crate::common::{OTHER, OWN, SHARD, THIRD, address, claimed, cluster, config, others_are_heard};

fn in_pieces(disk: &MemoryDisk, snapshot_bytes: usize) -> HostConfig {
    let config = config(disk);
    HostConfig { journal: JournalOptions { snapshot_bytes, ..config.journal }, ..config }
}

fn open(config: HostConfig, disk: &MemoryDisk) -> Host {
    Host::open(config, Arc::new(disk.clone())).unwrap()
}

fn tell(host: &mut Host, log: LogId, from: Endpoint, to: Endpoint, message: protocol::Message) {
    host.handle(Time::ZERO, Event::Message { peer: Peer::Node(OTHER), log, from, to, message });
    host.finish_turn(Time::ZERO);
}

fn log_config() -> LogConfig {
    LogConfig { durability: Durability::Disk, shards: 1, ..LogConfig::default() }
}

fn seal(host: &mut Host, log: LogId, claim: u64) {
    let (claim, old) = (ViewNumber(claim), ViewNumber::NONE);
    let message = control::Message::Seal { claim, old, config: log_config() };
    tell(host, log, Endpoint::Controller, Endpoint::Sequencer, message.into());
}

fn fence(host: &mut Host, log: LogId, claim: u64) {
    let entry = claimed(log, log_config(), claim);
    let message = shard::Message::Fence { claim: ViewNumber(claim), entry };
    tell(host, log, Endpoint::Controller, Endpoint::Shard(SHARD), message.into());
}

fn dismiss(host: &mut Host, log: LogId, role: Endpoint) {
    let message = control::Message::Dismiss { log, role, view: ViewNumber(u64::MAX >> 8) };
    tell(host, log, Endpoint::Controller, Endpoint::Node, message.into());
}

/// Returns the most bytes added to the journal in one turn, and the number of additions.
fn drain(host: &mut Host, disk: &MemoryDisk) -> (usize, u32) {
    let (mut most, mut pieces, mut idle) = (0, 0, 0);
    // Roles without a snapshot are also skipped a few at a time.
    while idle < LOGS {
        let before = host.journal_pending_bytes();
        host.finish_turn(Time::ZERO);
        let added = host.journal_pending_bytes() - before;
        (most, pieces) = (most.max(added), pieces + u32::from(added > 0));
        let (write, files) = (host.next_journal_write(Time::ZERO), host.next_sync());
        idle = if write.is_none() && files.is_none() { idle + 1 } else { 0 };
        if let Some(write) = write {
            host.handle(Time::ZERO, Event::JournalWritten(write.perform(disk)));
        }
        if let Some(files) = files {
            host.handle(Time::ZERO, Event::FilesSynced(files.perform(disk)));
        }
    }
    (most, pieces)
}

/// Most bytes of an entry besides its content.
const FRAMING: usize = 64;
const LOGS: u64 = 1000;

#[test]
fn a_node_with_many_roles_writes_down_what_a_few_of_them_know_at_a_time() {
    let disk = MemoryDisk::new();
    let mut host = open(in_pieces(&disk, 4000), &disk);
    cluster(&mut host);
    (1..=LOGS).for_each(|log| seal(&mut host, LogId(log), log));
    let (most, pieces) = drain(&mut host, &disk);
    assert!(most <= 4000 + 64 * FRAMING, "{most} bytes at once");
    assert!(pieces > 20, "{pieces} pieces");
    drop(host);
    // Small snapshots are not written all at once either.
    let mut host = open(in_pieces(&disk, 100 << 20), &disk);
    (1..=LOGS).for_each(|log| assert_eq!(host.sequencer(LogId(log)).unwrap().claim(), ViewNumber(log)));
    others_are_heard(&mut host);
    // The next checkpoint is due after entries of twice the last one's size.
    let (mut pieces, mut more) = (0, 0);
    while pieces == 0 && more < 40 {
        more += 1;
        (1..=LOGS).for_each(|log| seal(&mut host, LogId(log), log + more));
        pieces = drain(&mut host, &disk).1;
    }
    assert!(u64::from(pieces) >= LOGS / 64, "{pieces} pieces after {more} entries of each");
    drop(host);
    let host = open(in_pieces(&disk, 100 << 20), &disk);
    (1..=LOGS)
        .for_each(|log| assert_eq!(host.sequencer(LogId(log)).unwrap().claim(), ViewNumber(log + more)));
}

#[test]
fn a_register_of_many_logs_is_written_down_a_few_at_a_time() {
    let disk = MemoryDisk::new();
    let place = RegisterPlace::Node { node: OWN, address: address(OWN).address };
    let config = HostConfig { register: place, ..in_pieces(&disk, 4000) };
    let mut host = open(config.clone(), &disk);
    for node in [OTHER, OWN, THIRD] {
        let message = control::Message::Join { node: address(node) };
        tell(&mut host, LogId(0), Endpoint::Node, Endpoint::Register, message.into());
    }
    for request in 1..=LOGS {
        let (name, config) = (format!("log-{request}"), log_config());
        let message = control::Message::Create { request, name, config };
        let (peer, from, to) = (Peer::Client(ConnectionId(1)), Endpoint::Client(1), Endpoint::Register);
        host.handle(Time::ZERO, Event::Message { peer, log: LogId(0), from, to, message: message.into() });
    }
    let entries = |host: &Host| host.register().unwrap().entries().cloned().collect::<Vec<_>>();
    assert_eq!(entries(&host).len() as u64, LOGS);
    // Controllers have begun views of all logs; their questions go to the register here.
    let (most, pieces) = drain(&mut host, &disk);
    assert!(most <= 4000 + 64 * FRAMING, "{most} bytes at once");
    assert!(u64::from(pieces) >= LOGS / 64, "{pieces} pieces");
    let before = entries(&host);
    drop(host);
    assert_eq!(entries(&open(config, &disk)), before);
}

type Role = Option<(Incarnation, ViewNumber)>;
type Roles = BTreeMap<(LogId, Endpoint), Role>;

const FEW: u64 = 12;

fn roles(host: &Host) -> Roles {
    let of = |log| {
        let sequencer = host.sequencer(log).map(|role| (role.member().incarnation, role.claim()));
        let shard = host.replica(log, SHARD).map(|role| (role.memory().incarnation, role.memory().claim));
        [((log, Endpoint::Sequencer), sequencer), ((log, Endpoint::Shard(SHARD)), shard)]
    };
    (1..=FEW).flat_map(|log| of(LogId(log))).collect()
}

fn happens(host: &mut Host, random: &mut impl FnMut(u64) -> u64, claim: u64) {
    let log = LogId(1 + random(FEW));
    match random(8) {
        0..3 => seal(host, log, claim),
        3..6 => fence(host, log, claim),
        6 => dismiss(host, log, Endpoint::Sequencer),
        _ => dismiss(host, log, Endpoint::Shard(SHARD)),
    }
}

#[test]
fn a_node_that_dies_at_any_point_of_a_checkpoint_comes_back_as_it_was() {
    for seed in 0..20 {
        let disk = MemoryDisk::new();
        let mut host = open(in_pieces(&disk, [50, 300, 3000][seed as usize % 3]), &disk);
        let mut state: u64 = seed;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut written = roles(&host);
        for round in 1..400 {
            if random(3) > 0 {
                happens(&mut host, &mut random, round);
            }
            host.finish_turn(Time::ZERO);
            let now = roles(&host);
            let write = host.next_journal_write(Time::ZERO);
            if let Some(write) = write {
                let outcome = write.perform(&disk);
                written = now;
                comes_back(&disk, round, &written);
                if random(4) > 0 {
                    happens(&mut host, &mut random, round);
                }
                host.handle(Time::ZERO, Event::JournalWritten(outcome));
            }
            if let Some(files) = host.next_sync() {
                host.handle(Time::ZERO, Event::FilesSynced(files.perform(&disk)));
            }
            comes_back(&disk, round, &written);
        }
        assert_eq!(host.failure(), None);
        let journal = disk.files().iter().filter(|name| name.starts_with("journal/")).count();
        assert!(journal <= 24, "checkpoints come to an end, and files are used again: {journal}");
    }
}

/// Power failure, or kill.
fn comes_back(disk: &MemoryDisk, seed: u64, expected: &Roles) {
    for fails in [true, false] {
        let disk = disk.fork();
        if fails {
            disk.crash(seed);
        }
        let host = open(config(&disk), &disk);
        assert_eq!(host.problems(), []);
        assert_eq!(&roles(&host), expected);
    }
}
