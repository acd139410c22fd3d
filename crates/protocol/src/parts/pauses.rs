//! How long clients wait before they say something again.

use std::time::Duration;

/// How long to wait for an answer before the same thing is said again; doubled up to [`RESEND_MOST`].
pub const RESEND_FIRST: Duration = Duration::from_millis(200);
/// The longest wait before something is said again.
pub const RESEND_MOST: Duration = Duration::from_secs(2);

/// How long to wait before something is said to a node again whose connection broke.
pub const RECONNECT_AFTER: Duration = Duration::from_millis(20);

/// The shortest pause after somebody had no room; doubled up to [`BUSY_MOST`].
pub const BUSY_FIRST: Duration = Duration::from_millis(1);
/// The longest pause after somebody had no room.
pub const BUSY_MOST: Duration = Duration::from_millis(64);
