//! How what there is only so much of is shared out among those who ask for it.

use std::collections::BTreeMap;

/// How much each holds of something of which there is only so much.
///
/// One may take more as long as it has less than is left. So one alone gets half of all, many that want all there is get
/// the same each, and what is left is as much again: none of them keeps another from its first.
///
/// Invariant: `total` is the sum of what is held, and nobody is listed that holds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares<K> {
    held: BTreeMap<K, u64>,
    total: u64,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self { held: BTreeMap::new(), total: 0 }
    }
}

impl<K: Ord + Copy> Shares<K> {
    /// How much more `who` may take, where there are `most` in all.
    #[must_use]
    pub fn room(&self, who: K, most: u64) -> u64 {
        most.saturating_sub(self.total).saturating_sub(self.of(who)).div_ceil(2)
    }

    /// Whether `who` may take one more.
    #[must_use]
    pub fn has_room(&self, who: K, most: u64) -> bool {
        self.room(who, most) > 0
    }

    /// How much `who` holds.
    #[must_use]
    pub fn of(&self, who: K) -> u64 {
        self.held.get(&who).copied().unwrap_or(0)
    }

    /// How much all of them hold.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// `who` takes so much, whether there is room or not.
    pub fn take(&mut self, who: K, count: u64) {
        if count > 0 {
            *self.held.entry(who).or_default() += count;
            self.total += count;
        }
    }

    /// `who` gives so much back.
    ///
    /// # Panics
    /// If it does not hold that much.
    pub fn give_back(&mut self, who: K, count: u64) {
        let held = self.of(who);
        assert!(count <= held, "{count} given back of {held}");
        self.total -= count;
        if count == held {
            self.held.remove(&who);
        } else {
            self.held.insert(who, held - count);
        }
    }

    /// Nobody holds anything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One takes what it gets, one by one.
    fn takes_all(shares: &mut Shares<u32>, who: u32, most: u64) -> u64 {
        while shares.has_room(who, most) {
            shares.take(who, 1);
        }
        shares.of(who)
    }

    #[test]
    fn one_alone_gets_half_and_leaves_as_much_for_others() {
        let mut shares = Shares::default();
        assert_eq!(takes_all(&mut shares, 1, 100), 50);
        assert_eq!(takes_all(&mut shares, 2, 100), 25);
        assert_eq!([1, 2, 3].map(|who| shares.room(who, 100)), [0, 0, 13]);
        shares.give_back(1, 50);
        assert_eq!((shares.of(1), shares.total()), (0, 25));
        assert_eq!(takes_all(&mut shares, 2, 100), 50);
    }

    #[test]
    fn however_many_want_all_there_is_left_for_one_more() {
        let mut shares = Shares::default();
        for _ in 0..100 {
            for who in 0..99 {
                if shares.has_room(who, 1000) {
                    shares.take(who, 1);
                }
            }
        }
        assert!((0..99).all(|who| shares.of(who) == 10));
        assert!(shares.has_room(99, 1000));
    }
}
