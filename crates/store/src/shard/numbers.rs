//! Small numbers in few bytes, as binding logs have them.
//!
//! ```text
//! number       seven bits in each byte, the lowest first; the highest bit says that there is more
//! difference   a number whose lowest bit is the sign
//! ```

use bytes::Bytes;
use seriatim_model::SessionId;
use seriatim_model::wire::{Wire, decode_one};

/// Writes a number.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes by how much `to` differs from `from`.
pub(super) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put_number(out, (difference << 1 ^ difference >> 63).cast_unsigned());
}

/// The bytes that are left to read. Each reading returns nothing where they end, or mean nothing.
#[derive(Debug)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
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

    pub(super) fn small(&mut self) -> Option<u16> {
        u16::try_from(self.number()?).ok()
    }

    pub(super) fn difference(&mut self, from: u64) -> Option<u64> {
        let number = self.number()?;
        let difference = (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
        Some(from.wrapping_add(difference.cast_unsigned()))
    }

    fn take(&mut self, len: u64) -> Option<&[u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(len).ok()?)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn session(&mut self) -> Option<SessionId> {
        let bytes = self.take(16)?.try_into().expect("it is as long as was asked for");
        Some(SessionId(u128::from_le_bytes(bytes)))
    }

    pub(super) fn encoded<T: Wire>(&mut self) -> Option<T> {
        let len = self.number()?;
        decode_one(Bytes::copy_from_slice(self.take(len)?)).ok()
    }
}
