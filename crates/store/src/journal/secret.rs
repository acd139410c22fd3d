//! The salt that identifies the journal's own batches.
//!
//! Journal files hold bytes as clients sent them, even after a file is recycled. So guessable bytes
//! do not identify their writer. A salt does: it is new for each use of a file, stands in the
//! header and in each batch, and is never sent.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Source of the salts of one opening. Drawn for each opening, never sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u128);

impl Secret {
    /// A secret from random bits. They must be hard to guess: a server uses a cryptographic
    /// generator.
    #[must_use]
    pub fn new(drawn: u128) -> Self {
        Self(drawn)
    }

    /// The salt for one use of a file. Later openings read it from the file and never derive it
    /// again, so any derivation will do.
    pub(super) fn salt(self, sequence: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0, sequence).hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_of_each_opening_has_a_salt_of_its_own() {
        let salts =
            (0..100u128).flat_map(|drawn| (1..100u64).map(move |use_| Secret::new(drawn << 64).salt(use_)));
        let distinct: std::collections::BTreeSet<u64> = salts.collect();
        assert_eq!(distinct.len(), 9900);
        assert_eq!(Secret::new(7).salt(1), Secret::new(7).salt(1));
    }

    #[test]
    fn no_log_tells_it() {
        assert!(!format!("{:?}", Secret::new(0x1234)).contains("1234"));
    }
}
