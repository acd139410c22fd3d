//! A digest of the records that a sequencing replica knows.

use seriatim_model::{RecordId, SessionId};

/// The sum of the hashes of a set of record ids. It is independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdSetDigest(pub u64);

impl IdSetDigest {
    /// Adds ids, which must not be in the set.
    pub fn add(&mut self, session: SessionId, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.0 = self.0.wrapping_add(hash(RecordId { session, number }));
        }
    }
}

/// Two rounds of splitmix64's finisher over session and number.
fn hash(id: RecordId) -> u64 {
    let RecordId { session, number } = id;
    let session = mix((session.0 >> 64) as u64).wrapping_add(session.0 as u64);
    mix(mix(session).wrapping_add(number))
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use seriatim_model::Position;

    use super::*;

    #[test]
    fn the_order_does_not_matter_and_the_ids_do() {
        let session = |n| SessionId::new(Position(3), n);
        let sum = |parts: &[(u64, std::ops::Range<u64>)]| {
            let mut seen = IdSetDigest::default();
            parts.iter().for_each(|(n, numbers)| seen.add(session(*n), numbers.clone()));
            seen
        };
        assert_eq!(sum(&[(1, 0..3), (2, 0..1)]), sum(&[(2, 0..1), (1, 0..2), (1, 2..3)]));
        assert_ne!(sum(&[(1, 0..2)]), sum(&[(1, 0..1), (2, 0..1)]));
        assert_ne!(sum(&[(1, 0..1)]), sum(&[(1, 1..2)]));
    }
}
