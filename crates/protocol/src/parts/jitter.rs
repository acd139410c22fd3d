//! Pauses that differ from client to client.

/// A deterministic sequence of factors (xorshift).
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// One that follows from a random number.
    #[must_use]
    pub fn new(random: u64) -> Self {
        Self(random | 1)
    }

    /// By how much the next pause is to be longer or shorter: between half of it and one and a half
    /// of it.
    pub fn draw(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        0.5 + (self.0 % 1024) as f64 / 1024.0
    }
}
