//! Simulates whole clusters from a seed, in virtual time, and judges them.
//!
//! A seed determines a [`plan::Plan`]: cluster, workload, faults. A [`world::World`] runs it with
//! the real machines, store, journal and codec, and writes a [`history::History`]. Each of the
//! [`checkers`] judges one property of the history.

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
pub mod playing;
pub mod profiles;
pub mod random;
pub mod reader;
pub mod run;
pub mod slots;
pub mod subscription;
pub mod trace;
pub mod trimmer;
pub mod world;
