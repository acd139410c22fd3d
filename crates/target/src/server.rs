//! The gRPC server, which calls an application.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use crate::contract::{ApplyError, AttachError, Session, Target};
use crate::proto::from_player::Request as FromPlayerRequest;
use crate::proto::from_target::Answer;
use crate::proto::target_server::{Target as Service, TargetServer};
use crate::proto::{self, Batch, FromPlayer, FromTarget, Hello};

/// Most sessions at a time. Further ones are refused.
pub const MOST_SESSIONS: usize = 1024;
/// Largest request, in bytes: larger than the largest record.
pub const MOST_REQUEST_BYTES: usize = 16 << 20;
/// Bytes of unread requests of a session.
const WINDOW_BYTES: u32 = 1 << 20;
/// Unsent answers of a session. An application whose player reads no answers waits.
const ANSWERS: usize = 8;
/// How often a silent connection is probed, and how long the probe may take.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// Serves an application at a listener until `until` is ready. It then ends each session after its
/// running call, and returns when all connections are closed.
///
/// # Errors
/// If the listener fails.
pub async fn serve<T: Target>(
    listener: TcpListener,
    target: T,
    until: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (open, closing) = watch::channel(());
    let sessions = Sessions {
        target: Arc::new(target),
        turns: Arc::default(),
        room: Arc::new(Semaphore::new(MOST_SESSIONS)),
        closing,
    };
    let service = TargetServer::new(sessions).max_decoding_message_size(MOST_REQUEST_BYTES);
    let until = async move {
        until.await;
        drop(open);
    };
    Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .http2_keepalive_interval(Some(PROBE_EVERY))
        .http2_keepalive_timeout(Some(PROBE_EVERY))
        .serve_with_incoming_shutdown(service, TcpIncoming::from(listener).with_nodelay(Some(true)), until)
        .await
}

struct Sessions<T> {
    target: Arc<T>,
    turns: Arc<Turns>,
    room: Arc<Semaphore>,
    /// Changes when the server ends.
    closing: watch::Receiver<()>,
}

#[tonic::async_trait]
impl<T: Target> Service for Sessions<T> {
    type PlayStream = ReceiverStream<Result<FromTarget, Status>>;

