//! System tests of the real binary as real processes.
//!
//! * [`conformance`]: scenarios for a log of every ordering;
//! * [`kill`]: kill loops under load, also with a lossy disk; orderly stops;
//! * [`losses`]: losses at durability `memory`, and of the lossy disk;
//! * [`catalog`]: kills during creation and deletion of logs;
//! * [`serve`]: one process per node;
//! * [`failover`]: killed and paused nodes, in every role;
//! * [`shards`]: shards that join and leave under load;
//! * [`departures`]: nodes drained, replaced, removed and restarted under load;
//! * [`ends`]: waits and time limits of starts and stops;
//! * [`unread`]: servers whose output no process reads;
//! * [`status`]: the output of `status`;
//! * [`identity`]: one data directory per node number;
//! * [`events`]: operator messages of servers;
//! * [`disks`]: full disks, warnings, damaged bytes;
//! * [`moved`]: data directories that move, disappear or are unusable;
//! * [`quiet`]: readers of idle logs;
//! * [`small_records`]: readers of very small records;
//! * [`pins`]: positions that limits keep;
//! * [`retention`]: limits, and positions by time;
//! * [`trims`]: the space that a trim frees;
//! * [`player`]: players and their targets, killed and stopped;
//! * [`load`]: overload, also beside a busy loop ([`surroundings`]);
//! * [`guide`]: the commands of `README.md` and `docs/cluster.md`;
//! * [`bench`]: the reports of `seriatim bench`;
//! * [`acceptance`], [`output`], [`bridge`]: the command line for scripts and other languages.
//!
//! Every cluster has its own directory and address, and ends with its test. Tests wait for events,
//! with deadlines; `xtask/sleep-allowed.txt` lists the exceptions.

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
mod pins;
mod player;
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
