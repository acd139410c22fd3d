//! The crate from outside, over real sockets on loopback.

mod connections;
mod format;
mod frames;
mod handshakes;
mod links;
mod listening;
mod relay;
mod support;
