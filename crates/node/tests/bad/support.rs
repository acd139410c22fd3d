//! Clusters that tests mistreat, and a client that must not notice.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use seriatim_client::{Client, ClientOptions, Log, LogConfig, Position};
use seriatim_model::storage::Stored;
use seriatim_model::{Endpoint, LogId};
use seriatim_net::{
    Connection, ConnectionOptions, Frame, Hello, Receiver, Sender, connect, message_frame, open_message,
};
use seriatim_node::{Dev, DevOptions};
use seriatim_protocol::Message;
use seriatim_store::JournalOptions;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Small files, so that a cluster starts at once.
pub(crate) fn small_journal() -> JournalOptions {
    JournalOptions { file_bytes: 1 << 20, batch_bytes: 1 << 20, ..JournalOptions::default() }
}

pub(crate) struct Cluster {
    pub(crate) dev: Dev,
    pub(crate) data: TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut DevOptions)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut options = DevOptions::new(data.path(), "127.0.0.1:0");
        options.run.journal = small_journal();
        change(&mut options);
        Self { dev: Dev::start(options).await.unwrap(), data }
    }

    pub(crate) fn address(&self) -> String {
        self.dev.address().to_string()
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.address()).await
    }

    pub(crate) async fn log(&self, name: &str, config: LogConfig) -> Log {
        let client = self.client().await;
        client.create(name, config).await.unwrap();
        client.log(name).await.unwrap()
    }

    pub(crate) async fn witness(&self) -> Witness {
        Witness::start(&self.address(), LogConfig::default()).await
    }
}

pub(crate) async fn client(address: &str) -> Client {
    client_with(address, TIMEOUT).await
}

pub(crate) async fn client_with(address: &str, deadline: Duration) -> Client {
    let mut options = ClientOptions::default();
    options.deadline = deadline;
    Client::connect_with(address, options).await.unwrap()
}

/// A well-behaved client: all its operations must succeed.
pub(crate) struct Witness {
    turns: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Witness {
    pub(crate) async fn start(address: &str, config: LogConfig) -> Self {
        let client = client(address).await;
        client.create("witness", config).await.unwrap();
        let log = client.log("witness").await.unwrap();
        let (turns, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (Arc::clone(&turns), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                turn(&log, counter.load(Ordering::Relaxed)).await;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        let witness = Self { turns, stop, task };
        witness.goes_on().await;
        witness
    }

    /// Waits until the witness has appended and read a record, both begun after this call.
    pub(crate) async fn goes_on(&self) {
        let enough = self.turns.load(Ordering::Relaxed) + 2;
        let goes_on = || async { self.task.is_finished() || self.turns.load(Ordering::Relaxed) >= enough };
        eventually("the witness goes on", goes_on).await;
        assert!(!self.task.is_finished(), "the witness failed");
    }

    pub(crate) async fn finish(self) {
        self.goes_on().await;
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

async fn turn(log: &Log, number: u64) {
    let payload = number.to_string();
    let position = log.append_sync(payload.clone()).await.unwrap();
    let read = log.read(position, 1, TIMEOUT).await.unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].record.payload(), payload.as_bytes());
}

pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    let mut look = interval(Duration::from_millis(2));
    let done = async {
        while !check().await {
            look.tick().await;
        }
    };
    assert!(timeout(TIMEOUT, done).await.is_ok(), "in vain waited for: {what}");
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("in vain waited for: {what}"))
}

/// Records from `from` up to `end`, which is below the tail.
pub(crate) async fn read_range(log: &Log, mut from: Position, end: Position) -> Vec<Stored> {
    let mut all = vec![];
    while from < end {
        let count = u32::try_from(end - from).unwrap();
        let read = log.read(from, count, TIMEOUT).await.unwrap();
        from = read.last().expect("there is more below the tail").position.next();
        all.extend(read);
    }
    all
}

/// Checks that an error is one line with all `parts`.
#[track_caller]
pub(crate) fn says(error: &(impl ToString + Debug), parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n') && text.len() < 400, "not one line: {text:?}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

/// A connection without the client library, which sends any message.
pub(crate) struct Raw {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pending: std::collections::VecDeque<Frame>,
}

impl Raw {
    pub(crate) async fn connect(address: &str) -> Self {
        let connected = connect(address, &Hello::client("raw"), &ConnectionOptions::default()).await.unwrap();
        let Connection { sender, receiver } = connected.connection;
        Self { sender, receiver, pending: Default::default() }
    }

    pub(crate) fn send(&self, log: LogId, to: Endpoint, message: impl Into<Message>) {
        self.send_as(log, Endpoint::Client(1), to, message);
    }

    pub(crate) fn send_as(&self, log: LogId, from: Endpoint, to: Endpoint, message: impl Into<Message>) {
        let frame = message_frame(log, from, to, &message.into()).unwrap();
        self.sender.send(frame).unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Message {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return open_message::<Message>(frame).unwrap().3;
            }
            let frames = within("an answer", self.receiver.receive()).await.unwrap();
            self.pending.extend(frames.expect("the node closed the connection"));
        }
    }

    /// The first message that `wanted` maps; skips others.
    pub(crate) async fn answer_where<T>(&mut self, wanted: impl Fn(Message) -> Option<T>) -> T {
        within("a certain answer", async {
            loop {
                if let Some(found) = wanted(self.answer().await) {
                    return found;
                }
            }
        })
        .await
    }

    /// Waits until the node closes the connection. Returns its reason.
    pub(crate) async fn end(&mut self) -> String {
        within("the node's end of the connection", async {
            loop {
                match self.receiver.receive().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return String::new(),
                    Err(reason) => return reason.to_string(),
                }
            }
        })
        .await
    }
}
