//! The salt that makes a batch the journal's own: a number that nobody else knows.
//!
//! Appended bytes stand in the journal's files as the client sent them, and stay there when a file
//! is used again. So bytes that a client can guess say nothing of their writer. A salt does: it is
//! new for each use of a file, stands in the file's header and in each of its batches, and is sent
//! to nobody.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

/// From what the salts of one opening of a journal are derived: drawn for each opening, told to
/// nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u128);

impl Secret {
    /// A secret is as good as `drawn` is hard to guess: a server takes it from a generator made for
    /// secrets.
    #[must_use]
    pub fn new(drawn: u128) -> Self {
        Self(drawn)
    }

    /// The salt of a file's use. It is only ever compared with what was written, so any way to
    /// derive it will do.
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
