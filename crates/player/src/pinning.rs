//! The player's pin: it keeps the log from being trimmed above the lowest bound of the targets.

use std::time::Duration;

use seriatim_client::{Log, Position};
use tokio::sync::{mpsc, watch};

use crate::runner::Happening;

/// Least time between two moves of the pin.
const RAISE_EVERY: Duration = Duration::from_secs(10);

/// Starts a task that raises the pin `name` to the position last sent.
pub(crate) fn start(
    log: Log,
    name: String,
    happenings: mpsc::Sender<Happening>,
) -> watch::Sender<Option<Position>> {
    let (sender, mut bounds) = watch::channel(None);
    tokio::spawn(async move {
        let mut pinned = None;
        while bounds.changed().await.is_ok() {
            let bound = *bounds.borrow_and_update();
            // A restored target may have a lower bound; a pin moves only up.
            let Some(position) = bound.filter(|bound| pinned < Some(*bound)) else { continue };
            let problem = match raise(&log, &name, position).await {
                Ok(problem) => {
                    pinned = Some(position);
                    problem
                }
                Err(problem) => {
                    bounds.mark_changed();
                    Some(problem)
                }
            };
            if let Some(problem) = problem
                && happenings.send(Happening::Notice(problem)).await.is_err()
            {
                return;
            }
            tokio::time::sleep(RAISE_EVERY).await;
        }
    });
    sender
}

/// Raises the pin. Returns the sentence for an operator if the pin was broken.
async fn raise(log: &Log, name: &str, position: Position) -> Result<Option<String>, String> {
    let pins = log.pins().await.map_err(|cause| format!("the pin '{name}' cannot be read: {cause}"))?;
    let broken = pins.iter().any(|pin| pin.name == name && pin.is_broken);
    let is_higher = pins.iter().any(|pin| pin.name == name && !pin.is_broken && pin.position >= position);
    if !is_higher {
        let pinned = log.pin(name, position, None).await;
        pinned.map_err(|cause| format!("the pin '{name}' cannot be set: {cause}"))?;
    }
    Ok(broken.then(|| {
        format!(
            "the pin '{name}' was broken: the log kept more bytes for this player than the pin allows, and its limits may \
             have trimmed records that a target lacks"
        )
    }))
}
