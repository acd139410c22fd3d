//! Each deliberate defect is noticed by its checker within a stated number of seeds.

mod shares;

use seriatim_protocol::Mutation;
use seriatim_sim::mutations::{Detection, MUTATIONS, detection};
use seriatim_sim::profiles;

use shares::run_share;

#[test]
fn every_defect_is_caught_by_its_checker() {
    // The run reports panics caused by a defect; the test's output does not.
    std::panic::set_hook(Box::new(|_| {}));
    let missed = run_share(&MUTATIONS, |detection| {
        let Detection { mutation, checker, within, .. } = detection;
        let is_missed = detection.caught().is_none();
        is_missed.then(|| format!("{mutation:?}: '{checker}' did not object within {within} seeds"))
    });
    let _ = std::panic::take_hook();
    let missed: Vec<String> = missed.into_iter().flatten().collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The list has one checker and one order per defect. Another defect tests this checker's bound on
/// written bytes.
#[test]
fn view_changes_that_send_all_again_and_again_are_caught_by_what_they_send() {
    let (mutation, checker) = (Mutation::ResentWithoutBackoff, "view_change_cost");
    let detection = detection(mutation, checker, 10, profiles::LONG_VIEW_CHANGE);
    let (_, objection) = detection.caught().expect("it objects");
    assert!(objection.what.contains("bytes were sent"), "{objection}");
}

#[test]
fn successors_that_a_view_change_of_scalog_forgets_are_missed() {
    let (mutation, checker) = (Mutation::SuccessorForgotten, "at_most_once");
    let detection = detection(mutation, checker, 20, profiles::RESUMED).of(|order| order.has_cuts);
    assert!(detection.caught().is_some(), "nothing was in the log twice");
}

/// With this defect, a cut that some members lack confirms predictions.
#[test]
fn predictions_of_belfast_that_are_confirmed_too_early_are_taken_back() {
    let (mutation, checker) = (Mutation::HoldsUncommitted, "confirmed_is_final");
    let detection = detection(mutation, checker, 20, profiles::FORETOLD).of(|order| order.has_quotas);
    assert!(detection.caught().is_some(), "nothing was confirmed that is not final");
}

/// In this order a replica reports its own applied prefix. It counts as complete only in the view
/// that it left; then it accepts no cut of lost records, and the log is stalled.
#[test]
fn a_disk_that_goes_back_unnoticed_stops_a_log_of_scalog() {
    let (mutation, checker) = (Mutation::SetBackUnnoticed, "liveness");
    let detection = detection(mutation, checker, 20, profiles::SET_BACK).of(|order| order.has_cuts);
    assert!(detection.caught().is_some(), "the log went on");
}

#[test]
fn every_defect_is_in_the_list_once() {
    let mut mutations: Vec<_> = MUTATIONS.iter().map(|detection| detection.mutation).collect();
    mutations.sort();
    mutations.dedup();
    assert_eq!(mutations.len(), MUTATIONS.len());
}
