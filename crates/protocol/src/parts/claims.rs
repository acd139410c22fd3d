//! A claim, beside what its receiver knows.

use seriatim_model::ViewNumber;

/// Whether a claim, made when `old` was registered, shows the register to be behind to a role that
/// knows that the view `known` was registered. The claim of that view itself is among those that
/// do: it may be one that is late, and only its controller can tell.
pub(crate) fn shows_register_behind(claim: ViewNumber, old: ViewNumber, known: ViewNumber) -> bool {
    old < known && known <= claim
}
