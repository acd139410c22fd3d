//! A node acts as member of a view only in the incarnation that the registered view names.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    for (claim, at) in &history.claims {
        let member = claim.member;
        let who = format!("node {}, incarnation {:x}", member.node, member.incarnation.0);
        match history.views.get(&claim.view) {
            Some(known) if known.view.names_sequencer(member) && known.at < *at => {}
            Some(known) if known.at >= *at => {
                return Err(format!(
                    "{who} {} in view {} before that was registered",
                    claim.what, claim.view
                ));
            }
            Some(_) => {
                return Err(format!("{who} {} in view {}, which does not name it", claim.what, claim.view));
            }
            None => {
                return Err(format!(
                    "{who} {} in view {}, which was never registered",
                    claim.what, claim.view
                ));
            }
        }
    }
    Ok(())
}
