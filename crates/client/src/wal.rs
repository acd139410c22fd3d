//! Transactions over several targets of a player.
//!
//! A player with `map = "wal"` delivers each mutation to its target, in the order of the log and
//! once. The log stores the transaction as one record, so either all targets receive their part or
//! no target does.
//!
//! ```
//! use seriatim_client::wal::Transaction;
//!
//! # fn main() -> Result<(), seriatim_client::wal::WalError> {
//! let transfer = Transaction::new().put("ledger", "alice -5").put("audit", "alice pays bob 5");
//! let record = transfer.into_record()?;
//! # Ok(())
//! # }
//! ```
//!
//! A program that must not append a transaction twice appends in a session, and resumes the session
//! after a restart ([`LogOptions::resume`](crate::LogOptions::resume)).

use bytes::Bytes;
use seriatim_model::wal::{self, Mutation};

pub use seriatim_model::limits::MAX_TRANSACTION_MUTATIONS;
pub use seriatim_model::wal::WalError;

use crate::Record;

/// Mutations of one or more targets, delivered as one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    mutations: Vec<Mutation>,
}

impl Transaction {
    /// A transaction without mutations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mutation for a target. A target applies several mutations in order, as a unit.
    #[must_use]
    pub fn put(mut self, target: impl Into<String>, mutation: impl Into<Bytes>) -> Self {
        self.mutations.push((target.into(), mutation.into()));
        self
    }

    /// The record to append. It has the header of a transaction, which
    /// [`Record::with_headers`] would replace.
    ///
    /// # Errors
    /// [`WalError::TooMany`] above [`MAX_TRANSACTION_MUTATIONS`], and [`WalError::NotAnId`] for a
    /// target id that breaks the rule of log names.
    pub fn into_record(self) -> Result<Record, WalError> {
        let payload = wal::encode(self.mutations)?;
        Ok(Record::from(payload).with_headers(vec![wal::header()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_holds_the_mutations_in_order() {
        let transaction = Transaction::new().put("ledger", "a").put("audit", "b").put("ledger", "c");
        let record = transaction.into_record().unwrap().with_key("k").stamp();
        let mutations = [("ledger", "a"), ("audit", "b"), ("ledger", "c")];
        let mutations = mutations.map(|(target, mutation)| (target.to_owned(), Bytes::from(mutation)));
        assert_eq!(wal::decode(&record), Ok(Some(mutations.to_vec())));
        assert_eq!(record.key(), Some("k".into()));
    }

    #[test]
    fn an_invalid_transaction_makes_no_record() {
        let refused = Transaction::new().put("a/b", "").into_record();
        assert_eq!(refused, Err(WalError::NotAnId { id: "a/b".into() }));
        let many = (0..1_025).fold(Transaction::new(), |all, _| all.put("a", ""));
        assert_eq!(many.into_record(), Err(WalError::TooMany { count: 1_025 }));
    }
}
