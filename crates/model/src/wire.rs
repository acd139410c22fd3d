//! Encoding of values: little endian, lengths before contents, no copies of payloads.
//!
//! A type lists its fields or numbered variants once, with [`wire_struct!`], [`wire_newtype!`] or
//! [`wire_enum!`]. Numbers of variants are part of the format and never reused.
//!
//! Decoding rejects numbers above their bound:
//!
//! | in the list | meaning | bound |
//! |---|---|---|
//! | `field as number` | count or position | [`limits::MAX_NUMBER`] |
//! | `field as first` | first number of a message's records | [`limits::MAX_FIRST`] |
//! | `field as end` | exclusive end, only compared | [`limits::MAX_NUMBER`], or none |

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits;

/// A value with an encoding.
pub trait Wire: Sized {
    /// Appends the value.
    fn encode(&self, out: &mut Encoder);

    /// Takes the value from the front.
    ///
    /// # Errors
    /// If the bytes are no such value. Arbitrary bytes never cause a panic or a large allocation.
    fn decode(input: &mut Decoder) -> Result<Self, WireError>;
}

/// Why decoding failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Bytes end within the value.
    #[error("the bytes end in the middle of a value")]
    Truncated,
    /// Unknown variant, or broken invariant of the type.
    #[error("not a valid {0}")]
    Invalid(&'static str),
    /// Number above its bound.
    #[error("{field} is {number}; the most is {most}")]
    TooLarge {
        /// Field or type.
        field: &'static str,
        /// The number.
        number: u64,
        /// Largest value.
        most: u64,
    },
    /// Bytes remain after the value.
    #[error("{0} bytes are left over after the value")]
    LeftOver(usize),
}

/// Shortest chunk that is passed by reference instead of copied.
const SHARE_BYTES: usize = 1024;

/// Collects encoded values. Long payloads are chunks of their own, not copied.
#[derive(Debug, Default)]
pub struct Encoder {
    chunks: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Encoder {
    /// An empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies raw bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.tail.put_slice(bytes);
    }

    /// Writes raw bytes, by reference if long.
    pub fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES {
            return self.put(bytes);
        }
        self.len += bytes.len();
        if !self.tail.is_empty() {
            self.chunks.push(self.tail.split().freeze());
        }
        self.chunks.push(bytes.clone());
    }

    /// The bytes in order, in chunks.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.tail.is_empty() {
            self.chunks.push(self.tail.freeze());
        }
        self.chunks
    }

    /// The bytes in one piece.
    #[must_use]
    pub fn finish_contiguous(self) -> Bytes {
        let mut chunks = self.finish();
        match chunks.len() {
            0 => Bytes::new(),
            1 => chunks.remove(0),
            _ => chunks.concat().into(),
        }
    }
}

/// Decodes values from the front of bytes.
#[derive(Debug)]
pub struct Decoder {
    bytes: Bytes,
}

impl Decoder {
    /// A decoder at the front of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// Bytes left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next `len` bytes, without a copy.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        if len > self.bytes.len() {
            return Err(WireError::Truncated);
        }
        Ok(self.bytes.split_to(len))
    }

    /// Decodes the value at the front without taking it.
    ///
    /// # Errors
    /// If there is none.
    pub fn peek<T: Wire>(&self) -> Result<T, WireError> {
        T::decode(&mut Self { bytes: self.bytes.clone() })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.bytes.get(..N).ok_or(WireError::Truncated)?;
        let array = bytes.try_into().expect("the slice has the array's length");
        bytes::Buf::advance(&mut self.bytes, N);
        Ok(array)
    }
}

/// Encodes one value, in one piece.
#[must_use]
pub fn encode_one<T: Wire>(value: &T) -> Bytes {
    let mut out = Encoder::new();
    value.encode(&mut out);
    out.finish_contiguous()
}

/// Decodes exactly one value.
///
/// # Errors
/// If the bytes are not the value, or more than it.
pub fn decode_one<T: Wire>(bytes: Bytes) -> Result<T, WireError> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode(&mut decoder)?;
    if decoder.remaining() > 0 {
        return Err(WireError::LeftOver(decoder.remaining()));
    }
    Ok(value)
}

