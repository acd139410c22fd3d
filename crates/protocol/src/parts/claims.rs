//! Comparison of a claim with known views.

use seriatim_model::ViewNumber;

/// Whether a claim, made when `old` was registered, shows that the register is behind the
/// registered view `known`. The claim of `known` itself may be a late message: only its controller
/// can tell.
pub(crate) fn shows_register_behind(claim: ViewNumber, old: ViewNumber, known: ViewNumber) -> bool {
    old < known && known <= claim
}
