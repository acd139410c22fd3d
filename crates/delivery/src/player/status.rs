//! What a player reports about itself.

use std::fmt;

use seriatim_model::Position;

use super::machine::{Player, TargetIndex};
use super::target::{State, Target};

/// A target's state, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It receives the main stream.
    Normal,
    /// It receives the entries that it missed.
    Recovering,
    /// Its queue was full; it recovers after it has sent the queue.
    Full,
    /// The player attaches to it.
    Attaching,
    /// It does not respond; the player tries again.
    Down,
    /// It waits for an operator.
    Stopped,
    /// An operator paused it.
    Paused,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Recovering => "recovering",
            Self::Full => "full",
            Self::Attaching => "attaching",
            Self::Down => "down",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        })
    }
}

/// One target's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetStatus {
    /// The target's id.
    pub id: String,
    /// Its stage.
    pub stage: Stage,
    /// Everything below is applied. Of a target that never attached, 0.
    pub bound: Position,
    /// Queued messages.
    pub queued: usize,
    /// Memory of queued messages and of batches in flight, in bytes.
    pub memory: usize,
    /// Append time of the oldest entry that it lacks, in milliseconds since 1970. None: it lacks
    /// none that is known.
    pub oldest_ms: Option<u64>,
    /// Number of sessions since the player's start.
    pub sessions: u64,
    /// Number of rejected messages since the player's start.
    pub rejected: u64,
    /// The last failure, until a batch is applied.
    pub last_error: Option<String>,
}

/// A player's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayerStatus {
    /// End of the main stream. None: no target has attached yet.
    pub dispatched: Option<Position>,
    /// The highest known tail.
    pub tail: Position,
    /// Memory of all queues and of all batches in flight, in bytes.
    pub memory: usize,
    /// The targets, in the order of the configuration.
    pub targets: Vec<TargetStatus>,
    /// Names without target: the number of their messages, and the first position.
    pub unknown: Vec<(String, u64, Position)>,
}

impl Player {
    /// The player's state.
    #[must_use]
    pub fn status(&self) -> PlayerStatus {
        PlayerStatus {
            dispatched: self.dispatched,
            tail: self.tail,
            memory: self.targets.memory(),
            targets: self.targets.iter().map(status).collect(),
            unknown: self.unknown.all(),
        }
    }

    /// The target's id.
    #[must_use]
    pub fn id(&self, target: TargetIndex) -> &str {
        &self.targets[target.0].config.id
    }

    /// The target with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<TargetIndex> {
        self.targets.iter().position(|target| target.config.id == id).map(TargetIndex)
    }

    /// The lowest bound of all targets that have attached, for the player's pin. None: a target
    /// has not attached yet.
    #[must_use]
    pub fn lowest_bound(&self) -> Option<Position> {
        let bound = |target: &Target| (target.sessions > 0).then_some(target.applied);
        self.targets.iter().map(bound).min()?
    }
}

fn status(target: &Target) -> TargetStatus {
    let stage = match target.state {
        State::Normal => Stage::Normal,
        State::Recovering(_) | State::Moving { .. } => Stage::Recovering,
        State::Full { .. } => Stage::Full,
        State::Attaching { .. } | State::Doubted { .. } | State::Ready => Stage::Attaching,
        State::Down { .. } if target.last_error.is_none() => Stage::Attaching,
        State::Down { .. } => Stage::Down,
        State::Stopped(_) => Stage::Stopped,
        State::Paused => Stage::Paused,
    };
    TargetStatus {
        id: target.config.id.clone(),
        stage,
        bound: target.applied,
        queued: target.queued(),
        memory: target.memory(),
        oldest_ms: target.oldest_ms(),
        sessions: target.sessions,
        rejected: target.rejected,
        last_error: target.last_error.clone(),
    }
}
