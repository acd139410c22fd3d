//! Limits of connections.

use std::time::Duration;

use seriatim_model::limits::MAX_FRAME_BYTES;

use crate::delay::DelayLine;
use crate::queue::Together;

/// Queued bytes at which a connection is overloaded.
pub const QUEUE_BYTES: usize = 64 << 20;

/// Queued bytes of a node's clients above which the client with the longest queue is abandoned.
///
/// One client queues at most [`QUEUE_BYTES`]: alone it costs no other client its connection. A
/// program with three nodes has room for three times this.
pub const CLIENTS_QUEUE_BYTES: usize = 128 << 20;

/// Largest body of a handshake frame: limits a stranger's memory.
pub const MAX_HELLO_BYTES: usize = 64 << 10;

/// Longest text in a [`crate::Hello`] or a [`crate::Refusal`], in bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Longest handshake.
pub const HANDSHAKE_FOR: Duration = Duration::from_secs(5);

/// Silence after which the peer is pinged.
pub const PING_AFTER: Duration = Duration::from_secs(15);

/// Longest silence after a ping.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Time for a closing connection to write its queue, and again for the peer to close.
pub const FLUSH_FOR: Duration = Duration::from_secs(5);

/// A closed connection drops the peer's bytes for this long. Otherwise the kernel answers with a
/// reset, which can destroy our last bytes.
pub const LINGER_FOR: Duration = Duration::from_secs(1);

/// Most clients of a listener.
pub const MAX_CLIENTS: usize = 10_000;

/// Most connections from nodes, counted apart: clients cannot keep nodes out.
pub const MAX_NODE_CONNECTIONS: usize = 512;

/// Most concurrent handshakes; a further caller ends the oldest handshake.
pub const MAX_HANDSHAKES: usize = 256;

/// Most accepted connections that wait for the listener's owner.
pub const MAX_WAITING_CONNECTIONS: usize = 64;

/// Read size of a quiet connection, into its thread's shared buffer.
pub(crate) const QUIET_READ_BYTES: usize = 16 << 10;

pub(crate) const BUSY_READ_BYTES: usize = 256 << 10;

/// Adjacent chunks below this size are joined before a write.
pub(crate) const COALESCE_BELOW_BYTES: usize = 2048;

/// Largest joined chunk.
pub(crate) const COALESCED_BYTES: usize = 64 << 10;

/// Most chunks per vectored write.
pub(crate) const WRITE_CHUNKS: usize = 64;

/// Largest send, in bytes, that the caller's task writes itself if nothing is queued.
pub(crate) const WRITE_THROUGH_BYTES: usize = 64 << 10;

/// Most bytes per vectored write, unless a single chunk is larger.
pub(crate) const WRITE_BYTES: usize = 1 << 20;

const _: () = {
    assert!(QUEUE_BYTES >= 2 * MAX_FRAME_BYTES);
    assert!(CLIENTS_QUEUE_BYTES >= QUEUE_BYTES + 2 * MAX_FRAME_BYTES);
    assert!(MAX_HELLO_BYTES <= MAX_FRAME_BYTES);
    assert!(MAX_TEXT_BYTES * 8 < MAX_HELLO_BYTES);
    assert!(QUIET_READ_BYTES < BUSY_READ_BYTES);
    assert!(COALESCE_BELOW_BYTES < COALESCED_BYTES && COALESCED_BYTES <= WRITE_BYTES);
};

/// Options of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// See [`QUEUE_BYTES`].
    pub queue_bytes: usize,
    /// Common count of several connections' queued bytes, with this one's.
    pub together: Option<Together>,
    /// See [`HANDSHAKE_FOR`].
    pub handshake_for: Duration,
    /// See [`PING_AFTER`].
    pub ping_after: Duration,
    /// See [`ANSWER_WITHIN`].
    pub answer_within: Duration,
    /// See [`FLUSH_FOR`].
    pub flush_for: Duration,
    /// Delays sent frames, for benchmarks. `None`: no delay, at no cost.
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
