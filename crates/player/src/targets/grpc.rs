//! Services with their own transactions, over gRPC (`target.proto` of `seriatim-target`).

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seriatim_delivery::player::{ApplyError, AttachError, Batch, Message, Stream};
use seriatim_model::{LogId, Position, limits};
use seriatim_target::proto::from_player::Request;
use seriatim_target::proto::from_target::Answer;
use seriatim_target::proto::target_client::TargetClient;
use seriatim_target::proto::{self, FromPlayer, FromTarget, Hello};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

/// Most batches of a session without an answer.
pub const MOST_UNANSWERED: usize = 8;
/// How long a connection may take to open.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The system probes a silent connection after this time. gRPC's own probes are too frequent for
/// many servers, which end connections probed more often than every 5 minutes.
const PROBE_AFTER: Duration = Duration::from_secs(10);
/// Most characters of a service's text in an error.
const REASON_CHARS: usize = 1_000;

/// A service that is a target.
#[derive(Clone, Debug)]
pub struct Grpc {
    endpoint: Endpoint,
    target: String,
}

/// Why a URL is not of a gRPC target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL asks for TLS.
    #[error("the url '{url}' of a gRPC target wants TLS, which is not supported; give http://host:port")]
    Encrypted {
        /// The URL.
        url: String,
    },
    /// The URL has another form.
    #[error("'{url}' is not the url of a gRPC target; give http://host:port")]
    Malformed {
        /// The URL.
        url: String,
    },
}

impl Grpc {
    /// The service at `url` (`http://host:port`), as the target with this id. It connects when it
    /// attaches.
    ///
    /// # Errors
    /// If the URL is not of this form.
    pub fn new(url: &str, target: &str) -> Result<Self, UrlError> {
        let malformed = || UrlError::Malformed { url: url.to_owned() };
        if url.starts_with("https://") {
            return Err(UrlError::Encrypted { url: url.to_owned() });
        }
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| malformed())?;
        if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().port().is_none() {
            return Err(malformed());
        }
        let endpoint = endpoint
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(PROBE_AFTER))
            .tcp_keepalive_interval(Some(PROBE_AFTER))
            .tcp_keepalive_retries(Some(3));
        Ok(Self { endpoint, target: target.to_owned() })
    }

    /// Connects to the service. A bound is known only in a session, which would fence the active
    /// player, so the check does not read it.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self) -> Result<crate::Checked, String> {
        match self.endpoint.connect().await {
            Ok(_) => Ok(crate::Checked::Reachable),
            Err(error) => Err(self.unreachable(innermost(&error))),
        }
    }

    /// Connects and starts a session; see [`Target::attach`](crate::Target::attach). The caller
    /// limits the time.
    ///
    /// # Errors
    /// As [`Target::attach`](crate::Target::attach).
    pub async fn attach(
        &self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Session, AttachError> {
        let broken = |reason| AttachError::Broken { reason };
        let channel =
            self.endpoint.connect().await.map_err(|error| broken(self.unreachable(innermost(&error))))?;
        let hello = Hello {
            stream: Some(proto::Stream { log: stream.log.0.to_string(), player: stream.player.clone() }),
            target: self.target.clone(),
            epoch,
            adopts: adopts.map(|position| position.0),
        };
        let (requests, sent) = mpsc::channel(MOST_UNANSWERED);
        let hello = FromPlayer { request: Some(Request::Hello(hello)) };
        requests.try_send(hello).expect("the channel is empty, and its receiver is here");
        let mut service = Service { url: self.endpoint.uri().to_string(), epoch };
        let answers = TargetClient::new(channel).play(ReceiverStream::new(sent)).await;
        let mut answers = answers.map_err(|status| broken(service.ended(&status)))?.into_inner();
        let bound = service.attached(answers.message().await)?;
        let unanswered = Unanswered::default();
        let outlet = Outlet { sent: bound, unanswered: unanswered.clone(), requests: Some(requests) };
        Ok(Session { outlet, answers: Answers { bound, unanswered, service, answers } })
    }

    fn unreachable(&self, cause: String) -> String {
        format!("{} does not answer ({cause}); start the target, or correct its url", self.endpoint.uri())
    }
}

/// The `upto` of each unanswered batch. Invariant: at most [`MOST_UNANSWERED`], rising.
type Unanswered = Arc<Mutex<VecDeque<Position>>>;

fn locked(unanswered: &Unanswered) -> MutexGuard<'_, VecDeque<Position>> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session with a service, in halves for two tasks. After an error of [`Answers::next`] it is
/// over.
#[derive(Debug)]
pub struct Session {
    /// Sends batches.
    pub outlet: Outlet,
    /// Receives answers.
    pub answers: Answers,
}

/// The half of a session that sends batches.
#[derive(Debug)]
pub struct Outlet {
    /// The `upto` of the last sent batch, or the bound at the attach.
    sent: Position,
    unanswered: Unanswered,
    /// None: a request could not be sent.
    requests: Option<mpsc::Sender<FromPlayer>>,
}

/// The half of a session that receives answers.
#[derive(Debug)]
pub struct Answers {
    /// The bound that the target last reported.
    bound: Position,
    unanswered: Unanswered,
    service: Service,
    answers: Streaming<FromTarget>,
}

impl Session {
    /// The bound that the target last reported.
    #[must_use]
    pub fn bound(&self) -> Position {
        self.answers.bound
    }
}

impl Outlet {
    /// Whether another batch may be sent.
    #[must_use]
    pub fn has_room(&self) -> bool {
        locked(&self.unanswered).len() < MOST_UNANSWERED
    }

