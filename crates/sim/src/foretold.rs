//! The part of a history that subscriptions which take predictions were told.

use seriatim_model::{NodeId, Position, RecordId};

use crate::chosen::Wanted;
use crate::history::{History, Moment};

/// A thing that a subscription which takes predictions was told, and when.
#[derive(Clone, Debug)]
pub struct Foretold {
    /// When.
    pub at: Moment,
    /// The thing.
    pub what: Foretelling,
}

/// One thing that it is told.
#[derive(Clone, Debug)]
pub enum Foretelling {
    /// A record that may fail, or not.
    Record {
        /// Its position.
        position: Position,
        /// Its name.
        id: RecordId,
        /// Whether it is a no-op, which nobody is to be given.
        is_void: bool,
    },
    /// Everything that it was told below is final.
    Confirm(Position),
    /// Everything that it was told there or above is void.
    Fail(Position),
    /// Everything below is gone.
    Trimmed(Position),
    /// The records from the first position to the second are lost.
    Lost(Position, Position),
}

/// A subscription that takes predictions.
#[derive(Clone, Debug, Default)]
pub struct Speculation {
    /// The records that it wants.
    pub wanted: Wanted,
    /// Everything that it was told.
    pub told: Vec<Foretold>,
    /// Its client is there still, and it has not come to what is lost.
    pub goes_on: bool,
}

impl History {
    /// A node's process ends.
    pub fn stops(&mut self, node: NodeId) {
        let at = self.tick();
        self.stopped.push((node, at));
    }

    /// A subscription that takes predictions begins. Returns its number.
    pub fn speculate(&mut self, wanted: Wanted) -> usize {
        self.speculations.push(Speculation { wanted, told: vec![], goes_on: true });
        self.speculations.len() - 1
    }

    /// It was told something.
    pub fn foretell(&mut self, speculation: usize, what: Foretelling) {
        let at = self.tick();
        self.speculations[speculation].told.push(Foretold { at, what });
    }
}
