//! Reproducible randomness (splitmix64).

use std::time::Duration;

/// A sequence of numbers determined by its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed ^ 0x5E41_A71A_0000_0001);
        random.draw();
        random
    }

    /// A separate sequence, which leaves this one undisturbed.
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `least` to `most`, inclusive.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True with `chances` percent.
    pub fn percent(&mut self, chances: u64) -> bool {
        self.below(100) < chances
    }

    /// True with `chances` per thousand.
    pub fn permille(&mut self, chances: u64) -> bool {
        chances > 0 && self.below(1000) < chances
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// A duration from `least` to `most` microseconds.
    pub fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_nanos(self.between(least * 1000, most * 1000))
    }

    /// A duration from `least` to `most` milliseconds.
    pub fn millis(&mut self, least: u64, most: u64) -> Duration {
        self.micros(least * 1000, most * 1000)
    }
}