/// Decodes a count or position; `field` is its name.
///
/// # Errors
/// Above [`limits::MAX_NUMBER`].
pub fn decode_number(field: &'static str, input: &mut Decoder) -> Result<u64, WireError> {
    at_most(limits::MAX_NUMBER, field, u64::decode(input)?)
}

/// Decodes the first number of a message's records; `field` is its name.
///
/// # Errors
/// Above [`limits::MAX_FIRST`].
pub fn decode_first(field: &'static str, input: &mut Decoder) -> Result<u64, WireError> {
    at_most(limits::MAX_FIRST, field, u64::decode(input)?)
}

/// Checks a number of the field `field` against its bound.
///
/// # Errors
/// Above `most`.
pub fn at_most(most: u64, field: &'static str, number: u64) -> Result<u64, WireError> {
    if number > most { Err(WireError::TooLarge { field, number, most }) } else { Ok(number) }
}

macro_rules! wire_integer {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Encoder) {
                out.put(&self.to_le_bytes());
            }

            fn decode(input: &mut Decoder) -> Result<Self, WireError> {
                Ok(Self::from_le_bytes(input.array()?))
            }
        }
    )*};
}

wire_integer!(u8, u16, u32, u64, u128);

impl Wire for bool {
    fn encode(&self, out: &mut Encoder) {
        out.put(&[u8::from(*self)]);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match u8::decode(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Invalid("boolean")),
        }
    }
}

impl Wire for Bytes {
    fn encode(&self, out: &mut Encoder) {
        (self.len() as u32).encode(out);
        out.put_shared(self);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let len = u32::decode(input)?;
        input.take(len as usize)
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Encoder) {
        (self.len() as u32).encode(out);
        out.put(self.as_bytes());
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let bytes = Bytes::decode(input)?;
        String::from_utf8(bytes.into()).map_err(|_| WireError::Invalid("UTF-8 text"))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Encoder) {
        (self.len() as u32).encode(out);
        for item in self {
            item.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let count = u32::decode(input)? as usize;
        let mut items = Vec::with_capacity(count.min(input.remaining() / size_of::<T>().max(1)));
        for _ in 0..count {
            if input.remaining() == 0 {
                return Err(WireError::Truncated);
            }
            items.push(T::decode(input)?);
        }
        Ok(items)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Encoder) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        bool::decode(input)?.then(|| T::decode(input)).transpose()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok((A::decode(input)?, B::decode(input)?))
    }
}

/// Decodes a field: any value of its type, or a number of the given kind (see [`wire`](self)).
#[doc(hidden)]
#[macro_export]
macro_rules! wire_field {
    ($input:ident $name:expr,) => {
        $crate::wire::Wire::decode($input)
    };
    ($input:ident $name:expr, number) => {
        $crate::wire::decode_number($name, $input)
    };
    ($input:ident $name:expr, first) => {
        $crate::wire::decode_first($name, $input)
    };
    ($input:ident $name:expr, end) => {
        $crate::Position::decode_end($name, $input)
    };
}

/// Implements [`Wire`] for a struct: its fields in the order given.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident $(as $kind:ident)?),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut $crate::wire::Encoder) {
                $($crate::wire::Wire::encode(&self.$field, out);)*
            }

            fn decode(input: &mut $crate::wire::Decoder) -> Result<Self, $crate::wire::WireError> {
                Ok(Self {
                    $($field: $crate::wire_field!(
                        input concat!(stringify!($name), ".", stringify!($field)), $($kind)?
                    )?),*
                })
            }
        }
    };
}

/// Implements [`Wire`] for a struct of one unnamed field.
#[macro_export]
macro_rules! wire_newtype {
    ($name:ident $(as $kind:ident)?) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut $crate::wire::Encoder) {
                $crate::wire::Wire::encode(&self.0, out);
            }

            fn decode(input: &mut $crate::wire::Decoder) -> Result<Self, $crate::wire::WireError> {
                Ok(Self($crate::wire_field!(input stringify!($name), $($kind)?)?))
            }
        }
    };
}

