//! The client, which tries one endpoint after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::error::{EndpointError, Failure, RequestError, is_passing};
use crate::follow::Follower;
use crate::generated::etcdserverpb as pb;
use crate::generated::etcdserverpb::kv_client::KvClient;
use crate::generated::etcdserverpb::watch_client::WatchClient;
use crate::range::{KeyValue, Range};
use crate::transaction::{Outcome, Transaction};

/// How long one endpoint has to answer.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(2);
/// How often a silent connection is probed. etcd closes connections probed more often than every 5
/// s.
const PROBE_EVERY: Duration = Duration::from_secs(6);
/// How long a probe may take.
const PROBE_FOR: Duration = Duration::from_secs(3);
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// A client of one etcd cluster. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoints: Vec<(String, Channel)>,
    /// Index of the endpoint that answered last. Invariant: it is within `endpoints`.
    preferred: AtomicUsize,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the whole store.
    pub revision: i64,
    /// The keys of the range, in order.
    pub found: Vec<KeyValue>,
}

impl Shared {
    fn prefer(&self, index: usize) {
        let count = self.endpoints.len();
        assert!(index < count, "there is no endpoint {index} among {count}");
        self.preferred.store(index, Ordering::Relaxed);
    }
}

impl Client {
    /// A client of a cluster with these endpoints, `host:port` each. It connects at the first
    /// request. Requires a tokio runtime.
    ///
    /// # Errors
    /// If there is no endpoint, or one is malformed.
    pub fn new(endpoints: &[String]) -> Result<Self, EndpointError> {
        if endpoints.is_empty() {
            return Err(EndpointError::None);
        }
        let endpoints = endpoints.iter().map(|endpoint| channel(endpoint)).collect::<Result<_, _>>()?;
        let shared = Shared { endpoints, preferred: AtomicUsize::new(0) };
        shared.prefer(0);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Reads the present state of a range.
    ///
    /// # Errors
    /// If no endpoint answers in time.
    pub async fn get(&self, range: &Range) -> Result<Snapshot, RequestError> {
        let request = range_request(range);
        let read = self.ask(|channel| {
            let request = with_leader(request.clone());
            async move { key_values(channel).range(request).await }
        });
        let response = read.await?;
        Ok(Snapshot { revision: revision(response.header), found: KeyValue::all(response.kvs) })
    }

    /// Puts a value unconditionally.
    ///
    /// # Errors
    /// If no endpoint answers in time; the value may be stored nevertheless.
    pub async fn put(&self, key: &str, value: Bytes) -> Result<(), RequestError> {
        self.commit(Transaction::new().put(key, value)).await.map(|_| ())
    }

    /// Commits a transaction, perhaps more than once, since several endpoints may receive it. If it
    /// compares the keys that it changes, it commits at most once, and the outcome may be that of a
    /// late duplicate.
    ///
    /// # Errors
    /// If no endpoint answers in time; it may have been committed nevertheless.
    pub async fn commit(&self, transaction: Transaction) -> Result<Outcome, RequestError> {
        let request = transaction.into_request();
        let commit = self.ask(|channel| {
            let request = with_leader(request.clone());
            async move { key_values(channel).txn(request).await }
        });
        Ok(commit.await?.into())
    }

    /// Drops the history before `revision`; followers that have not reached it must read their
    /// range again.
    ///
    /// # Errors
    /// If no endpoint answers in time, or the revision is compacted.
    pub async fn compact(&self, revision: i64) -> Result<(), RequestError> {
        let compact = self.ask(|channel| {
            let request = with_leader(pb::CompactionRequest { revision, ..pb::CompactionRequest::default() });
            async move { key_values(channel).compact(request).await }
        });
        compact.await.map(|_| ())
    }

    /// Follows a range forever.
    #[must_use]
    pub fn follow(&self, range: Range) -> Follower {
        Follower::new(self.clone(), range.clone(), range)
    }

    /// Follows the changes of a range from now on: [`Update::Whole`](crate::Update::Whole) is
    /// empty.
    #[must_use]
    pub fn follow_changes(&self, range: Range) -> Follower {
        Follower::new(self.clone(), range, Range::nothing())
    }

    pub(crate) async fn watch(
        &self,
        range: &Range,
        from: i64,
    ) -> Result<Streaming<pb::WatchResponse>, RequestError> {
        let create = pb::WatchCreateRequest {
            key: range.from.clone().into(),
            range_end: range.end.clone().into(),
            start_revision: from,
            ..pb::WatchCreateRequest::default()
        };
        let request =
            pb::WatchRequest { request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)) };
        self.ask(|channel| {
            // etcd ends the watch when the request stream ends.
            let requests = tokio_stream::once(request.clone()).chain(tokio_stream::pending());
            let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
            async move { client.watch(with_leader(requests)).await }
        })
        .await
    }

    /// Tries one endpoint after another, beginning with the last that answered.
    async fn ask<T, F>(&self, request: impl Fn(Channel) -> F) -> Result<T, RequestError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let endpoints = &self.shared.endpoints;
        let first = self.shared.preferred.load(Ordering::Relaxed);
        let mut failures = vec![];
        for index in (first..endpoints.len()).chain(0..first) {
            let (endpoint, channel) = &endpoints[index];
            match tokio::time::timeout(REQUEST_DEADLINE, request(channel.clone())).await {
                Ok(Ok(answer)) => {
                    self.shared.prefer(index);
                    return Ok(answer.into_inner());
                }
                Ok(Err(status)) if !is_passing(&status) => {
                    return Err(RequestError::Refused { failure: Failure::told(endpoint, &status) });
                }
                Ok(Err(status)) => failures.push(Failure::told(endpoint, &status)),
                Err(_) => failures.push(Failure::late(endpoint, REQUEST_DEADLINE)),
            }
        }
        Err(RequestError::Unreachable { failures })
    }

    /// The endpoint that answered last.
    pub(crate) fn endpoint(&self) -> &str {
        &self.shared.endpoints[self.shared.preferred.load(Ordering::Relaxed)].0
    }
}

fn channel(endpoint: &str) -> Result<(String, Channel), EndpointError> {
    let address = match endpoint.split_once("://") {
        None => format!("http://{endpoint}"),
        Some(("http", _)) => endpoint.to_owned(),
        Some(("https", _)) => return Err(EndpointError::Encrypted { endpoint: endpoint.to_owned() }),
        Some(_) => return Err(malformed(endpoint, "it is of another protocol")),
    };
    let parsed = Endpoint::from_shared(address).map_err(|_| malformed(endpoint, "it is not an address"))?;
    if parsed.uri().port().is_none() {
        return Err(malformed(endpoint, "it has no port"));
    }
    let channel = parsed
        .connect_timeout(REQUEST_DEADLINE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PROBE_EVERY)
        .keep_alive_timeout(PROBE_FOR)
        .connect_lazy();
    Ok((endpoint.to_owned(), channel))
}

fn malformed(endpoint: &str, cause: &str) -> EndpointError {
    EndpointError::Malformed { endpoint: endpoint.to_owned(), cause: cause.to_owned() }
}

fn key_values(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES)
}

/// Asks that a member without a leader fails the request instead of delaying it.
fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

pub(crate) fn range_request(range: &Range) -> pb::RangeRequest {
    pb::RangeRequest {
        key: range.from.clone().into(),
        range_end: range.end.clone().into(),
        ..pb::RangeRequest::default()
    }
}

pub(crate) fn revision(header: Option<pb::ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}
