//! Frames over TCP, between nodes and from clients to nodes.
//!
//! A connection starts with a handshake (identity, cluster, version), then carries messages both
//! ways. This crate does not inspect them.
//!
//! ```text
//!  send(chunks) ─► queue, bounded in bytes ─► writer task: all in one vectored write ► socket
//!                     ▲ Pong, Ping, Refusal
//!  receive()    ◄─ frames of one read ◄────── decoder: slices of the read buffer ◄────── socket
//! ```
//!
//! - [`frame`]: header and decoder, without I/O.
//! - [`envelope`]: a message with its log, sender and receiver.
//! - [`hello`], [`handshake`]: the first frames of a connection.
//! - [`connection`], with `intake`, `queue` and `writer`: a connection in use.
//! - [`links`], `watch`: connections to a cluster's nodes.
//! - [`listener`]: accepts connections.
//! - [`limits`]: limits of connections and listeners.
//! - [`timer`], [`delay`]: precise waits, and delays for benchmarks.
//!
//! Architecture invariants: this crate decides nothing about a protocol, and retransmits nothing.
//! Sending never waits. There is no linger timer: batches form because the writer takes all queued
//! chunks.

pub mod connection;
pub mod delay;
pub mod envelope;
pub mod frame;
pub mod handshake;
pub mod hello;
mod intake;
pub mod limits;
pub mod links;
pub mod listener;
mod queue;
pub mod timer;
mod watch;
mod writer;

pub use connection::{
    CloseReason, ConnectError, Connected, Connection, Detached, Receiver, SendError, Sender, connect,
};
pub use delay::DelayLine;
pub use envelope::{Envelope, message_frame, open_message};
pub use frame::{Frame, FrameDecoder, FrameError, FrameKind, FrameTooLarge};
pub use handshake::{HandshakeError, Identity};
pub use hello::{
    Beating, Beats, Caller, ClusterId, Credential, Hello, Lane, Refusal, RefusalCode, VersionRange, Welcome,
};
pub use limits::ConnectionOptions;
pub use links::{LinkEvent, Links, Unlinked};
pub use listener::{Accepted, BindError, Incoming, ListenOptions, Listener, Refused};
pub use queue::Together;
pub use timer::Timer;
