//! Comparison of a controller's claim (the number of the view that it wants to form) with known
//! views.

use seriatim_model::ViewNumber;

/// Whether a controller's register is behind: the register gave it `old` as the latest view, but
/// the later view `known`, not above its `claim`, is registered. If `known` equals `claim`, its
/// message may just be late: only the controller of `known` can tell.
pub(crate) fn shows_register_behind(claim: ViewNumber, old: ViewNumber, known: ViewNumber) -> bool {
    old < known && known <= claim
}
