//! How many bytes a client keeps on their way to one replica: as many as are acknowledged, not as many as it has.

use seriatim_model::limits;

/// The window that a conversation begins with.
const FIRST: usize = 4 << 20;
/// What is always allowed on its way: a full batch.
const LEAST: usize = limits::BATCH_BYTES;

/// A congestion window (as TCP's, RFC 5681): it grows by what is acknowledged, and halves when the replica had no room.
/// Without it a client that is told `Busy` sends everything again that it has, for one batch of it to be taken.
///
/// Invariant: `LEAST <= bytes <= limits::MAX_IN_FLIGHT_BYTES`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    bytes: usize,
    /// Below it the window grows by all that is acknowledged, above by one batch for each window's worth.
    threshold: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { bytes: FIRST, threshold: limits::MAX_IN_FLIGHT_BYTES }
    }
}

impl Window {
    /// Whether so many more bytes may be sent. One batch may always be on its way.
    #[must_use]
    pub fn has_room(&self, in_flight: usize, more: usize) -> bool {
        in_flight == 0 || in_flight + more <= self.bytes
    }

    /// So many bytes were acknowledged.
    pub fn acknowledged(&mut self, bytes: usize) {
        let grows = if self.bytes < self.threshold { bytes } else { LEAST * bytes / self.bytes };
        self.bytes = (self.bytes + grows).min(limits::MAX_IN_FLIGHT_BYTES);
    }

    /// The replica had no room for all of it.
    pub fn refused(&mut self) {
        self.threshold = (self.bytes / 2).max(LEAST);
        self.bytes = self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_what_is_acknowledged_and_halves_when_there_was_no_room() {
        let mut window = Window::default();
        assert!(
            window.has_room(0, usize::MAX) && window.has_room(FIRST - 1, 1) && !window.has_room(FIRST, 1)
        );
        window.acknowledged(FIRST);
        assert_eq!(window.bytes, 2 * FIRST);
        window.refused();
        assert_eq!(window.bytes, FIRST);
        window.acknowledged(FIRST);
        assert_eq!(window.bytes, FIRST + LEAST, "from here on one batch for each window");
        (0..99).for_each(|_| window.refused());
        assert_eq!(window.bytes, LEAST);
        (0..9999).for_each(|_| window.acknowledged(LEAST));
        assert_eq!(window.bytes, limits::MAX_IN_FLIGHT_BYTES);
    }
}
