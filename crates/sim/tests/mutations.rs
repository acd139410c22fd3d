//! Each deliberate defect is noticed by the checker that is there for it, within a stated number of seeds.

use seriatim_sim::mutations::MUTATIONS;

#[test]
fn every_defect_is_caught_by_its_checker() {
    // What a defect trips over besides is reported by the run, not by the test's output.
    std::panic::set_hook(Box::new(|_| {}));
    let missed: Vec<String> = MUTATIONS
        .iter()
        .filter(|mutation| mutation.caught().is_none())
        .map(|mutation| {
            format!(
                "{:?}: '{}' did not object within {} seeds",
                mutation.deviation, mutation.checker, mutation.within
            )
        })
        .collect();
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_defect_is_in_the_list_once() {
    let mut deviations: Vec<_> = MUTATIONS.iter().map(|mutation| mutation.deviation).collect();
    deviations.sort();
    deviations.dedup();
    assert_eq!(deviations.len(), MUTATIONS.len());
}