    async fn play(
        &self,
        request: Request<Streaming<FromPlayer>>,
    ) -> Result<Response<Self::PlayStream>, Status> {
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            let reason = format!("the target has {MOST_SESSIONS} sessions, and takes no more");
            return Err(Status::resource_exhausted(reason));
        };
        let (answers, stream) = mpsc::channel(ANSWERS);
        let mut play = Play {
            target: self.target.clone(),
            turns: self.turns.clone(),
            closing: self.closing.clone(),
            requests: request.into_inner(),
            answers,
        };
        // A task of its own, so that a lost connection does not drop a running call.
        tokio::spawn(async move {
            let Err(end) = play.run().await;
            // The player may be gone.
            let _ = match end {
                End::Answer(answer) => play.answers.send(Ok(answer.into())).await,
                End::Status(status) => play.answers.send(Err(status)).await,
                End::Gone => Ok(()),
            };
            drop(room);
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// One `Play` stream.
struct Play<T> {
    target: Arc<T>,
    turns: Arc<Turns>,
    closing: watch::Receiver<()>,
    requests: Streaming<FromPlayer>,
    answers: mpsc::Sender<Result<FromTarget, Status>>,
}

/// How a stream ends.
enum End {
    /// With this answer.
    Answer(Answer),
    /// With this status.
    Status(Status),
    /// The player has ended it, or its connection is lost.
    Gone,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl<T: Target> Play<T> {
    async fn run(&mut self) -> Result<std::convert::Infallible, End> {
        let (hello, session) = match self.request().await? {
            FromPlayerRequest::Hello(hello) => opened(hello)?,
            FromPlayerRequest::Batch(_) => return Err(invalid("the first request must be Hello")),
        };
        let turn = self.turns.of(&session);
        let mut ended = {
            let mut current = tokio::select! {
                current = turn.lock() => current,
                () = self.answers.closed() => return Err(End::Gone),
            };
            let bound = self.target.attach(&session, hello.adopts).await?;
            // The session before this one ends when its sender is dropped.
            let (end, ended) = oneshot::channel();
            *current = Some(end);
            self.answer(Answer::Attached(proto::Attached { applied: bound })).await?;
            ended
        };
        loop {
            let request = tokio::select! {
                biased;
                _ = &mut ended => return Err(replaced()),
                request = self.request() => request?,
            };
            let FromPlayerRequest::Batch(batch) = request else {
                return Err(invalid("only the first request may be Hello"));
            };
            check(&batch)?;
            // Held until the call returns: another session attaches after it.
            let current = turn.lock().await;
            if ended.try_recv() != Err(TryRecvError::Empty) {
                return Err(replaced());
            }
            self.target.apply(&session, &batch).await?;
            drop(current);
            self.answer(Answer::Applied(proto::Applied { upto: batch.upto })).await?;
        }
    }

    /// The player's next request.
    async fn request(&mut self) -> Result<FromPlayerRequest, End> {
        let request = tokio::select! {
            biased;
            // An error: the server has dropped the sender.
            _ = self.closing.changed() => return Err(Status::unavailable("the target ends").into()),
            request = self.requests.message() => request,
        };
        match request {
            Ok(Some(FromPlayer { request: Some(request) })) => Ok(request),
            Ok(Some(FromPlayer { request: None })) => Err(invalid("the request is of an unknown kind")),
            Ok(None) | Err(_) => Err(End::Gone),
        }
    }

    async fn answer(&self, answer: Answer) -> Result<(), End> {
        self.answers.send(Ok(answer.into())).await.map_err(|_| End::Gone)
    }
}

/// The sender whose end ends the current session of a pair of player and target id. It is locked
/// during each call.
type Turn = tokio::sync::Mutex<Option<oneshot::Sender<()>>>;

/// The pairs of player and target id with a session.
#[derive(Default)]
struct Turns {
    turns: Mutex<HashMap<(String, String), Weak<Turn>>>,
}

impl Turns {
    fn of(&self, session: &Session) -> Arc<Turn> {
        let mut turns = self.turns.lock().expect("no thread panics with this lock");
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = turns.entry((session.stream.player.clone(), session.target.clone())).or_default();
        turn.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *turn = Arc::downgrade(&new);
            new
        })
    }
}

fn opened(hello: Hello) -> Result<(Hello, Session), End> {
    let stream = hello.stream.clone().unwrap_or_default();
    if [&stream.log, &stream.player, &hello.target].iter().any(|name| name.is_empty()) {
        return Err(invalid("Hello needs a log, a player and a target"));
    }
    let session = Session { stream, target: hello.target.clone(), epoch: hello.epoch };
    Ok((hello, session))
}

/// Checks the order of a batch's positions.
fn check(batch: &Batch) -> Result<(), End> {
    let mut least = batch.after;
    for message in &batch.messages {
        if message.position < least || message.position >= batch.upto {
            return Err(invalid("the positions of a batch must rise from `after`, below `upto`"));
        }
        if message.parts.is_empty() {
            return Err(invalid("a message needs at least one part"));
        }
        least = message.position + 1;
    }
    if batch.after >= batch.upto {
        return Err(invalid("`upto` must be above `after`"));
    }
    Ok(())
}

fn invalid(reason: &str) -> End {
    Status::invalid_argument(reason).into()
}

fn replaced() -> End {
    Status::aborted("a newer session of this player has attached").into()
}

impl From<AttachError> for End {
    fn from(error: AttachError) -> Self {
        Self::Answer(match error {
            AttachError::Fenced { epoch } => Answer::Fenced(proto::Fenced { epoch }),
            AttachError::OtherStream { stream } => {
                Answer::OtherStream(proto::OtherStream { stream: Some(stream) })
            }
            AttachError::Broken { reason } => return Status::unavailable(reason).into(),
        })
    }
}

impl From<ApplyError> for End {
    fn from(error: ApplyError) -> Self {
        Self::Answer(match error {
            ApplyError::Rejected { position, reason } => {
                Answer::Rejected(proto::Rejected { position, reason })
            }
            ApplyError::Moved { applied } => Answer::Moved(proto::Moved { applied }),
            ApplyError::Fenced { epoch } => Answer::Fenced(proto::Fenced { epoch }),
            ApplyError::Broken { reason } => return Status::unavailable(reason).into(),
        })
    }
}

impl From<Answer> for FromTarget {
    fn from(answer: Answer) -> Self {
        Self { answer: Some(answer) }
    }
}
