//! Bad input and overload against the real server over real sockets: each case gets one clear
//! error, and the server still serves other clients.
//!
//! Every test runs a [`support::Witness`]: a client that appends and reads all the time, and whose
//! operations must all succeed.

mod directories;
mod disks;
mod heartbeats;
mod impostors;
mod overload;
mod records;
mod strangers;
mod support;
mod unavailable;
