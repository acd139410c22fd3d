//! Limits of a player, which tests lower.

use std::time::Duration;

use seriatim_model::limits;

/// Limits of one player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerLimits {
    /// See [`limits::PLAYER_QUEUE_MESSAGES`].
    pub queue_messages: usize,
    /// See [`limits::PLAYER_QUEUE_BYTES`].
    pub queue_bytes: usize,
    /// See [`limits::PLAYER_MEMORY`].
    pub memory: usize,
    /// See [`limits::PLAYER_BATCH_MESSAGES`].
    pub batch_messages: usize,
    /// See [`limits::PLAYER_BATCH_BYTES`].
    pub batch_bytes: usize,
    /// See [`limits::PLAYER_JOIN`].
    pub join: u64,
    /// See [`limits::PLAYER_RECOVERIES`].
    pub recoveries: usize,
    /// See [`limits::PLAYER_QUIET_POSITIONS`].
    pub quiet_positions: u64,
    /// See [`limits::PLAYER_QUIET_FOR`].
    pub quiet_for: Duration,
    /// Time without an answer after which a session with a target counts as broken.
    pub apply_within: Duration,
    /// Time that a starting player waits for the bounds of its targets.
    pub start_within: Duration,
    /// Time without room in its queue after which a recovery stream yields to a waiting target.
    pub yield_after: Duration,
}

impl Default for PlayerLimits {
    fn default() -> Self {
        Self {
            queue_messages: limits::PLAYER_QUEUE_MESSAGES,
            queue_bytes: limits::PLAYER_QUEUE_BYTES,
            memory: limits::PLAYER_MEMORY,
            batch_messages: limits::PLAYER_BATCH_MESSAGES,
            batch_bytes: limits::PLAYER_BATCH_BYTES,
            join: limits::PLAYER_JOIN,
            recoveries: limits::PLAYER_RECOVERIES,
            quiet_positions: limits::PLAYER_QUIET_POSITIONS,
            quiet_for: limits::PLAYER_QUIET_FOR,
            apply_within: Duration::from_secs(30),
            start_within: Duration::from_secs(2),
            yield_after: Duration::from_secs(1),
        }
    }
}
