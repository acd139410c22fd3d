//! The crate from outside, over real sockets on loopback.

mod connections;
mod format;
mod frames;
mod handshakes;
mod listening;
mod support;
