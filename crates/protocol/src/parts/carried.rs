//! The state with which the sequencing replicas of a view begin.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError};

use super::Sessions;

/// State carried from one view into the next, beside the end of the order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The ordered part of each session.
    pub sessions: Sessions,
    /// Other state, encoded by the log's ordering. May be empty.
    pub order: Bytes,
}

/// The first format had only sessions, which start with their count. This bit is above any count,
/// and marks the length of `order`, which then precedes the sessions.
const HAS_ORDER: u32 = 1 << 31;

impl From<Sessions> for Carried {
    fn from(sessions: Sessions) -> Self {
        Self { sessions, order: Bytes::new() }
    }
}

impl Wire for Carried {
    fn encode(&self, out: &mut Encoder) {
        if !self.order.is_empty() {
            (self.order.len() as u32 | HAS_ORDER).encode(out);
            out.put_shared(&self.order);
        }
        self.sessions.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let marked = input.peek::<u32>()?;
        if marked & HAS_ORDER == 0 {
            return Ok(Sessions::decode(input)?.into());
        }
        u32::decode(input)?;
        let order = input.take((marked & !HAS_ORDER) as usize)?;
        Ok(Self { sessions: Wire::decode(input)?, order })
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::wire::{decode_one, encode_one};
    use seriatim_model::{Position, SessionId};

    use super::*;

    #[test]
    fn sessions_alone_are_in_the_first_format() {
        let mut sessions = Sessions::default();
        sessions.admit(SessionId(7), 3, 1, Position(4));
        let carried = Carried::from(sessions.clone());
        assert_eq!(encode_one(&carried), encode_one(&sessions));
        for carried in [carried, Carried { sessions, order: Bytes::from_static(b"quotas") }] {
            assert_eq!(decode_one::<Carried>(encode_one(&carried)), Ok(carried));
        }
    }
}
