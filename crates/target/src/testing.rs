//! A target in memory, for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::{ApplyError, AttachError, Batch, Message, Session, Stored, Target};

/// Applies messages by appending them to a list. Clones share their data, as the processes of a
/// service share its database.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    data: Mutex<Data>,
    /// Whether calls of `apply` wait.
    held: watch::Sender<bool>,
    /// Number of calls of `apply` that began.
    begun: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Data {
    stored: HashMap<(String, String), Stored>,
    messages: Vec<Message>,
    rejected: Option<u64>,
}

impl Memory {
    /// The applied messages of all pairs of player and target id.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.data().messages.clone()
    }

    /// The bound of the only pair of player and target id.
    ///
    /// # Panics
    /// If there are several pairs, or none.
    #[must_use]
    pub fn bound(&self) -> u64 {
        let data = self.data();
        assert_eq!(data.stored.len(), 1);
        data.stored.values().map(|stored| stored.bound).sum()
    }

    /// Rejects the message at a position from now on. `None`: rejects none.
    pub fn reject(&self, position: Option<u64>) {
        self.data().rejected = position;
    }

    /// Lets calls of `apply` wait, or continue.
    pub fn hold(&self, is_held: bool) {
        self.shared.held.send_replace(is_held);
    }

    /// Waits until `count` calls of `apply` have begun.
    ///
    /// # Panics
    /// Never: the sender lives as long as `self`.
    pub async fn begun(&self, count: u64) {
        let mut begun = self.shared.begun.subscribe();
        begun.wait_for(|begun| *begun >= count).await.expect("the sender lives");
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.shared.data.lock().expect("no thread panics with this lock")
    }
}

impl Target for Memory {
    async fn attach(&self, session: &Session, adopts: Option<u64>) -> Result<u64, AttachError> {
        let mut data = self.data();
        let pair = (session.stream.player.clone(), session.target.clone());
        let stored = Stored::attach(data.stored.get(&pair).cloned(), session, adopts)?;
        let bound = stored.bound;
        data.stored.insert(pair, stored);
        Ok(bound)
    }

    async fn apply(&self, session: &Session, batch: &Batch) -> Result<(), ApplyError> {
        self.shared.begun.send_modify(|begun| *begun += 1);
        let mut held = self.shared.held.subscribe();
        held.wait_for(|is_held| !is_held).await.expect("the sender lives");

        let mut data = self.data();
        let pair = (session.stream.player.clone(), session.target.clone());
        let mut stored = Stored::apply(data.stored.get(&pair).cloned(), session, batch)?;
        let rejected = batch.messages.iter().find(|message| Some(message.position) == data.rejected);
        let applied = batch.messages.iter().take_while(|message| Some(*message) != rejected);
        let applied: Vec<Message> = applied.cloned().collect();
        let outcome = match rejected {
            Some(&Message { position, .. }) => {
                stored.bound = position;
                Err(ApplyError::Rejected { position, reason: "the test rejects it".into() })
            }
            None => Ok(()),
        };
        data.messages.extend(applied);
        data.stored.insert(pair, stored);
        outcome
    }
}
