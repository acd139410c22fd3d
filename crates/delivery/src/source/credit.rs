//! Credit of one shard: bytes of records and empty spans in flight to a reader or in its memory.

use seriatim_model::limits;

/// The reader returns credit when at least 1/4 of the window can be returned.
const PORTIONS: u64 = 4;
/// Largest excess over the credit: a shard sends while it has credit, so the last record, with its
/// empty spans, may exceed it.
const LARGEST: u64 = (limits::MAX_RECORD_BYTES + limits::MAX_RECORD_OVERHEAD_BYTES) as u64
    + limits::RECORD_STRUCTURE_BYTES as u64
    + limits::READ_SPANS as u64 * limits::SPAN_BYTES;

/// The account of one shard.
///
/// Invariant: `granted` and `held` together are at most `window`, except for the excess of the last
/// record and its spans over the credit, and for records held when the window shrank: then
/// `granted` is 0.
#[derive(Debug)]
pub(crate) struct Credit {
    window: u64,
    /// Limit of `held`: the window and the largest record, or the bytes held when the window
    /// shrank.
    most_held: u64,
    /// Bytes that the shard may still send.
    granted: u64,
    held: u64,
}

impl Credit {
    pub(crate) fn new(window: u64) -> Self {
        Self { window, most_held: window + LARGEST, granted: 0, held: 0 }
    }

    /// Sets the window. The caller ends the subscription, which voids credit granted before.
    pub(crate) fn resize(&mut self, window: u64) {
        (self.window, self.most_held) = (window, self.held.max(window + LARGEST));
        self.granted = self.granted.min(window.saturating_sub(self.held));
        self.check();
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.granted == 0
    }

    pub(crate) fn begin(&mut self) -> u64 {
        self.granted = self.window.saturating_sub(self.held);
        self.check();
        self.granted
    }

    /// Counts received bytes. False: the shard exceeded its credit.
    #[must_use]
    pub(crate) fn take_in(&mut self, bytes: u64) -> bool {
        if self.held + bytes > self.most_held {
            return false;
        }
        self.granted = self.granted.saturating_sub(bytes);
        self.held += bytes;
        self.check();
        true
    }

    pub(crate) fn free(&mut self, bytes: u64) {
        assert!(bytes <= self.held, "{bytes} bytes were freed, and {} kept", self.held);
        self.held -= bytes;
    }

    /// Grants the shard the free part of the window, if that is worth a message.
    pub(crate) fn due(&mut self) -> Option<u64> {
        let missing = self.window.saturating_sub(self.granted + self.held);
        if missing < self.window / PORTIONS {
            return None;
        }
        self.granted += missing;
        self.check();
        Some(missing)
    }

    fn check(&self) {
        let (granted, held, most) = (self.granted, self.held, self.most_held);
        assert!(held <= most, "{held} bytes are kept of a shard that may send {most}");
        let in_all = granted + held;
        assert!(
            granted == 0 || in_all <= self.window,
            "{in_all} bytes are granted or kept, of {}",
            self.window
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_granted_and_what_is_kept_are_never_more_than_the_window() {
        let mut credit = Credit::new(100);
        assert!(credit.is_spent());
        assert_eq!(credit.begin(), 100);
        assert!(credit.take_in(70));
        assert_eq!(credit.due(), None, "nothing was freed");
        assert_eq!(credit.begin(), 30, "as much as there is room for");
        credit.free(20);
        assert_eq!(credit.due(), None, "not worth a message");
        credit.free(10);
        assert_eq!(credit.due(), Some(30));
        assert_eq!(credit.due(), None);
    }

    #[test]
    fn the_last_record_may_be_larger_than_the_credit_and_nothing_else() {
        let mut credit = Credit::new(100);
        credit.begin();
        assert!(credit.take_in(90) && credit.take_in(50));
        assert!(credit.is_spent());
        assert_eq!((credit.due(), credit.begin()), (None, 0));
        assert!(!credit.take_in(LARGEST), "no shard that keeps to its credit has sent it");
        credit.free(50);
        assert_eq!(credit.due(), None);
        credit.free(90);
        assert_eq!(credit.due(), Some(100));
    }

    #[test]
    fn a_smaller_window_grants_nothing_until_there_is_room_in_it() {
        let mut credit = Credit::new(LARGEST);
        credit.begin();
        assert!(credit.take_in(LARGEST) && credit.take_in(LARGEST));
        credit.resize(100);
        assert_eq!((credit.begin(), credit.due()), (0, None), "kept records stay");
        assert!(!credit.take_in(1));
        credit.free(2 * LARGEST - 60);
        assert_eq!((credit.due(), credit.begin()), (Some(40), 40));
        credit.resize(200);
        assert_eq!(credit.begin(), 140);
    }

    #[test]
    #[should_panic(expected = "were freed")]
    fn nothing_is_freed_twice() {
        let mut credit = Credit::new(100);
        credit.begin();
        assert!(credit.take_in(10));
        credit.free(10);
        credit.free(1);
    }
}
