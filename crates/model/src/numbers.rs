//! Variable-length encoding of small numbers.
//!
//! ```text
//! number        seven bits in each byte, the lowest first; the highest bit is 1 if a byte follows
//! difference    a number whose lowest bit is the sign
//! ```

/// Encodes a number, and passes its bytes to `put` in order.
pub fn put_number(mut number: u64, mut put: impl FnMut(u8)) {
    while number >= 0x80 {
        put(number as u8 | 0x80);
        number >>= 7;
    }
    put(number as u8);
}

/// Decodes a number; `None` if the bytes end early or exceed 64 bits.
pub fn take_number(mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = next()?;
        let bits = u64::from(byte & 0x7F);
        if shift > 63 || bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        shift += 7;
        if byte < 0x80 {
            return Some(number);
        }
    }
}

/// Encodes `to - from` with its sign; close numbers give a small result.
#[must_use]
pub fn difference(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from).cast_signed();
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

/// Applies a [`difference`] to `from`.
#[must_use]
pub fn differing(from: u64, difference: u64) -> u64 {
    let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
    from.wrapping_add(difference.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_differences_come_back() {
        for number in [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, u64::MAX - 1, u64::MAX] {
            let mut bytes = vec![];
            put_number(number, |byte| bytes.push(byte));
            let mut read = bytes.iter().copied();
            assert_eq!((take_number(|| read.next()), read.len()), (Some(number), 0));
            let mut cut = bytes[..bytes.len() - 1].iter().copied();
            assert_eq!(take_number(|| cut.next()), None, "{number} ends in the middle");
            for from in [0, 5, u64::MAX] {
                assert_eq!(differing(from, difference(from, number)), number);
            }
        }
        let mut long = [0xFF; 9].into_iter().chain([2]);
        assert_eq!(take_number(|| long.next()), None);
    }
}
