//! One module for each promised property (docs/design/erwin.md, "The promise").
//!
//! Checkers read the history after a run. The records' positions show the log's order, so each
//! check is a sort and a scan.

mod amnesia;
mod amplification;
mod at_most_once;
mod bounds_true;
mod chosen_shards;
mod confirmed_is_final;
mod copied_early;
mod delivered_all;
mod delivered_as_mapped;
mod delivered_in_order;
mod delivered_once;
mod drained;
mod durability;
mod fair;
mod fenced;
mod foretold;
mod freed;
mod goodput;
mod integrity;
mod kept_promises;
mod limits_kept;
mod liveness;
mod memory_bound;
mod misled;
mod no_gap;
mod no_needless_failure;
mod no_needless_resubmission;
mod no_needless_view;
mod no_unstable_reads;
mod operator;
mod position_at;
mod queues_bounded;
mod real_time_order;
mod receipts;
mod recovers;
mod removed_early;
mod retention;
mod session_end;
mod session_order;
mod skipped;
mod speculation_holds;
mod speculation_live;
mod speculation_order;
mod stable_prefix;
mod step_cost;
mod tail_above_acknowledged;
mod total_order;
mod trim;
mod undisturbed;
mod view_change_cost;

use std::fmt;

use crate::history::History;
pub(crate) use retention::APPLIED_LATE;

/// `Err` says where the property is violated.
pub type Finding = Result<(), String>;

/// A property's name and its check.
pub type Checker = (&'static str, fn(&History) -> Finding);

/// All checkers.
pub const ALL: [Checker; 50] = [
    ("total_order", total_order::check),
    ("real_time_order", real_time_order::check),
    ("receipts", receipts::check),
    ("session_end", session_end::check),
    ("session_order", session_order::check),
    ("durability", durability::check),
    ("stable_prefix", stable_prefix::check),
    ("no_unstable_reads", no_unstable_reads::check),
    ("tail_above_acknowledged", tail_above_acknowledged::check),
    ("at_most_once", at_most_once::check),
    ("no_gap", no_gap::check),
    ("amnesia", amnesia::check),
    ("kept_promises", kept_promises::check),
    ("liveness", liveness::check),
    ("trim", trim::check),
    ("integrity", integrity::check),
    ("no_needless_view", no_needless_view::check),
    ("no_needless_failure", no_needless_failure::check),
    ("no_needless_resubmission", no_needless_resubmission::check),
    ("goodput", goodput::check),
    ("recovers", recovers::check),
    ("amplification", amplification::check),
    ("memory_bound", memory_bound::check),
    ("fair", fair::check),
    ("step_cost", step_cost::check),
    ("view_change_cost", view_change_cost::check),
    ("retention", retention::check),
    ("limits_kept", limits_kept::check),
    ("freed", freed::check),
    ("position_at", position_at::check),
    ("drained", drained::check),
    ("copied_early", copied_early::check),
    ("removed_early", removed_early::check),
    ("operator", operator::check),
    ("skipped", skipped::check),
    ("chosen_shards", chosen_shards::check),
    ("misled", misled::check),
    ("foretold", foretold::check),
    ("confirmed_is_final", confirmed_is_final::check),
    ("speculation_order", speculation_order::check),
    ("speculation_holds", speculation_holds::check),
    ("speculation_live", speculation_live::check),
    ("delivered_once", delivered_once::check),
    ("delivered_in_order", delivered_in_order::check),
    ("delivered_all", delivered_all::check),
    ("delivered_as_mapped", delivered_as_mapped::check),
    ("bounds_true", bounds_true::check),
    ("fenced", fenced::check),
    ("queues_bounded", queues_bounded::check),
    ("undisturbed", undisturbed::check),
];

/// Checkers that also judge the second log, by its clients' answers and its final contents.
const OF_EACH_LOG: [Checker; 6] = [
    ("total_order", total_order::check),
    ("session_order", session_order::check),
    ("durability", durability::check),
    ("at_most_once", at_most_once::check),
    ("liveness", liveness::check),
    ("integrity", integrity::check),
];

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Name of the property.
    pub checker: &'static str,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)
    }
}

/// Runs all checkers.
#[must_use]
pub fn judge(history: &History) -> Vec<Objection> {
    let object = |(checker, check): &Checker| check(history).err().map(|what| Objection { checker, what });
    let of_second = |(checker, check): &Checker| {
        let what = check(history.second.as_ref()?).err()?;
        Some(Objection { checker, what: format!("second log: {what}") })
    };
    ALL.iter().filter_map(object).chain(OF_EACH_LOG.iter().filter_map(of_second)).collect()
}
