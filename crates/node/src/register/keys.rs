//! The values in etcd and their keys.
//!
//! | key below `seriatim/<cluster>/` | value |
//! |---|---|
//! | `cluster` | the cluster's id, drawn by the first node |
//! | `last-log` | the last id given to a log |
//! | `log/<id>` | the log's entry; the key's version is the entry's version + 1 |
//! | `name/<name>` | the log's id, and the question that created it |
//! | `node/<id>` | the node's address |
//! | `parting/<id>` | whether a node is drained or removed |
//! | `retiring/<id>` | the nodes that have not yet forgotten a deleted log |
//!
//! A value is a format byte, then the wire encoding of its type.

use bytes::Bytes;
use seriatim_etcd::{KeyValue, Range};
use seriatim_model::wire::{Encoder, Wire, decode_one, wire_struct};
use seriatim_model::{LogId, NodeId};

/// Newest known format.
const FORMAT: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) log: LogId,
    /// The question that created the log. It may be repeated if its answer was lost.
    pub(super) request: u64,
}

wire_struct! { Named { log, request } }

/// A value in etcd that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A newer program wrote the value.
    #[error(
        "the key '{key}' in etcd has format {found}, and this program knows formats up to {FORMAT}: use a newer seriatim"
    )]
    Newer {
        /// The key.
        key: String,
        /// Value format.
        found: u8,
    },
    /// Another program wrote the value.
    #[error(
        "the key '{key}' in etcd has a value that is not Seriatim's ({cause}); restore etcd's latest state, and let no other program write below 'seriatim/': a log forms no view from a state that lacks its latest view"
    )]
    Damaged {
        /// The key.
        key: String,
        /// The damage.
        cause: String,
    },
}

pub(super) fn encode<T: Wire>(value: &T) -> Bytes {
    let mut out = Encoder::new();
    out.put(&[FORMAT]);
    value.encode(&mut out);
    out.finish_contiguous()
}

pub(super) fn decode<T: Wire>(stored: &KeyValue) -> Result<T, ValueError> {
    let key = || stored.key.clone();
    let damaged = |cause: String| ValueError::Damaged { key: key(), cause };
    match stored.value.first() {
        Some(&FORMAT) => decode_one(stored.value.slice(1..)).map_err(|cause| damaged(cause.to_string())),
        Some(0) | None => Err(damaged("it names no format".into())),
        Some(&found) => Err(ValueError::Newer { key: key(), found }),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    Node(NodeId),
    Parting(NodeId),
    Retiring(LogId),
}

#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(cluster: &str) -> Self {
        Self { prefix: format!("seriatim/{cluster}/") }
    }

    pub(super) fn cluster(&self) -> String {
        self.key("cluster")
    }

    pub(super) fn last_log(&self) -> String {
        self.key("last-log")
    }

    pub(super) fn log(&self, log: LogId) -> String {
        self.key(&format!("log/{}", log.0))
    }

    pub(super) fn logs(&self) -> Range {
        Range::prefix(&self.key("log/"))
    }

    pub(super) fn name(&self, name: &str) -> String {
        self.key(&format!("name/{name}"))
    }

    pub(super) fn node(&self, node: NodeId) -> String {
        self.key(&format!("node/{}", node.0))
    }

    pub(super) fn nodes(&self) -> Range {
        Range::prefix(&self.key("node/"))
    }

    pub(super) fn parting(&self, node: NodeId) -> String {
        self.key(&format!("parting/{}", node.0))
    }

    pub(super) fn partings(&self) -> Range {
        Range::prefix(&self.key("parting/"))
    }

    pub(super) fn all_retiring(&self) -> Range {
        Range::prefix(&self.key("retiring/"))
    }

    pub(super) fn retiring(&self, log: LogId) -> String {
        self.key(&format!("retiring/{}", log.0))
    }

    /// The keys that every node follows: nodes, partings and retiring logs are neighbours in key
    /// order.
    pub(super) fn followed(&self) -> Range {
        Range::between(&self.key("node/"), &self.key("retiring/"))
    }

    /// The node or log that a followed key is about; `None` for other keys.
    pub(super) fn about(&self, key: &str) -> Option<Followed> {
        let (kind, id) = key.strip_prefix(&self.prefix)?.split_once('/')?;
        match kind {
            "node" => id.parse().ok().map(|id| Followed::Node(NodeId(id))),
            "parting" => id.parse().ok().map(|id| Followed::Parting(NodeId(id))),
            "retiring" => id.parse().ok().map(|id| Followed::Retiring(LogId(id))),
            _ => None,
        }
    }

    /// The log whose entry has this key; `None` for keys outside of [`logs`](Self::logs).
    pub(super) fn log_of(&self, key: &str) -> Option<LogId> {
        key.strip_prefix(&self.prefix)?.strip_prefix("log/")?.parse().ok().map(LogId)
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(value: &[u8]) -> KeyValue {
        KeyValue { key: "k".into(), value: value.to_vec().into(), modified_at: 1 }
    }

    #[test]
    fn values_name_their_format() {
        let value = encode(&LogId(7));
        assert_eq!(value[..], [1, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&stored(&value)), Ok(LogId(7)));
        assert_eq!(decode::<LogId>(&stored(&[2, 7])), Err(ValueError::Newer { key: "k".into(), found: 2 }));
        for damaged in [&[][..], &[0], &[1, 7], b"hello"] {
            assert!(decode::<LogId>(&stored(damaged)).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn keys_are_told_apart() {
        let keys = Keys::new("a.b-c");
        assert_eq!(keys.log(LogId(3)), "seriatim/a.b-c/log/3");
        assert_eq!(keys.about(&keys.node(NodeId(2))), Some(Followed::Node(NodeId(2))));
        assert_eq!(keys.about(&keys.retiring(LogId(9))), Some(Followed::Retiring(LogId(9))));
        assert_eq!(keys.about(&keys.parting(NodeId(2))), Some(Followed::Parting(NodeId(2))));
        assert!(
            keys.key("node/") < keys.parting(NodeId(0)) && keys.parting(NodeId(9)) < keys.key("retiring/")
        );
        assert_eq!(keys.about(&keys.name("node")), None);
        assert_eq!(keys.about("seriatim/a.b-c/node/x"), None);
        assert_eq!(keys.about("seriatim/other/node/1"), None);
        assert_eq!(keys.log_of(&keys.log(LogId(3))), Some(LogId(3)));
        assert_eq!(keys.log_of(&keys.name("3")), None);
    }

    #[test]
    fn what_is_followed_holds_nothing_that_changes_with_every_view() {
        let keys = Keys::new("a");
        for key in [keys.log(LogId(1)), keys.last_log(), keys.name("x"), keys.cluster()] {
            assert!(key < keys.key("node/"), "{key}");
        }
    }
}
