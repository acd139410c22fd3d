//! Receivers of messages over HTTP, which store their bound together with the effects.
//!
//! A session begins with `GET`; each batch is a `POST` of JSON lines. `docs/player.md` has the
//! contract for receivers.

mod keyed;
mod receiver;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use seriatim_model::{Position, limits};

pub use self::keyed::Keyed;
pub use self::receiver::Place;
use self::receiver::{Answer, Header, Receiver};
use super::not_attached;
use crate::bounds::{Checked, Session, parse_stream};
use crate::parts::Part;
use crate::rejecting::{Failure, singles};
use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

const STREAM: &str = "seriatim-stream";
const TARGET: &str = "seriatim-target";
const EPOCH: &str = "seriatim-epoch";
const ADOPTS: &str = "seriatim-adopts";
const AFTER: &str = "seriatim-after";
const UPTO: &str = "seriatim-upto";
const CONTENT_TYPE: &str = "content-type";
const JSON_LINES: &str = "application/x-ndjson";

/// A receiver as a target.
#[derive(Debug)]
pub struct HttpTarget {
    id: String,
    place: Place,
    /// `None` before an attach, during a call, and after a failed call.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    id: String,
    receiver: Receiver,
    session: Session,
}

/// The answer to `GET`, and to a `POST` at another bound.
#[derive(Deserialize)]
struct Applied {
    applied: u64,
    /// The stream of the bound. `None` for the stream of the request.
    stream: Option<String>,
}

/// The answer to a request with an old epoch.
#[derive(Deserialize)]
struct Fenced {
    epoch: u64,
}

/// A message as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    position: u64,
    time_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Part<'a>>,
    parts: Vec<Part<'a>>,
}

impl HttpTarget {
    /// The target `id` at a place. Connects to nothing.
    #[must_use]
    pub fn new(id: &str, place: Place) -> Self {
        Self { id: id.into(), place, open: None }
    }

    /// Asks for the bound, without an epoch. The receiver changes nothing.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        let headers = [(STREAM, stream.to_string()), (TARGET, self.id.clone())];
        let (receiver, answer) = self.place.check(Method::GET, &headers).await?;
        if answer.status != StatusCode::OK {
            return Err(receiver.failed(&answer));
        }
        match receiver.applied(&answer, stream)? {
            Ok(bound) => Ok(Checked::Answers { bound }),
            Err(other) => Err(format!(
                "it stores a bound of another log, with the id {}; to replace that bound, run \
                 `seriatim player adopt {} {} POSITION`",
                other.log, stream.player, self.id
            )),
        }
    }
}

impl Target for HttpTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        self.open = None;
        let broken = |reason| AttachError::Broken { reason };
        let receiver = self.place.receiver().map_err(broken)?;
        let session = Session { stream: stream.clone(), epoch };
        let open = Open { id: self.id.clone(), receiver, session };
        let mut headers = open.headers();
        headers.extend(adopts.map(|position| (ADOPTS, position.to_string())));
        let receiver = &open.receiver;
        let answer = receiver.send(Method::GET, &headers, Bytes::new()).await.map_err(broken)?;
        let bound = match answer.status {
            StatusCode::OK => match receiver.applied(&answer, stream).map_err(broken)? {
                Ok(bound) => bound,
                Err(stream) => return Err(AttachError::OtherStream { stream }),
            },
            StatusCode::PRECONDITION_FAILED => {
                let epoch = receiver.fenced(&answer, epoch).map_err(broken)?;
                return Err(AttachError::Fenced { epoch });
            }
            _ => return Err(broken(receiver.failed(&answer))),
        };
        self.open = Some(open);
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        let open = self.open.take().ok_or_else(not_attached)?;
        open.apply(batch).await?;
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    async fn apply(&self, batch: &Batch) -> Result<(), ApplyError> {
        match self.post(batch).await {
            Ok(()) => Ok(()),
            Err(Failure::Other(error)) => Err(error),
            Err(Failure::Rejected(_)) => {
                for single in singles(batch) {
                    self.post(&single).await.map_err(|failure| failure.answer(&single))?;
                }
                Ok(())
            }
        }
    }

    async fn post(&self, batch: &Batch) -> Result<(), Failure> {
        let mut headers = self.headers();
        headers.push((AFTER, batch.after.to_string()));
        headers.push((UPTO, batch.upto.to_string()));
        headers.push((CONTENT_TYPE, JSON_LINES.into()));
        let receiver = &self.receiver;
        let answer = receiver.send(Method::POST, &headers, lines(&batch.messages)).await;
        let answer = answer.map_err(Failure::broken)?;
        Err(Failure::Other(match answer.status {
            StatusCode::CONFLICT => match receiver.applied(&answer, &self.session.stream) {
                Ok(Ok(applied)) => ApplyError::Moved { applied },
                Ok(Err(stream)) => ApplyError::Broken { reason: format!("the target now serves {stream}") },
                Err(reason) => ApplyError::Broken { reason },
            },
            StatusCode::PRECONDITION_FAILED => match receiver.fenced(&answer, self.session.epoch) {
                Ok(epoch) => ApplyError::Fenced { epoch },
                Err(reason) => ApplyError::Broken { reason },
            },
            _ => return receiver.judge(&answer),
        }))
    }

    fn headers(&self) -> Vec<Header> {
        let Session { stream, epoch } = &self.session;
        vec![(STREAM, stream.to_string()), (TARGET, self.id.clone()), (EPOCH, epoch.to_string())]
    }
}

impl Receiver {
    /// The bound in an answer, or the other stream that it names.
    fn applied(&self, answer: &Answer, stream: &Stream) -> Result<Result<Position, Stream>, String> {
        let Ok(Applied { applied, stream: other }) = serde_json::from_slice(&answer.body) else {
            return Err(self.wrong("its answer is not the JSON {\"applied\": POSITION}"));
        };
        if let Some(other) = other.filter(|other| *other != stream.to_string()) {
            let parsed = parse_stream(&other);
            return parsed.map(Err).ok_or_else(|| self.wrong("its answer names a stream that no player has"));
        }
        match applied > limits::MAX_NUMBER {
            true => Err(self.wrong(&format!("its bound {applied} is no position"))),
            false => Ok(Ok(Position(applied))),
        }
    }

    /// The epoch in an answer that fences this session. A false one would end the player.
    fn fenced(&self, answer: &Answer, own: u64) -> Result<u64, String> {
        match serde_json::from_slice(&answer.body) {
            Ok(Fenced { epoch }) if epoch > own => Ok(epoch),
            Ok(Fenced { epoch }) => Err(self.wrong(&format!("it fences epoch {own} by epoch {epoch}"))),
            Err(_) => Err(self.wrong("its answer is not the JSON {\"epoch\": EPOCH}")),
        }
    }
}

fn lines(messages: &[Message]) -> Bytes {
    let mut lines = Vec::new();
    for message in messages {
        let line = Line {
            position: message.position.0,
            time_ms: message.appended_ms,
            key: message.key.as_deref().map(Part::of),
            parts: message.parts.iter().map(|part| Part::of(part)).collect(),
        };
        serde_json::to_writer(&mut lines, &line).expect("a message has a JSON form");
        lines.push(b'\n');
    }
    lines.into()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
