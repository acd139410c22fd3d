//! A client's limit of bytes in flight to one replica.

/// The largest window, in full batches.
const MOST: usize = 16;
/// The smallest window, as a fraction of a full batch. With a batch each, a few clients that share
/// a disk's room would always receive `Busy`.
const LEAST_PART: usize = 16;
/// A window is sent as this many messages, or more if a message would be larger than a full batch.
const MESSAGES: usize = 2;

/// A congestion window (as in TCP, RFC 5681): it grows with acknowledgements and halves when the
/// replica was full. Without it, a client would answer `Busy` by resending everything.
///
/// It starts with one full batch: at the start of a view all clients send at once.
///
/// Invariant: `bytes` is between a sixteenth of a batch and sixteen batches.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    batch: usize,
    bytes: usize,
    /// A window below the threshold grows by the acknowledged bytes. Above it, a window grows by
    /// the smallest size for each full window of acknowledged bytes.
    threshold: usize,
}

impl Window {
    /// A window for batches of `batch` bytes.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self { batch, bytes: batch, threshold: MOST * batch }
    }

    /// Bytes of records for the next message, while `in_flight` bytes are unacknowledged. `None` if
    /// the client must wait. One record of any size may always be in flight.
    #[must_use]
    pub fn room(&self, in_flight: usize) -> Option<usize> {
        let message = (self.bytes / MESSAGES).clamp(1, self.batch);
        (in_flight == 0 || in_flight + message <= self.bytes).then_some(message)
    }

    /// The limit of bytes in flight.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// These bytes were acknowledged.
    pub fn acknowledged(&mut self, bytes: usize) {
        let grows =
            if self.bytes < self.threshold { bytes } else { (self.least() * bytes / self.bytes).max(1) };
        self.bytes = (self.bytes + grows).min(MOST * self.batch);
        self.check();
    }

    /// The replica was full.
    pub fn refused(&mut self) {
        self.halves(self.least());
    }

    /// The replica is between views. A view change may depend on the client's records, so at least
    /// a full batch goes out per pause.
    pub fn fenced(&mut self) {
        self.halves(self.batch);
    }

    fn halves(&mut self, least: usize) {
        self.threshold = (self.bytes / 2).max(least);
        self.bytes = self.threshold;
        self.check();
    }

    fn check(&self) {
        let bounds = self.least()..=MOST * self.batch;
        assert!(bounds.contains(&self.bytes), "a window of {} bytes is not within {bounds:?}", self.bytes);
    }

    fn least(&self) -> usize {
        (self.batch / LEAST_PART).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_what_is_acknowledged_and_halves_when_there_was_no_room() {
        let mut window = Window::new(160);
        assert_eq!((window.room(0), window.room(80), window.room(81)), (Some(80), Some(80), None));
        window.acknowledged(160);
        assert_eq!((window.bytes, window.room(160), window.room(161)), (320, Some(160), None));
        window.acknowledged(960);
        assert_eq!((window.bytes, window.room(1120), window.room(1121)), (1280, Some(160), None));
        window.refused();
        assert_eq!(window.bytes, 640);
        window.acknowledged(640);
        assert_eq!(window.bytes, 650, "from here on a sixteenth of a batch for each window");
        (0..99).for_each(|_| window.refused());
        assert_eq!((window.bytes, window.room(0), window.room(1600)), (10, Some(5), None));
        (0..9999).for_each(|_| window.acknowledged(160));
        assert_eq!(window.bytes, 2560);
        (0..99).for_each(|_| window.refused());
        window.fenced();
        assert_eq!((window.bytes, window.room(80)), (160, Some(80)), "a view change waits for a batch");
        (0..9999).for_each(|_| window.acknowledged(160));
        window.fenced();
        assert_eq!(window.bytes, 1280);
        (0..9999).for_each(|_| window.acknowledged(160));
        // Small acknowledgements count too.
        window.refused();
        window.acknowledged(1);
        assert_eq!(window.bytes, 1281);
    }
}
