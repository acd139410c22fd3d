//! Transactions: comparisons, and the operations if all of them hold.

use bytes::Bytes;

use crate::client::range_request;
use crate::generated::etcdserverpb as pb;
use crate::range::{KeyValue, Range};

/// A transaction. etcd carries it out whole, or only the reads of [`or_get`](Self::or_get).
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    request: pb::TxnRequest,
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The results of the executed reads, in order.
    pub found: Vec<Vec<KeyValue>>,
    /// The outcomes of nested transactions, in order.
    pub within: Vec<Outcome>,
}

impl Outcome {
    /// Takes the result of read `index`; empty if there is none.
    #[must_use]
    pub fn take(&mut self, index: usize) -> Vec<KeyValue> {
        self.found.get_mut(index).map(std::mem::take).unwrap_or_default()
    }
}

impl Transaction {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requires that `key` was put `version` times since its creation; 0: it does not exist.
    #[must_use]
    pub fn if_version(self, key: &str, version: i64) -> Self {
        let target = pb::compare::TargetUnion::Version(version);
        self.compare(key, pb::compare::CompareTarget::Version, target)
    }

    /// Requires that the last put of `key` was at `revision`; 0: it does not exist.
    #[must_use]
    pub fn if_modified_at(self, key: &str, revision: i64) -> Self {
        let target = pb::compare::TargetUnion::ModRevision(revision);
        self.compare(key, pb::compare::CompareTarget::Mod, target)
    }

    /// Requires that `key` has this value.
    #[must_use]
    pub fn if_value(self, key: &str, value: Bytes) -> Self {
        let target = pb::compare::TargetUnion::Value(value);
        self.compare(key, pb::compare::CompareTarget::Value, target)
    }

    fn compare(
        mut self,
        key: &str,
        target: pb::compare::CompareTarget,
        value: pb::compare::TargetUnion,
    ) -> Self {
        self.request.compare.push(pb::Compare {
            result: pb::compare::CompareResult::Equal.into(),
            target: target.into(),
            key: key.to_owned().into(),
            target_union: Some(value),
            ..pb::Compare::default()
        });
        self
    }

    /// Puts a value if the comparisons hold.
    #[must_use]
    pub fn put(mut self, key: &str, value: Bytes) -> Self {
        let put = pb::PutRequest { key: key.to_owned().into(), value, ..pb::PutRequest::default() };
        self.request.success.push(operation(pb::request_op::Request::RequestPut(put)));
        self
    }

    /// Deletes a key if the comparisons hold.
    #[must_use]
    pub fn delete(mut self, key: &str) -> Self {
        let delete =
            pb::DeleteRangeRequest { key: key.to_owned().into(), ..pb::DeleteRangeRequest::default() };
        self.request.success.push(operation(pb::request_op::Request::RequestDeleteRange(delete)));
        self
    }

    /// Reads if the comparisons hold, after earlier puts and deletions.
    #[must_use]
    pub fn get(mut self, range: &Range) -> Self {
        self.request.success.push(read(range));
        self
    }

    /// Nests a transaction with its own comparisons. Two of them must not change the same key.
    #[must_use]
    pub fn and(mut self, within: Self) -> Self {
        self.request.success.push(operation(pb::request_op::Request::RequestTxn(within.request)));
        self
    }

    /// Reads if a comparison does not hold.
    #[must_use]
    pub fn or_get(mut self, range: &Range) -> Self {
        self.request.failure.push(read(range));
        self
    }

    pub(crate) fn into_request(self) -> pb::TxnRequest {
        self.request
    }
}

fn operation(request: pb::request_op::Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

fn read(range: &Range) -> pb::RequestOp {
    operation(pb::request_op::Request::RequestRange(range_request(range)))
}

impl From<pb::TxnResponse> for Outcome {
    fn from(response: pb::TxnResponse) -> Self {
        let mut outcome = Self { succeeded: response.succeeded, found: vec![], within: vec![] };
        for operation in response.responses {
            match operation.response {
                Some(pb::response_op::Response::ResponseRange(found)) => {
                    outcome.found.push(KeyValue::all(found.kvs));
                }
                Some(pb::response_op::Response::ResponseTxn(within)) => outcome.within.push(within.into()),
                _ => {}
            }
        }
        outcome
    }
}
