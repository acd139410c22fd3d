//! Bad input and overload, against the real server over real sockets: each case gets one clear
//! error, and the server goes on serving the others.
//!
//! Every test runs a [`support::Witness`]: a well-behaved client that appends and reads all the
//! time, and whose every operation must succeed before, during and after what the test does.

mod directories;
mod disks;
mod heartbeats;
mod impostors;
mod overload;
mod records;
mod strangers;
mod support;
mod unavailable;
