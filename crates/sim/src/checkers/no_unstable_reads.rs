//! Only final positions are served: below the start of a registered view, or ordered by all of its
//! sequencing replicas. Where records get positions first: written by all replicas of the shard,
//! with all its lower positions.

use super::Finding;
use crate::history::History;

pub(super) fn check(history: &History) -> Finding {
    let last = history.placement();
    for seen in &history.observations {
        let shard = match history.accepted {
            Some(_) => history.placement_at(seen.at).shard_of(seen.position),
            None => last.shard_of(seen.position),
        };
        let written = history.written_at(shard, seen.at);
        let stable = history.stable_at(seen.at).max(written);
        if seen.position >= stable {
            return Err(format!(
                "position {} was read at moment {}, when only positions below {stable} were final",
                seen.position, seen.at
            ));
        }
    }
    for told in &history.maps {
        let (stable, end) = (history.stable_at(told.at), told.from + told.positions());
        if told.from < end && end > stable {
            return Err(format!(
                "a reader was told at moment {} whose the positions up to {end} are, when only those below {stable} \
                 were final",
                told.at
            ));
        }
    }
    for append in &history.appends {
        if let (Some(position), Some(at), true) =
            (append.position, append.positioned, !history.config.order.places_first())
            && position >= history.stable_at(at)
        {
            return Err(format!("{:?} was told position {position} before that was final", append.payload));
        }
    }
    Ok(())
}
