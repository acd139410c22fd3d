//! How many bytes a client keeps on their way to one replica: as many as are acknowledged, not as many as it has.

/// The window that a conversation begins with, in full batches.
const FIRST: usize = 4;
/// The largest window, in full batches.
const MOST: usize = 16;

/// A congestion window (as TCP's, RFC 5681): it grows by what is acknowledged, and halves when the replica had no room.
/// Without it a client that is told `Busy` sends everything again that it has, for one batch of it to be taken.
///
/// Invariant: `bytes` is between one batch, which is always allowed on its way, and sixteen of them.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// A full batch.
    batch: usize,
    bytes: usize,
    /// Below it the window grows by all that is acknowledged, above by one batch for each window's worth.
    threshold: usize,
}

impl Window {
    /// The window of a conversation in batches of so many bytes.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self { batch, bytes: FIRST * batch, threshold: MOST * batch }
    }

    /// A full batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Whether so many more bytes may be sent. One batch may always be on its way.
    #[must_use]
    pub fn has_room(&self, in_flight: usize, more: usize) -> bool {
        in_flight == 0 || in_flight + more <= self.bytes
    }

    /// So many bytes were acknowledged.
    pub fn acknowledged(&mut self, bytes: usize) {
        let grows = if self.bytes < self.threshold { bytes } else { self.batch * bytes / self.bytes };
        self.bytes = (self.bytes + grows).min(MOST * self.batch);
    }

    /// The replica had no room for all of it.
    pub fn refused(&mut self) {
        self.threshold = (self.bytes / 2).max(self.batch);
        self.bytes = self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_what_is_acknowledged_and_halves_when_there_was_no_room() {
        let mut window = Window::new(100);
        assert!(window.has_room(0, usize::MAX) && window.has_room(399, 1) && !window.has_room(400, 1));
        window.acknowledged(400);
        assert_eq!(window.bytes, 800);
        window.refused();
        assert_eq!(window.bytes, 400);
        window.acknowledged(400);
        assert_eq!(window.bytes, 500, "from here on one batch for each window");
        (0..99).for_each(|_| window.refused());
        assert_eq!(window.bytes, 100);
        (0..9999).for_each(|_| window.acknowledged(100));
        assert_eq!(window.bytes, 1600);
    }
}
