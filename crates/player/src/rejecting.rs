//! Search for the message that a target rejects.

use crate::{ApplyError, Batch};

/// Why a transaction failed.
pub(crate) enum Failure {
    /// The target refused the messages, and no retry can succeed. Nothing changed.
    Rejected(String),
    Other(ApplyError),
}

impl Failure {
    pub(crate) fn broken(reason: String) -> Self {
        Self::Other(ApplyError::Broken { reason })
    }

    /// The answer to `single`, a batch of at most one message.
    pub(crate) fn answer(self, single: &Batch) -> ApplyError {
        match (self, single.messages.first()) {
            (Self::Other(error), _) => error,
            (Self::Rejected(reason), Some(message)) => {
                ApplyError::Rejected { position: message.position, reason }
            }
            (Self::Rejected(reason), None) => ApplyError::Broken { reason },
        }
    }
}

/// Splits a batch into batches of one message each, to find the message that a target rejects.
///
/// Each one ends at the position of the next message, so the bound in front of a rejected message
/// is the message's position. An empty batch precedes a first message above the batch's begin.
pub(crate) fn singles(batch: &Batch) -> Vec<Batch> {
    let mut after = batch.after;
    let mut singles = Vec::new();
    if let Some(first) = batch.messages.first().filter(|first| first.position > after) {
        singles.push(Batch { after, upto: first.position, messages: Vec::new() });
        after = first.position;
    }
    for (index, message) in batch.messages.iter().enumerate() {
        let upto = batch.messages.get(index + 1).map_or(batch.upto, |next| next.position);
        singles.push(Batch { after, upto, messages: vec![message.clone()] });
        after = upto;
    }
    singles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::suite::batch;

    #[test]
    fn singles_join_without_a_gap() {
        let singles = singles(&batch(3, 9, [5, 7]));
        let bounds: Vec<_> = singles.iter().map(|s| (s.after.0, s.upto.0, s.messages.len())).collect();
        assert_eq!(bounds, [(3, 5, 0), (5, 7, 1), (7, 9, 1)]);
    }
}
