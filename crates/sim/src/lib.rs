//! Whole clusters from a seed, in virtual time, and what judges them.
//!
//! A [`plan::Plan`] follows from a seed: the cluster, the workload, the faults. A [`world::World`]
//! lives through it with the real machines, the real store, journal and codec, and writes a
//! [`history::History`]. The [`checkers`] judge the history, one property each.

pub mod capacity;
pub mod checkers;
pub mod chosen;
pub mod client;
pub mod coverage;
pub mod excuses;
pub mod foretold;
pub mod history;
pub mod kept;
pub mod late_messages;
pub mod lookups;
pub mod losses;
pub mod mutations;
pub mod network;
pub mod operator;
pub mod pipes;
pub mod plan;
pub mod profiles;
pub mod random;
pub mod reader;
pub mod run;
pub mod slots;
pub mod subscription;
pub mod trace;
pub mod trimmer;
pub mod world;
