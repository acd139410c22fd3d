//! In the end every prediction is confirmed or has failed.

use seriatim_model::Position;

use super::Finding;
use crate::history::{End, Foretelling, History};

pub(super) fn check(history: &History) -> Finding {
    let End::AtRest { tail, .. } = history.end else { return Ok(()) };
    for speculation in history.speculations.iter().filter(|speculation| speculation.goes_on) {
        let mut open: Vec<Position> = vec![];
        for told in &speculation.told {
            match told.what {
                Foretelling::Record { position, .. } => open.push(position),
                Foretelling::Confirm(upto) | Foretelling::Trimmed(upto) => {
                    open.retain(|position| *position >= upto);
                }
                Foretelling::Fail(after) => open.retain(|position| *position < after),
                Foretelling::Lost(..) => {}
            }
        }
        if let Some(position) = open.iter().find(|position| **position < tail) {
            return Err(format!("{position} was told and is neither confirmed nor taken back"));
        }
    }
    Ok(())
}
