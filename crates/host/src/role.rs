//! The roles that a node can host.

use bytes::Bytes;
use seriatim_model::{Durability, LogConfig, LogId, Machine, Member, Time, limits};
use seriatim_protocol::Options;
use seriatim_protocol::control::controller::Controller;
use seriatim_protocol::control::register::Register;
use seriatim_protocol::roles::{RoleEffect, RoleInput, SequencingRole, new_sequencing_role};
use seriatim_protocol::shard::Replica;
use seriatim_store::ShardStore;

use crate::journal::{Incarnated, RoleSnapshot, encode};

#[derive(Debug)]
pub(crate) enum Role {
    Register(Register),
    Controller(Box<Controller>),
    Sequencer(Box<dyn SequencingRole>),
    Shard(Box<Replica>, Box<ShardStore>),
}

pub(crate) struct Snapshot {
    /// An encoded [`RoleSnapshot`].
    pub(crate) said: Vec<Bytes>,
    /// Files to sync before the snapshot is valid.
    pub(crate) files: Vec<String>,
    /// Start of the next part; `None` after the last.
    pub(crate) goes_on: Option<LogId>,
}

impl Role {
    pub(crate) fn step(&mut self, now: Time, input: RoleInput, out: &mut Vec<RoleEffect>) {
        match self {
            Self::Register(role) => role.step(now, input, out),
            Self::Controller(role) => role.step(now, input, out),
            Self::Sequencer(role) => role.step(now, input, out),
            Self::Shard(role, _) => role.step(now, input, out),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        match self {
            Self::Register(role) => role.deadline(),
            Self::Controller(role) => role.deadline(),
            Self::Sequencer(role) => role.deadline(),
            Self::Shard(role, _) => role.deadline(),
        }
    }

    pub(crate) fn store(&mut self) -> Option<&mut ShardStore> {
        match self {
            Self::Shard(_, store) => Some(store),
            _ => None,
        }
    }

    fn config(&self) -> Option<&LogConfig> {
        match self {
            Self::Sequencer(role) => Some(role.config()),
            Self::Shard(role, _) => Some(&role.memory().config),
            Self::Register(_) | Self::Controller(_) => None,
        }
    }

    pub(crate) fn new_sequencer(me: Member, config: LogConfig, options: Options) -> Self {
        Self::Sequencer(new_sequencing_role(me, config, options))
    }

    /// Whether the role stores more than its incarnation.
    fn keeps(&self) -> bool {
        !matches!(self, Self::Sequencer(role) if !role.keeps())
    }

    /// Whether the role journals state before confirming it.
    pub(crate) fn is_journaled(&self) -> bool {
        self.keeps() && self.config().is_none_or(|config| config.durability == Durability::Disk)
    }

    pub(crate) fn began(&self) -> Option<Incarnated> {
        let incarnation = match self {
            Self::Sequencer(role) => role.member().incarnation,
            Self::Shard(role, _) => role.memory().incarnation,
            Self::Register(_) | Self::Controller(_) => return None,
        };
        Some(Incarnated { config: self.config()?.clone(), incarnation })
    }

    /// Snapshot that replaces all earlier entries, from `goes_on` on. `None` for a controller.
    /// Without a journal it has the incarnation only.
    pub(crate) fn snapshot(&mut self, goes_on: Option<LogId>) -> Option<Snapshot> {
        let began = self.began();
        let journaled = self.is_journaled();
        let single = |entry: &[Bytes]| RoleSnapshot::encode_single(&began, entry);
        let (said, files) = match self {
            Self::Register(role) => {
                let (own, goes_on) = role.snapshot(goes_on, limits::SNAPSHOT_ROLES);
                return Some(Snapshot { said: encode(&RoleSnapshot { began, own }), files: vec![], goes_on });
            }
            Self::Sequencer(role) if journaled => (single(&role.snapshot()), vec![]),
            Self::Shard(_, store) if journaled => {
                let (checkpoint, files) = store.checkpoint();
                (single(&[checkpoint]), files)
            }
            Self::Shard(..) | Self::Sequencer(_) => {
                let files = self.store().map_or_else(Vec::new, ShardStore::take_unsynced);
                (encode(&RoleSnapshot { began, own: vec![] }), files)
            }
            Self::Controller(_) => return None,
        };
        Some(Snapshot { said, files, goes_on: None })
    }

    pub(crate) fn closing_state(&mut self) -> Option<Bytes> {
        match self {
            Self::Sequencer(role) => role.keeps().then(|| role.snapshot().concat().into()),
            // A restart must find all these files. Otherwise the replica counts as another one.
            Self::Shard(_, store) => Some(store.checkpoint().0),
            Self::Register(_) | Self::Controller(_) => None,
        }
    }

    /// Whether an orderly end preserves the role's whole state.
    pub(crate) fn can_close(&self) -> bool {
        self.keeps() && !self.is_journaled()
    }
}
