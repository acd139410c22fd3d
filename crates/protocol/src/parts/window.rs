//! How many bytes a client keeps on their way to one replica: as many as are acknowledged, not as
//! many as it has.

/// The largest window, in full batches.
const MOST: usize = 16;
/// The smallest window, as a part of a full batch. Clients share what may wait for a disk: if no
/// window were smaller than a batch, a few of them would be told `Busy` all the time.
const LEAST_PART: usize = 16;
/// How many messages make a window, unless they would be longer than a full batch.
const MESSAGES: usize = 2;

/// A congestion window (as TCP's, RFC 5681): it grows with acknowledgements, and halves when the
/// replica had no room. Without it a client that gets `Busy` sends everything again that it has,
/// and the replica takes one batch of it.
///
/// It begins with one full batch: when a view begins all clients begin at once, and the first batch
/// of each waits behind those of all others.
///
/// Invariant: `bytes` is between a sixteenth of a batch and sixteen of them.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// A full batch.
    batch: usize,
    bytes: usize,
    /// Below it the window grows by all that is acknowledged, above by the smallest window for each
    /// window's worth.
    threshold: usize,
}

impl Window {
    /// The window of a conversation in batches of so many bytes.
    #[must_use]
    pub fn new(batch: usize) -> Self {
        Self { batch, bytes: batch, threshold: MOST * batch }
    }

    /// How many bytes of records the next message may have while so many are on their way; nothing
    /// if none may be sent. One record may always be on its way, however long it is.
    #[must_use]
    pub fn room(&self, in_flight: usize) -> Option<usize> {
        let message = (self.bytes / MESSAGES).clamp(1, self.batch);
        (in_flight == 0 || in_flight + message <= self.bytes).then_some(message)
    }

    /// How many bytes may be on their way.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many bytes were acknowledged.
    pub fn acknowledged(&mut self, bytes: usize) {
        let grows =
            if self.bytes < self.threshold { bytes } else { (self.least() * bytes / self.bytes).max(1) };
        self.bytes = (self.bytes + grows).min(MOST * self.batch);
        self.check();
    }

    /// The replica had no room for all of it.
    pub fn refused(&mut self) {
        self.halves(self.least());
    }

    /// The replica is between views. A view change may wait for what goes to it, so that is at
    /// least a full batch for each pause.
    pub fn fenced(&mut self) {
        self.halves(self.batch);
    }

    /// To half of it, or to `least` where that is more.
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
        // Acknowledgements that are small beside the window count, too.
        window.refused();
        window.acknowledged(1);
        assert_eq!(window.bytes, 1281);
    }
}