    /// Sends a batch without waiting. [`Answers::next`] reports a lost connection.
    ///
    /// # Panics
    /// Without room, or if the batch does not follow the last one.
    pub fn send(&mut self, batch: &Batch) {
        assert!(self.has_room(), "{MOST_UNANSWERED} batches have no answer");
        assert_eq!(batch.after, self.sent, "the batch does not follow the last one");
        assert!(batch.after < batch.upto, "the batch does not move the bound");
        self.sent = batch.upto;
        locked(&self.unanswered).push_back(batch.upto);
        let batch = proto::Batch {
            after: batch.after.0,
            upto: batch.upto.0,
            messages: batch.messages.iter().map(encoded).collect(),
        };
        let request = FromPlayer { request: Some(Request::Batch(batch)) };
        // It fails if the session is over, or if the service answers requests that it has not read.
        // Then the batch has no answer in time.
        if self.requests.as_ref().is_some_and(|requests| requests.try_send(request).is_err()) {
            self.requests = None;
        }
    }
}

impl Answers {
    /// Waits for the next answer, also without unanswered batches. Returns the target's new bound:
    /// all batches up to it are applied. Dropping the future loses no answer.
    ///
    /// # Errors
    /// As [`Target::apply`](crate::Target::apply), for the first unanswered batch that was not
    /// applied. The session is over.
    pub async fn next(&mut self) -> Result<Position, ApplyError> {
        let broken = |reason| ApplyError::Broken { reason };
        let answer = self.service.answer(self.answers.message().await).map_err(broken)?;
        let mut unanswered = locked(&self.unanswered);
        match answer {
            Answer::Applied(proto::Applied { upto }) => {
                let Some(last) = unanswered.iter().position(|end| end.0 == upto) else {
                    return Err(broken(
                        self.service.wrong(&format!("it applied up to {upto}, no batch's end")),
                    ));
                };
                self.bound = unanswered[last];
                unanswered.drain(..=last);
                Ok(self.bound)
            }
            Answer::Rejected(proto::Rejected { position, reason }) => {
                let sent = unanswered.back().copied().unwrap_or(self.bound);
                if !(self.bound.0..sent.0).contains(&position) {
                    let wrong = format!("it rejects position {position}, which no batch has");
                    return Err(broken(self.service.wrong(&wrong)));
                }
                Err(ApplyError::Rejected { position: Position(position), reason: shortened(&reason) })
            }
            Answer::Moved(proto::Moved { applied }) => Err(self
                .service
                .position(applied)
                .map_or_else(broken, |applied| ApplyError::Moved { applied })),
            Answer::Fenced(proto::Fenced { epoch }) => {
                Err(self.service.fence(epoch).map_or_else(broken, |epoch| ApplyError::Fenced { epoch }))
            }
            Answer::Attached(_) | Answer::OtherStream(_) => {
                Err(broken(self.service.wrong("it answers Hello twice")))
            }
        }
    }
}

/// Checks a service's answers. Errors are texts for operators.
#[derive(Debug)]
struct Service {
    url: String,
    /// The session's epoch.
    epoch: u64,
}

impl Service {
    fn attached(&mut self, answer: Result<Option<FromTarget>, Status>) -> Result<Position, AttachError> {
        let broken = |reason| AttachError::Broken { reason };
        match self.answer(answer).map_err(broken)? {
            Answer::Attached(proto::Attached { applied }) => self.position(applied).map_err(broken),
            Answer::Fenced(proto::Fenced { epoch }) => {
                Err(self.fence(epoch).map_or_else(broken, |epoch| AttachError::Fenced { epoch }))
            }
            Answer::OtherStream(proto::OtherStream { stream }) => {
                let proto::Stream { log, player } = stream.unwrap_or_default();
                let Ok(log) = log.parse() else {
                    let wrong = format!("it names the log '{}', which is no log id", shortened(&log));
                    return Err(broken(self.wrong(&wrong)));
                };
                Err(AttachError::OtherStream {
                    stream: Stream { log: LogId(log), player: shortened(&player) },
                })
            }
            Answer::Applied(_) | Answer::Rejected(_) | Answer::Moved(_) => {
                Err(broken(self.wrong("it answers a batch before Hello")))
            }
        }
    }

    fn answer(&self, answer: Result<Option<FromTarget>, Status>) -> Result<Answer, String> {
        match answer {
            Ok(Some(FromTarget { answer: Some(answer) })) => Ok(answer),
            Ok(Some(FromTarget { answer: None })) => Err(self.wrong("its answer is of an unknown kind")),
            Ok(None) => Err(format!("{} ended the session without a reason", self.url)),
            Err(status) => Err(self.ended(&status)),
        }
    }

    fn position(&self, number: u64) -> Result<Position, String> {
        if number > limits::MAX_NUMBER {
            return Err(self.wrong(&format!("its bound {number} is no position")));
        }
        Ok(Position(number))
    }

    /// Checks an epoch that fences this session. A false one would end the player.
    fn fence(&self, epoch: u64) -> Result<u64, String> {
        if epoch <= self.epoch {
            return Err(self.wrong(&format!("it fences epoch {} by epoch {epoch}", self.epoch)));
        }
        Ok(epoch)
    }

    fn wrong(&self, what: &str) -> String {
        format!("{} breaks the protocol of targets: {what}; correct the service", self.url)
    }

    fn ended(&self, status: &Status) -> String {
        let cause = match status.message() {
            "" => innermost(status),
            message => shortened(message),
        };
        format!("{} ended the session: {cause}", self.url)
    }
}

fn encoded(message: &Message) -> proto::Message {
    proto::Message {
        position: message.position.0,
        appended_ms: message.appended_ms,
        key: message.key.clone(),
        parts: message.parts.clone(),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(REASON_CHARS).collect()
}

/// The text of the first cause. The outer errors of the transport have no details.
fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    shortened(&cause.to_string())
}
