//! Why a view cannot be formed; and what is lost if an operator lets the log go on.

use seriatim_model::storage::MissingRange;
use seriatim_model::{Gap, NodeId, Position, ShardId, ViewHistory, ViewNumber};

/// Why there can be no view at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A role that does not answer is needed.
    Waits(String),
    /// Data that no replica holds any more is needed. Only an operator can go on without it.
    Lost(Loss),
    /// The register was set back: a node knows a later registered view.
    Behind {
        /// The node.
        node: NodeId,
        /// The view that it knows.
        known: ViewNumber,
        /// The view that the register knows.
        registered: ViewNumber,
    },
}

/// The parts that are kept and lost if the log goes on without what no replica holds any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// The parts that no replica holds, for a person.
    pub(super) what: Vec<String>,
    /// Positions below it are kept, apart from `gaps`. None: all positions.
    pub(super) certain: Option<Position>,
    /// The positions that no replica that takes part is known to hold.
    pub(super) gaps: Vec<Gap>,
    /// Whether acknowledged appends at `certain` and above may be lost.
    pub(super) tail: bool,
}

impl Loss {
    /// Positions of retired shards alone are lost.
    pub(super) fn of_retired(gaps: Vec<Gap>) -> Self {
        Self { gaps, ..Self::default() }
    }

    /// The same, and positions of retired shards.
    pub(super) fn with_retired(mut self, gaps: Vec<Gap>) -> Self {
        self.gaps.extend(gaps);
        self.gaps.sort();
        self
    }

    /// Notes the positions below `certain` that none of the replicas of a shard holds that are to
    /// go on with it; `missing` has those of each. A replica gets the positions that only another
    /// one holds from that one.
    pub(super) fn add_shard(
        &mut self,
        (shard, begins, certain): (ShardId, Position, Position),
        is_complete: bool,
        missing: impl Iterator<Item = MissingRange>,
        history: &ViewHistory,
    ) {
        if !is_complete {
            self.what.push(format!("the replicas of shard {shard}"));
        }
        let everything = MissingRange { from: begins, end: certain };
        let MissingRange { from, end } =
            missing.fold(everything, MissingRange::meet).without(history.gaps_of(shard));
        if from < end {
            self.gaps.push(Gap { shard, from, end });
        }
    }
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Waits(why) => f.write_str(why),
            Self::Behind { node, known, registered } => write!(
                f,
                "the register is behind: node {node} knows view {known}, and the register knows only view \
                 {registered}; it was restored from an older state, and a view formed from that would replace \
                 acknowledged records, so no view is formed; restore the register's latest state; readable \
                 records stay readable"
            ),
            Self::Lost(loss) => write!(
                f,
                "{} restarted without their memory, the only copy of some records: no view can be formed; \
                 readable records stay readable; 'seriatim admin recover' shows what would be lost",
                loss.what.join(" and ")
            ),
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.certain {
            None => f.write_str("all positions are certain")?,
            Some(certain) => write!(f, "positions below {certain} are certain")?,
        }
        for Gap { shard, from, end } in &self.gaps {
            write!(
                f,
                ", except those of shard {shard} from {from} to {end}, which no replica is known to hold"
            )?;
        }
        if let Some(certain) = self.certain.filter(|_| self.tail) {
            write!(
                f,
                "; appends acknowledged beyond {certain} may be gone, and clients that repeat appends from before may \
                 append them twice"
            )?;
        }
        Ok(())
    }
}
