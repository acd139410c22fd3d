//! The rig: the real binary as real processes, killed, stopped and started again.
//!
//! * [`conformance`]: what a log of every ordering passes;
//! * [`kill`]: kill loops under load, also on a disk that loses what was not synced; orderly ends;
//! * [`losses`]: what durability `memory` does not survive, and what the lossy disk really loses;
//! * [`catalog`]: kills while logs are created and deleted;
//! * [`serve`]: nodes as processes of their own;
//! * [`failover`]: nodes killed and paused, in every role, while the log goes on;
//! * [`shards`]: shards that join and leave under load;
//! * [`departures`]: nodes that are drained, replaced, removed, and restarted one after the other
//!   under load;
//! * [`ends`]: what starts and ends wait for, and how long;
//! * [`unread`]: servers whose output no process reads;
//! * [`status`]: what `status` says is so;
//! * [`identity`]: a number of a node belongs to one data directory;
//! * [`events`]: what servers tell an operator;
//! * [`disks`]: a disk that fills up, and the warnings before; bytes that change;
//! * [`moved`]: data directories that move or disappear under a node, and those that cannot be
//!   used;
//! * [`quiet`]: readers of logs to which no client appends;
//! * [`small_records`]: readers of logs of very small records;
//! * [`retention`]: limits of what a log keeps, and positions by time;
//! * [`trims`]: what a trim frees;
//! * [`load`]: more load than the machine can carry, also beside a busy loop ([`surroundings`]);
//! * [`guide`]: the commands of `README.md` and `docs/cluster.md`, and their output;
//! * [`bench`]: what `seriatim bench` writes;
//! * [`acceptance`], [`output`], [`bridge`]: the command line, as scripts and programs in other
//!   languages use it.
//!
//! Every cluster has a directory and an address of its own and dies with its test. Nothing waits by
//! sleeping: each wait is for an event and has a deadline.

mod absences;
mod acceptance;
mod bench;
mod bridge;
mod catalog;
mod chosen_shards;
mod cluster;
mod command;
mod conformance;
mod departures;
mod disks;
mod ends;
mod events;
mod failover;
mod forgotten;
mod guide;
mod history;
mod identity;
mod kill;
mod load;
mod losses;
mod members;
mod moved;
mod output;
mod process;
mod quiet;
#[path = "../../../net/tests/suite/relay.rs"]
mod relay;
mod retention;
mod retired;
mod serve;
mod shards;
mod small_records;
mod speculating;
mod status;
mod surroundings;
mod trims;
mod unread;
mod workload;