/// Implements [`Wire`] for an enum: a number for each variant, then its fields. A variant without
/// fields is written `Name {}`, with an unnamed field `Name(field)`.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident { $($tag:literal => $variant:ident $fields:tt),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn encode(&self, out: &mut $crate::wire::Encoder) {
                match self {
                    $($crate::wire_enum!(@pattern $variant $fields) => {
                        $crate::wire::Wire::encode(&($tag as u8), out);
                        $crate::wire_enum!(@encode out $fields);
                    })*
                }
            }

            fn decode(input: &mut $crate::wire::Decoder) -> Result<Self, $crate::wire::WireError> {
                match <u8 as $crate::wire::Wire>::decode(input)? {
                    $($tag => Ok($crate::wire_enum!(@decode input $variant $fields)),)*
                    _ => Err($crate::wire::WireError::Invalid(stringify!($name))),
                }
            }
        }
    };
    (@pattern $variant:ident { $($field:ident $(as $kind:ident)?),* }) => { Self::$variant { $($field),* } };
    (@pattern $variant:ident ( $field:ident )) => { Self::$variant($field) };
    (@encode $out:ident { $($field:ident $(as $kind:ident)?),* }) => { $($crate::wire::Wire::encode($field, $out);)* };
    (@encode $out:ident ( $field:ident )) => { $crate::wire::Wire::encode($field, $out); };
    (@decode $input:ident $variant:ident { $($field:ident $(as $kind:ident)?),* }) => {
        Self::$variant {
            $($field: $crate::wire_field!(
                $input concat!(stringify!($variant), ".", stringify!($field)), $($kind)?
            )?),*
        }
    };
    (@decode $input:ident $variant:ident ( $field:ident )) => {
        Self::$variant($crate::wire::Wire::decode($input)?)
    };
}

pub use {wire_enum, wire_field, wire_newtype, wire_struct};

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Shape {
        Dot,
        Box { width: u32, name: String },
        Wrapped(Option<u64>),
        Counted { from: u64, count: u64, upto: crate::Position },
    }

    wire_enum! {
        Shape {
            1 => Dot {},
            2 => Box { width, name },
            4 => Wrapped(inner),
            5 => Counted { from as first, count as number, upto as end },
        }
    }

    #[test]
    fn enums_come_back() {
        for shape in [Shape::Dot, Shape::Box { width: 3, name: "é".into() }, Shape::Wrapped(Some(9))] {
            assert_eq!(decode_one::<Shape>(encode_one(&shape)).unwrap(), shape);
        }
        assert_eq!(decode_one::<Shape>(Bytes::from_static(b"\x03")), Err(WireError::Invalid("Shape")));
        assert_eq!(decode_one::<Shape>(Bytes::from_static(b"\x01\x01")), Err(WireError::LeftOver(1)));
    }

    #[test]
    fn what_is_counted_with_has_a_bound() {
        use crate::Position;
        let read = |from, count, upto| {
            let shape = Shape::Counted { from, count, upto: Position(upto) };
            decode_one::<Shape>(encode_one(&shape)).map(|copy| assert_eq!(copy, shape))
        };
        let (first, number) = (limits::MAX_FIRST, limits::MAX_NUMBER);
        assert_eq!(read(first, number, number), Ok(()));
        assert_eq!(read(0, 0, u64::MAX), Ok(()), "an end may be none");
        let too_large = |field, number, most| Err(WireError::TooLarge { field, number, most });
        assert_eq!(read(first + 1, 0, 0), too_large("Counted.from", first + 1, first));
        assert_eq!(read(0, u64::MAX, 0), too_large("Counted.count", u64::MAX, number));
        assert_eq!(read(0, 0, u64::MAX - 1), too_large("Counted.upto", u64::MAX - 1, number));
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        assert_eq!(decode_one::<Vec<u64>>(Bytes::from_static(&[0xff; 8])), Err(WireError::Truncated));
        assert_eq!(decode_one::<Bytes>(Bytes::from_static(&[0xff; 8])), Err(WireError::Truncated));
    }

    #[test]
    fn long_payloads_are_shared() {
        let long = Bytes::from(vec![7; 5000]);
        let mut out = Encoder::new();
        1u8.encode(&mut out);
        long.encode(&mut out);
        2u8.encode(&mut out);
        assert_eq!(out.len(), 5006);
        let chunks = out.finish();
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[1].as_ptr(), long.as_ptr());
    }
}
