//! Fair shares of a bounded resource.

use std::collections::BTreeMap;

/// Each holder's amount of a bounded resource.
///
/// A holder may take more while it has less than the free amount. A single holder gets half; many
/// get equal amounts and leave as much free, so a new holder always gets some.
///
/// Invariant: `total` is the sum over the listed holders, and each has some.
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
    /// How much more `holder` may take, if all holders together may have `most`.
    #[must_use]
    pub fn room(&self, holder: K, most: u64) -> u64 {
        most.saturating_sub(self.total).saturating_sub(self.of(holder)).div_ceil(2)
    }

    /// Whether `holder` may take one more.
    #[must_use]
    pub fn has_room(&self, holder: K, most: u64) -> bool {
        self.room(holder, most) > 0
    }

    /// The amount of `holder`.
    #[must_use]
    pub fn of(&self, holder: K) -> u64 {
        self.held.get(&holder).copied().unwrap_or(0)
    }

    /// The amount of all holders.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds `count` to `holder`, without a check for room.
    pub fn take(&mut self, holder: K, count: u64) {
        if count > 0 {
            *self.held.entry(holder).or_default() += count;
            self.total += count;
        }
    }

    /// Returns `count` from `holder`.
    ///
    /// # Panics
    /// If `holder` has less.
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

    /// Returns everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
