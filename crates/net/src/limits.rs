//! Every bound of a connection, with the relations between them.

use std::time::Duration;

use seriatim_model::limits::MAX_FRAME_BYTES;

use crate::delay::DelayLine;
use crate::queue::Together;

/// How many bytes wait to be written to one connection before it is overloaded.
pub const QUEUE_BYTES: usize = 64 << 20;

/// How many bytes wait to be written to all clients of a node together before the one for which
/// most waits is given up.
///
/// A client alone comes to no more than [`QUEUE_BYTES`], so that one that does not read costs no
/// other its connection; and a program with three nodes in it has room for three times this.
pub const CLIENTS_QUEUE_BYTES: usize = 128 << 20;

/// The largest body of a frame during the handshake: a stranger cannot make us hold more.
pub const MAX_HELLO_BYTES: usize = 64 << 10;

/// The longest text within a [`crate::Hello`] or a [`crate::Refusal`], in bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// How long a handshake may take.
pub const HANDSHAKE_FOR: Duration = Duration::from_secs(5);

/// After how much silence the peer is pinged.
pub const PING_AFTER: Duration = Duration::from_secs(15);

/// How long a pinged peer may stay silent.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// How long a closing connection tries to write its queue, and how long it then waits for the peer
/// to close its side.
pub const FLUSH_FOR: Duration = Duration::from_secs(5);

/// How long a closed connection takes in, and drops, what the peer still sends. Without it the
/// kernel would answer such bytes with a reset, which can overtake and destroy what we wrote last.
pub const LINGER_FOR: Duration = Duration::from_secs(1);

/// How many clients a listener serves at once.
pub const MAX_CLIENTS: usize = 10_000;

/// How many connections from nodes a listener serves at once. Apart from the clients', so that no
/// crowd of clients keeps the cluster from itself.
pub const MAX_NODE_CONNECTIONS: usize = 512;

/// How many handshakes a listener performs at once; for a further caller, the one that takes
/// longest is given up.
pub const MAX_HANDSHAKES: usize = 256;

/// How many accepted connections wait for their taker.
pub const MAX_WAITING_CONNECTIONS: usize = 64;

/// The bytes that a quiet connection reads at once, into a buffer that all connections of a thread
/// share.
pub(crate) const QUIET_READ_BYTES: usize = 16 << 10;

/// The bytes that a busy connection reads at once, into a buffer of its own.
pub(crate) const BUSY_READ_BYTES: usize = 256 << 10;

/// Adjacent chunks shorter than this are copied into one before they are written.
pub(crate) const COALESCE_BELOW_BYTES: usize = 2048;

/// The longest chunk that comes from such copying.
pub(crate) const COALESCED_BYTES: usize = 64 << 10;

/// How many chunks one vectored write takes at most.
pub(crate) const WRITE_CHUNKS: usize = 64;

/// The sender itself writes what it sends, if nothing waits before it and it is not longer than
/// this.
pub(crate) const WRITE_THROUGH_BYTES: usize = 64 << 10;

/// How many bytes one vectored write is offered, unless a single chunk is larger.
pub(crate) const WRITE_BYTES: usize = 1 << 20;

const _: () = {
    assert!(QUEUE_BYTES >= 2 * MAX_FRAME_BYTES);
    assert!(CLIENTS_QUEUE_BYTES >= QUEUE_BYTES + 2 * MAX_FRAME_BYTES);
    assert!(MAX_HELLO_BYTES <= MAX_FRAME_BYTES);
    assert!(MAX_TEXT_BYTES * 8 < MAX_HELLO_BYTES);
    assert!(QUIET_READ_BYTES < BUSY_READ_BYTES);
    assert!(COALESCE_BELOW_BYTES < COALESCED_BYTES && COALESCED_BYTES <= WRITE_BYTES);
};

/// The bounds that a deployment or a test may change, and how far the peer is away.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// See [`QUEUE_BYTES`].
    pub queue_bytes: usize,
    /// Counts the bytes that wait for this connection as well, with those of others.
    pub together: Option<Together>,
    /// See [`HANDSHAKE_FOR`].
    pub handshake_for: Duration,
    /// See [`PING_AFTER`].
    pub ping_after: Duration,
    /// See [`ANSWER_WITHIN`].
    pub answer_within: Duration,
    /// See [`FLUSH_FOR`].
    pub flush_for: Duration,
    /// Holds back what this end sends, for benchmarks. Without one, nothing is held back, at no
    /// cost.
    pub delay: Option<DelayLine>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            queue_bytes: QUEUE_BYTES,
            together: None,
            handshake_for: HANDSHAKE_FOR,
            ping_after: PING_AFTER,
            answer_within: ANSWER_WITHIN,
            flush_for: FLUSH_FOR,
            delay: None,
        }
    }
}
