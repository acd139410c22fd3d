//! Encoded messages, and messages in the trace.

use std::fmt;

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Encoder, Wire, WireError};
use seriatim_model::{Endpoint, LogId};
use seriatim_protocol::Message;

pub(super) fn frame(log: LogId, from: Endpoint, to: Endpoint, message: &Message) -> Bytes {
    let mut out = Encoder::new();
    log.encode(&mut out);
    from.encode(&mut out);
    to.encode(&mut out);
    message.encode(&mut out);
    out.finish_contiguous()
}

pub(super) fn open(frame: Bytes) -> Result<(LogId, Endpoint, Endpoint, Message), WireError> {
    let mut decoder = Decoder::new(frame);
    let log = LogId::decode(&mut decoder)?;
    let from = Endpoint::decode(&mut decoder)?;
    let to = Endpoint::decode(&mut decoder)?;
    let message = Message::decode(&mut decoder)?;
    match decoder.remaining() {
        0 => Ok((log, from, to, message)),
        left => Err(WireError::LeftOver(left)),
    }
}

/// The beginning of a message, formatted only if the trace is kept.
pub(super) struct Brief<'a>(pub(super) &'a Message);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        let end = text.char_indices().map(|(at, _)| at).nth(4000).unwrap_or(text.len());
        f.write_str(&text[..end])?;
        if end < text.len() { f.write_str("…") } else { Ok(()) }
    }
}
