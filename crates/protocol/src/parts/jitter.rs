//! Jitter for pauses.

/// A deterministic sequence of factors (xorshift).
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// A sequence from a random seed.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self(random | 1)
    }

    /// The next factor for a pause, from 0.5 to 1.5.
    pub fn draw(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        0.5 + (self.0 % 1024) as f64 / 1024.0
    }
}
