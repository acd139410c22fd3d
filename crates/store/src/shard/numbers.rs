//! Small numbers in few bytes, as binding logs have them; see [`seriatim_model::numbers`].

use bytes::Bytes;
use seriatim_model::wire::{Wire, decode_one};
use seriatim_model::{SessionId, numbers};

pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    numbers::put_number(number, |byte| out.push(byte));
}

/// Writes `to` relative to `from`.
pub(super) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    put_number(out, numbers::difference(from, to));
}

/// Reads bytes. Each method returns `None` at the end or on a malformed value.
#[derive(Debug)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        numbers::take_number(|| self.byte())
    }

    pub(super) fn small(&mut self) -> Option<u16> {
        u16::try_from(self.number()?).ok()
    }

    pub(super) fn difference(&mut self, from: u64) -> Option<u64> {
        Some(numbers::differing(from, self.number()?))
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
