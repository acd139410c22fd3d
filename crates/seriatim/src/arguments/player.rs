//! The arguments of `seriatim player`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::numbers;

#[derive(Debug, Subcommand)]
pub(crate) enum PlayerCommand {
    /// Run a player; prints "playing LOG as NAME, epoch N" when it has started.
    Run(PlayerRunArguments),
    /// Check a player's configuration and its targets; changes nothing.
    Check {
        /// Configuration file; see docs/player.example.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Show a player and its targets; exits with 1 if a target is stopped.
    Status {
        /// Name of the player.
        name: String,
        /// Print JSON; with --watch, one line each time.
        #[arg(long)]
        json: bool,
        /// Print again each time that the player reports.
        #[arg(long)]
        watch: bool,
    },
    /// Pass over an entry that a target rejected or that can no longer be read.
    Skip {
        /// Name of the player.
        name: String,
        /// Id of the target, or 'all' for an entry that the player cannot read.
        target: String,
        /// Position of the entry: the target's bound.
        #[arg(value_parser = numbers::position)]
        position: u64,
    },
    /// Attach to a stopped target again, and try its entry again.
    Retry {
        /// Name of the player.
        name: String,
        /// Id of the target.
        target: String,
    },
    /// Append an entry that a target rejected to the dead-letter log, and pass over it.
    DeadLetter {
        /// Name of the player.
        name: String,
        /// Id of the target.
        target: String,
        /// Position of the entry: the target's bound.
        #[arg(value_parser = numbers::position)]
        position: u64,
    },
    /// Detach from a target until 'resume', for its maintenance.
    Pause {
        /// Name of the player.
        name: String,
        /// Id of the target.
        target: String,
    },
    /// Attach to a paused target again.
    Resume {
        /// Name of the player.
        name: String,
        /// Id of the target.
        target: String,
    },
    /// Give a target a bound of this log, in place of its bound of another log.
    Adopt {
        /// Name of the player.
        name: String,
        /// Id of the target.
        target: String,
        /// The bound: all entries below it count as applied.
        #[arg(value_parser = numbers::position)]
        position: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PlayerRunArguments {
    /// Configuration file; see docs/player.example.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Take the place of an active player at once.
    #[arg(long, conflicts_with = "standby")]
    pub(crate) take_over: bool,
    /// Wait until the active player ends or is silent for 3 s, then take its place.
    #[arg(long)]
    pub(crate) standby: bool,
    /// Take an epoch above this one: after the control log was lost.
    #[arg(long, value_name = "EPOCH", value_parser = numbers::position)]
    pub(crate) above: Option<u64>,
    /// Exit when all targets have reached the tail as of the start.
    #[arg(long)]
    pub(crate) until_tail: bool,
}
