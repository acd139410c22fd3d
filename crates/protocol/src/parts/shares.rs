//! Fair shares of a bounded resource.

use std::collections::BTreeMap;

/// How much each holder has of a bounded resource.
///
/// A holder may take more as long as it has less than is left. So one alone gets half of all, many
/// that want all there is get the same each, and what is left is as much again: none of them keeps
/// another from its first.
///
/// Invariant: `total` is the sum of what the listed holders have, and each of them has something.
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
    /// How much more `holder` may take, where there are `most` in all.
    #[must_use]
    pub fn room(&self, holder: K, most: u64) -> u64 {
        most.saturating_sub(self.total).saturating_sub(self.of(holder)).div_ceil(2)
    }

    /// Whether `holder` may take one more.
    #[must_use]
    pub fn has_room(&self, holder: K, most: u64) -> bool {
        self.room(holder, most) > 0
    }

    /// How much `holder` holds.
    #[must_use]
    pub fn of(&self, holder: K) -> u64 {
        self.held.get(&holder).copied().unwrap_or(0)
    }

    /// How much all of them hold.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// `holder` takes so much, whether there is room or not.
    pub fn take(&mut self, holder: K, count: u64) {
        if count > 0 {
            *self.held.entry(holder).or_default() += count;
            self.total += count;
        }
    }

    /// `holder` gives so much back.
    ///
    /// # Panics
    /// If it does not hold that much.
    pub fn give_back(&mut self, holder: K, count: u64) {
        let held = self.of(holder);
        assert!(count <= held, "{count} given back of {held}");
        self.total -= count;
        if count == held {
            self.held.remove(&holder);
        } else {
            self.held.insert(holder, held - count);
        }
    }

    /// Takes everything back from every holder.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One takes what it gets, one by one.
    fn takes_all(shares: &mut Shares<u32>, holder: u32, most: u64) -> u64 {
        while shares.has_room(holder, most) {
            shares.take(holder, 1);
        }
        shares.of(holder)
    }

    #[test]
    fn one_alone_gets_half_and_leaves_as_much_for_others() {
        let mut shares = Shares::default();
        assert_eq!(takes_all(&mut shares, 1, 100), 50);
        assert_eq!(takes_all(&mut shares, 2, 100), 25);
        assert_eq!([1, 2, 3].map(|holder| shares.room(holder, 100)), [0, 0, 13]);
        shares.give_back(1, 50);
        assert_eq!((shares.of(1), shares.total()), (0, 25));
        assert_eq!(takes_all(&mut shares, 2, 100), 50);
    }

    #[test]
    fn however_many_want_all_there_is_left_for_one_more() {
        let mut shares = Shares::default();
        for _ in 0..100 {
            for holder in 0..99 {
                if shares.has_room(holder, 1000) {
                    shares.take(holder, 1);
                }
            }
        }
        assert!((0..99).all(|holder| shares.of(holder) == 10));
        assert!(shares.has_room(99, 1000));
    }
}
