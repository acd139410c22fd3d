//! Frames over TCP: how nodes reach each other, and clients reach nodes.
//!
//! A connection starts with a handshake ([`hello`]: who are you, which cluster, which version) and
//! then carries any number of messages both ways at once. What they say is not looked at here: an
//! [`envelope`] has a log, a sender, a receiver and opaque bytes.
//!
//! ```text
//!  send(chunks) ─► queue, bounded in bytes ─► writer task: drains all, one vectored write ─► socket
//!                    ▲ Pong, Ping, Refusal
//!  receive()    ◄─ frames of one read ◄────── decoder: slices of what was read ◄──────────── socket
//! ```
//!
//! Reading order: [`frame`] (pure), [`envelope`], [`hello`], [`handshake`], [`connection`], then
//! [`listener`]; `intake`, `queue` and `writer` are the insides of a connection. [`delay`] and
//! [`timer`] are for benchmarks.
//!
//! Architecture invariants: nothing here decides anything about a protocol, or resends. Sending
//! never waits. There is no linger timer: batches form because the writer takes all there is.

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
