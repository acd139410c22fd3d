//! Events that subscriptions with predictions received.

use seriatim_model::{NodeId, Position, RecordId};

use crate::chosen::Wanted;
use crate::history::{History, Moment};

/// An event of a subscription with predictions.
#[derive(Clone, Debug)]
pub struct Foretold {
    /// Its moment.
    pub at: Moment,
    /// The event.
    pub what: Foretelling,
}

/// Content of such an event.
#[derive(Clone, Debug)]
pub enum Foretelling {
    /// A record that may fail.
    Record {
        /// Its position.
        position: Position,
        /// Its id.
        id: RecordId,
        /// Whether it is a no-op, which no reader may receive.
        is_void: bool,
    },
    /// All records received below this position are final.
    Confirm(Position),
    /// All records received at or above this position are void.
    Fail(Position),
    /// All records below this position were trimmed.
    Trimmed(Position),
    /// The records from the first position up to the second are lost.
    Lost(Position, Position),
}

/// A subscription with predictions.
#[derive(Clone, Debug, Default)]
pub struct Speculation {
    /// Its filter.
    pub wanted: Wanted,
    /// Its events.
    pub told: Vec<Foretold>,
    /// Whether its client lives, and the subscription reached no lost record.
    pub goes_on: bool,
}

impl History {
    /// Notes the end of a node's process.
    pub fn stops(&mut self, node: NodeId) {
        let at = self.tick();
        self.stopped.push((node, at));
    }

    /// Begins a subscription that also receives predictions. Returns its number.
    pub fn speculate(&mut self, wanted: Wanted) -> usize {
        self.speculations.push(Speculation { wanted, told: vec![], goes_on: true });
        self.speculations.len() - 1
    }

    /// Notes an event of a subscription with predictions.
    pub fn foretell(&mut self, speculation: usize, what: Foretelling) {
        let at = self.tick();
        self.speculations[speculation].told.push(Foretold { at, what });
    }
}
