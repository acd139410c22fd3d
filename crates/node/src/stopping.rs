//! Progress of a node's orderly stop.

use std::sync::Arc;
use std::time::Duration;

use crate::vitals::{Stage, Vitals};

/// A node's progress during an orderly stop, for the process that waits for its end.
#[derive(Clone, Debug)]
pub struct Stopping {
    node: u32,
    vitals: Arc<Vitals>,
}

impl Stopping {
    pub(crate) fn new(node: u32, vitals: Arc<Vitals>) -> Self {
        Self { node, vitals }
    }

    /// Describes what the stop waits for. `None` once the node has ended.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let lasting = |what: &str, time: Duration| format!("{what}, for {:.1} s so far", time.as_secs_f64());
        let what = match self.vitals.stage() {
            Stage::Runs => lasting("a step in progress", self.vitals.steps_for()),
            Stage::Writes if self.vitals.writes_for() > Duration::ZERO => {
                lasting("a write of its journal", self.vitals.writes_for())
            }
            Stage::Writes => "files that are being synced or deleted".to_owned(),
            Stage::Closes => "its disk, which syncs files and writes the last entries".to_owned(),
            Stage::Ended => return None,
        };
        Some(format!("node {}: {what}", self.node))
    }
}
