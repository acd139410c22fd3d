//! How values travel: little endian, lengths before contents, no copies of payloads.
//!
//! A type lists its fields (or its variants with their numbers) once, with [`wire_struct!`],
//! [`wire_newtype!`] or [`wire_enum!`]; both directions follow from the list. The numbers are part
//! of the format: they are never reused.
//!
//! A field that is counted with says so, and nothing that is larger than the bound of its kind is
//! read:
//!
//! | in the list | what it is | the largest |
//! |---|---|---|
//! | `field as number` | a number of something, or a position | [`limits::MAX_NUMBER`] |
//! | `field as first` | the first of the numbers of a message's records | [`limits::MAX_FIRST`] |
//! | `field as end` | a position up to which something is meant, and which is only compared | the former, or none |

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits;

/// A value that can be written to and read from bytes.
pub trait Wire: Sized {
    /// Appends the value.
    fn encode(&self, out: &mut Encoder);

    /// Takes the value from the front.
    ///
    /// # Errors
    /// If the bytes are not such a value. Arbitrary bytes never cause a panic or a large
    /// allocation.
    fn decode(input: &mut Decoder) -> Result<Self, WireError>;
}

/// Why bytes could not be read as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end before the value does.
    #[error("the bytes end in the middle of a value")]
    Truncated,
    /// A number that names no variant, or a value that breaks its type's invariant.
    #[error("not a valid {0}")]
    Invalid(&'static str),
    /// A number that nothing can be counted with.
    #[error("{field} is {number}; the most is {most}")]
    TooLarge {
        /// Of which field, or type.
        field: &'static str,
        /// The number.
        number: u64,
        /// The largest of its kind.
        most: u64,
    },
    /// The value ended before the bytes did.
    #[error("{0} bytes are left over after the value")]
    LeftOver(usize),
}

/// Chunks at least this long are passed on by reference instead of being copied.
const SHARE_BYTES: usize = 1024;

/// Collects the bytes of values. Long payloads stay where they are and become chunks of their own.
#[derive(Debug, Default)]
pub struct Encoder {
    chunks: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Encoder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes were written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes bytes as they are, by copying.
    pub fn put(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        self.tail.put_slice(bytes);
    }

    /// Writes bytes as they are, by reference if they are long.
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

    /// The bytes written, in order, as the chunks that they are in.
    #[must_use]
    pub fn finish(mut self) -> Vec<Bytes> {
        if !self.tail.is_empty() {
            self.chunks.push(self.tail.freeze());
        }
        self.chunks
    }

    /// The bytes written, in one piece.
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

/// Takes values from the front of bytes.
#[derive(Debug)]
pub struct Decoder {
    bytes: Bytes,
}

impl Decoder {
    /// Starts at the front of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next `len` bytes, without copying them.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        if len > self.bytes.len() {
            return Err(WireError::Truncated);
        }
        Ok(self.bytes.split_to(len))
    }

    /// The value at the front, which stays there.
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

/// The bytes of one value, in one piece.
#[must_use]
pub fn encode_one<T: Wire>(value: &T) -> Bytes {
    let mut out = Encoder::new();
    value.encode(&mut out);
    out.finish_contiguous()
}

/// Reads exactly one value.
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

/// Takes a number that is counted with; `field` is what it is called.
///
/// # Errors
/// If it is larger than [`limits::MAX_NUMBER`].
pub fn decode_number(field: &'static str, input: &mut Decoder) -> Result<u64, WireError> {
    at_most(limits::MAX_NUMBER, field, u64::decode(input)?)
}

/// Takes the first of the numbers that a message's records have; `field` is what it is called.
///
/// # Errors
/// If it is larger than [`limits::MAX_FIRST`].
pub fn decode_first(field: &'static str, input: &mut Decoder) -> Result<u64, WireError> {
    at_most(limits::MAX_FIRST, field, u64::decode(input)?)
}

/// The number, unless it is larger than the largest of its kind; `field` is what it is called.
///
/// # Errors
/// If it is.
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

/// Reads one field of a list: any value of its type, or a number of the kind that is named (see
/// [`wire`](self)).
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

/// Implements [`Wire`] for an enum: a number for each variant, then the variant's fields in the
/// order given. A variant without fields is written `Name {}`, one with an unnamed field
/// `Name(field)`.
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
