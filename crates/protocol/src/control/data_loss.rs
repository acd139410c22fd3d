//! Why a view cannot be formed, and the loss if an operator lets the log continue.

use seriatim_model::storage::MissingRange;
use seriatim_model::{Gap, NodeId, Position, ShardId, ViewHistory, ViewNumber};

/// Why no view is possible at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// A necessary role does not answer.
    Waits(String),
    /// Necessary data is on no replica; only an operator can continue without it.
    Lost(Loss),
    /// The register was set back: `node` knows a later view than `registered`.
    Behind { node: NodeId, known: ViewNumber, registered: ViewNumber },
}

/// The loss if the log continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// The lost parts, for a person.
    pub(super) what: Vec<String>,
    /// Records below this position are kept, apart from `gaps`. `None`: all positions.
    pub(super) certain: Option<Position>,
    /// Positions that no participating replica is known to hold.
    pub(super) gaps: Vec<Gap>,
    /// Whether acknowledged appends from `certain` on may be lost.
    pub(super) tail: bool,
}

impl Loss {
    pub(super) fn of_retired(gaps: Vec<Gap>) -> Self {
        Self { gaps, ..Self::default() }
    }

    pub(super) fn with_retired(mut self, gaps: Vec<Gap>) -> Self {
        self.gaps.extend(gaps);
        self.gaps.sort();
        self
    }

    /// Adds the positions below `certain` that all replicas of a shard miss; `missing` has one
    /// range per replica. A position that one replica holds is copied to the others.
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
