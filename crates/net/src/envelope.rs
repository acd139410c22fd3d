//! A message with its log, sender and receiver.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Wire, WireError, decode_one};
use seriatim_model::{Endpoint, LogId};

use crate::frame::{Frame, FrameKind, FrameTooLarge, frame_chunks};

/// A message with an encoded body, whose type depends on its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Log number, from the frame's header.
    pub log: LogId,
    /// The sender.
    pub from: Endpoint,
    /// The receiver.
    pub to: Endpoint,
    /// The encoded message.
    pub body: Bytes,
}

impl Envelope {
    /// Decodes the addresses of a frame.
    ///
    /// # Errors
    /// If they are malformed. Later frames are not affected.
    pub fn open(frame: Frame) -> Result<Self, WireError> {
        let mut input = Decoder::new(frame.body);
        let from = Endpoint::decode(&mut input)?;
        let to = Endpoint::decode(&mut input)?;
        let body = input.take(input.remaining())?;
        Ok(Self { log: frame.log, from, to, body })
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// If it is not exactly one `T`. Later frames are not affected.
    pub fn message<T: Wire>(self) -> Result<T, WireError> {
        decode_one(self.body)
    }
}

/// Encodes a message as a frame, without copies of long payloads. Frames for one connection may be
/// sent in one call.
///
/// # Errors
/// If the message does not fit into a frame.
pub fn message_frame<T: Wire>(
    log: LogId,
    from: Endpoint,
    to: Endpoint,
    message: &T,
) -> Result<Vec<Bytes>, FrameTooLarge> {
    frame_chunks(FrameKind::Message, log, |out| {
        from.encode(out);
        to.encode(out);
        message.encode(out);
    })
}

/// Decodes a frame whose message is a `T`: log, sender, receiver, message.
///
/// # Errors
/// If the frame is malformed.
pub fn open_message<T: Wire>(frame: Frame) -> Result<(LogId, Endpoint, Endpoint, T), WireError> {
    let envelope = Envelope::open(frame)?;
    Ok((envelope.log, envelope.from, envelope.to, envelope.message()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameDecoder, HEADER_BYTES};

    fn travel(chunks: &[Bytes]) -> Frame {
        let mut decoder = FrameDecoder::new();
        for chunk in chunks {
            decoder.feed(chunk);
        }
        decoder.next_frame().unwrap().unwrap()
    }

    #[test]
    fn a_message_comes_back() {
        let to = Endpoint::Shard(seriatim_model::ShardId(3));
        let chunks = message_frame(LogId(7), Endpoint::Client(9), to, &"hello".to_string()).unwrap();
        assert_eq!(chunks.len(), 1, "a short message is one chunk, header included");
        let (log, from, arrived_to, text) = open_message::<String>(travel(&chunks)).unwrap();
        assert_eq!((log, from, arrived_to, text.as_str()), (LogId(7), Endpoint::Client(9), to, "hello"));
    }

    #[test]
    fn a_long_payload_is_not_copied() {
        let payload = Bytes::from(vec![7; 100_000]);
        let message = (payload.clone(), 5u64);
        let chunks = message_frame(LogId(7), Endpoint::Register, Endpoint::Sequencer, &message).unwrap();
        assert!(chunks.iter().any(|chunk| chunk.as_ptr() == payload.as_ptr()));
        let (.., arrived) = open_message::<(Bytes, u64)>(travel(&chunks)).unwrap();
        assert_eq!(arrived, message);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_it_is_sent() {
        let message = Bytes::from(vec![0; seriatim_model::limits::MAX_FRAME_BYTES]);
        let error = message_frame(LogId(1), Endpoint::Register, Endpoint::Register, &message).unwrap_err();
        assert_eq!(error.bytes, message.len() + 2 + 4);
    }

    #[test]
    fn an_envelope_without_addresses_is_an_error() {
        let chunks = frame_chunks(FrameKind::Message, LogId(1), |out| out.put(&[99])).unwrap();
        assert_eq!(chunks[0].len(), HEADER_BYTES + 1);
        assert_eq!(Envelope::open(travel(&chunks)), Err(WireError::Invalid("Endpoint")));
    }
}
