//! The rig: the real binary as real processes, killed, stopped and started again.
//!
//! * [`kill`]: kill loops under load, also on a disk that loses what was not synced; orderly ends;
//! * [`losses`]: what durability `memory` does not survive, and what the lossy disk really loses;
//! * [`catalog`]: kills while logs are created and deleted;
//! * [`acceptance`], [`output`]: the command line, as scripts use it.
//!
//! Every cluster has a directory and an address of its own and dies with its test. Nothing waits by
//! sleeping: each wait is for an event and has a deadline.

mod acceptance;
mod catalog;
mod cluster;
mod command;
mod history;
mod kill;
mod losses;
mod output;
mod workload;
