//! Pins: positions from which a log keeps its records beyond its retention limits.

use crate::config::is_log_name;
use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number};
use crate::{Position, limits};

/// Keeps a log's records from a position on, for a reader that may be away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Unique within the log. Follows the rule of log names; decoding rejects others.
    pub name: String,
    /// First position to keep.
    pub position: Position,
    /// Retention limits break the pin if the log keeps more bytes than this from `position` on,
    /// each record counted once.
    pub most_bytes: u64,
    /// Whether `most_bytes` was exceeded. A broken pin keeps no records; it stays in the entry
    /// until a client sets it again or removes it.
    pub is_broken: bool,
}

impl Wire for Pin {
    fn encode(&self, out: &mut Encoder) {
        self.name.encode(out);
        self.position.encode(out);
        self.most_bytes.encode(out);
        self.is_broken.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let name = String::decode(input)?;
        if !is_log_name(&name) {
            return Err(WireError::Invalid("Pin.name"));
        }
        let (position, most_bytes) = (Wire::decode(input)?, decode_number("Pin.most_bytes", input)?);
        Ok(Self { name, position, most_bytes, is_broken: Wire::decode(input)? })
    }
}

/// The intact pin with the lowest position, if any pin is intact. Of several, the first by name.
#[must_use]
pub fn lowest(pins: &[Pin]) -> Option<&Pin> {
    pins.iter().filter(|pin| !pin.is_broken).min_by_key(|pin| pin.position)
}

/// Decodes the pins of an entry.
///
/// # Errors
/// If there are more than [`limits::MAX_PINS`], or they are not in the order of names.
pub(crate) fn decode_pins(input: &mut Decoder) -> Result<Vec<Pin>, WireError> {
    let count = u32::decode(input)? as usize;
    if count > limits::MAX_PINS {
        return Err(WireError::Invalid("LogEntry.pins"));
    }
    let pins: Vec<Pin> = (0..count).map(|_| Wire::decode(input)).collect::<Result<_, _>>()?;
    match pins.is_sorted_by(|one, next| one.name < next.name) {
        true => Ok(pins),
        false => Err(WireError::Invalid("LogEntry.pins")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pin_is_not_the_lowest() {
        let pin = |name: &str, position, is_broken| Pin {
            name: name.into(),
            position: Position(position),
            most_bytes: limits::PIN_BYTES,
            is_broken,
        };
        let pins = [pin("a", 3, true), pin("b", 9, false), pin("c", 7, false), pin("d", 7, false)];
        assert_eq!(lowest(&pins).map(|pin| pin.name.as_str()), Some("c"));
        assert_eq!(lowest(&pins[..1]), None);
    }
}
