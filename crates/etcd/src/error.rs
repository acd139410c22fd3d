//! The errors of etcd requests, and their remedies.

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

/// An unusable endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// No endpoint is given.
    #[error("no etcd endpoint is given; name at least one, such as 127.0.0.1:2379")]
    None,
    /// It requires TLS.
    #[error("the etcd endpoint '{endpoint}' wants TLS, which is not supported; give http://host:port")]
    Encrypted {
        /// The endpoint.
        endpoint: String,
    },
    /// It is no address.
    #[error("'{endpoint}' is not an etcd endpoint ({cause}); give http://host:port or host:port")]
    Malformed {
        /// The endpoint.
        endpoint: String,
        /// The fault in it.
        cause: String,
    },
}

/// Why a request failed. Transactions may be committed nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No endpoint answers.
    #[error("etcd does not answer ({}); start it, or correct its endpoints", join(.failures))]
    Unreachable {
        /// One failure per endpoint.
        failures: Vec<Failure>,
    },
    /// An endpoint refuses the request.
    #[error("etcd refuses: {failure}")]
    Refused {
        /// The endpoint and its reason.
        failure: Failure,
    },
}

/// One endpoint's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The endpoint.
    pub endpoint: String,
    /// Its cause.
    pub cause: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.cause)
    }
}

/// The database is at its quota: etcd takes no writes until its alarm is disarmed.
const OUT_OF_SPACE: &str = "database space exceeded";
const MAKE_SPACE: &str = "old versions of its keys fill it: run 'etcdctl compact REVISION' with its present revision, 'etcdctl defrag' and \
     'etcdctl alarm disarm', and start etcd with --auto-compaction-retention=1h";

impl Failure {
    pub(crate) fn late(endpoint: &str, deadline: Duration) -> Self {
        let cause = format!("no answer within {} s", deadline.as_secs());
        Self { endpoint: endpoint.to_owned(), cause }
    }

    /// Takes the innermost cause ("connection refused" instead of "transport error") and adds a
    /// known remedy.
    pub(crate) fn told(endpoint: &str, status: &Status) -> Self {
        let mut cause: &dyn std::error::Error = status;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let has_source = std::error::Error::source(status).is_some();
        let cause = if has_source { cause.to_string() } else { status.message().to_owned() };
        let cause = if cause.contains(OUT_OF_SPACE) { format!("{cause}; {MAKE_SPACE}") } else { cause };
        Self { endpoint: endpoint.to_owned(), cause }
    }
}

/// Whether another endpoint may succeed.
pub(crate) fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal
    )
}

fn join(failures: &[Failure]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_without_space_is_reported_with_the_remedy() {
        let told = |words: &str| Failure::told("e", &Status::resource_exhausted(words)).to_string();
        let full = told("etcdserver: mvcc: database space exceeded");
        assert!(full.starts_with("e: etcdserver: mvcc: database space exceeded; "), "{full}");
        for step in ["compact", "defrag", "alarm disarm", "--auto-compaction-retention"] {
            assert!(full.contains(step), "{full}");
        }
        assert_eq!(told("etcdserver: too many requests"), "e: etcdserver: too many requests");
    }
}
