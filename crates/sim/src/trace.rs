//! A hash of a run's events, and on request their text.

use std::fmt;

use seriatim_model::Time;

/// Collects a run's events.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// Keeps text lines too, if `readable`.
    #[must_use]
    pub fn new(readable: bool) -> Self {
        Self { hash: 0xCBF2_9CE4_8422_2325, lines: readable.then(Vec::new) }
    }

    /// Hashes a time and bytes.
    pub fn bytes(&mut self, now: Time, bytes: &[u8]) {
        self.number(now.0);
        self.number(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(u64::from_le_bytes(word));
        }
    }

    /// Hashes a number.
    pub fn number(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    /// Formats and adds a line, if lines are kept.
    pub fn line(&mut self, now: Time, what: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14} {what}", now.to_string()));
        }
    }

    /// Whether lines are kept.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.lines.is_some()
    }

    /// Hash of the run's events.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or(&[])
    }
}
