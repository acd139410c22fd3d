//! A client that pins a log with limits: it sets, raises and removes pins.

use std::time::Duration;

use seriatim_model::retention::LimitChange;
use seriatim_model::{Position, Retention, RetentionChange};
use seriatim_protocol::control;

use super::World;
use super::scene::Scene;
use super::truth::{Nodes, Truth};
use crate::checkers::APPLIED_LATE;
use crate::plan::PinChange;

/// Time for some rounds of retention.
const ROUNDS: Duration = Duration::from_secs(2);
/// Time for the register to make a change.
const PROMPT: Duration = Duration::from_millis(100);
/// Attempts to remove the pins in the end, a second each.
const REMOVALS: u32 = 10;

/// Notes changes of the pins at the register.
pub(super) fn note(scene: &mut Scene, nodes: &Nodes) {
    let Some(entry) = (Truth { nodes, scene }).entry() else { return };
    let known = scene.history.pins.last().map_or(&[][..], |(_, pins)| pins);
    if known != entry.pins {
        let pins = entry.pins.clone();
        scene.tell(format_args!("the pins are {pins:?}"));
        scene.history.pins.push((scene.now, pins));
    }
}

impl World {
    pub(super) fn change_pins(&mut self, change: PinChange) {
        let Some(entry) = self.cluster.entry() else { return };
        let (log, request) = (entry.id, self.cluster.scene.question());
        let message = match change {
            PinChange::Set { name, back, most_bytes } => {
                let history = &self.cluster.scene.history;
                let stable = history.final_at.last().map_or(Position::ZERO, |(_, stable)| *stable);
                let trim = history.retained.last().map_or(Position::ZERO, |trimmed| trimmed.trim);
                let position = Position(stable.0.saturating_sub(back)).max(trim);
                control::Message::Pin { request, log, name: pin_name(name), position, most_bytes }
            }
            PinChange::Remove { name } => control::Message::Unpin { request, log, name: pin_name(name) },
        };
        self.cluster.scene.tell(format_args!("the pins are to be changed: {message:?}"));
        self.cluster.ask_register(message);
    }

    /// Lifts the limits until the leader must know the pins. Then tightens them, so that only pins
    /// keep records, and removes the pins. The log must reach its limits without them.
    pub(super) fn drain_pins(&mut self) {
        // The load may have ended before the last change.
        let scene = &self.cluster.scene;
        let Some(last) = scene.plan.pin_changes.iter().map(|(after, _)| *after).max() else { return };
        self.run_for((scene.began + last + PROMPT).since(scene.now));
        let Some(entry) = self.cluster.entry().filter(|entry| !entry.pins.is_empty()) else { return };
        let Retention { age_ms, bytes, .. } = entry.config.retention;
        let lift = LimitChange::Lift;
        self.set_limits(RetentionChange { age_ms: lift, bytes: lift, records: lift });
        self.run_for(APPLIED_LATE);
        let (age_ms, bytes) = (age_ms.map_or(lift, LimitChange::Set), bytes.map_or(lift, LimitChange::Set));
        self.set_limits(RetentionChange { age_ms, bytes, records: LimitChange::Set(1) });
        self.run_for(ROUNDS);
        for _ in 0..REMOVALS {
            for name in self.pin_names() {
                let Some(log) = self.cluster.entry().map(|entry| entry.id) else { continue };
                let request = self.cluster.scene.question();
                self.cluster.ask_register(control::Message::Unpin { request, log, name });
            }
            if self.run_until(Duration::from_secs(1), |world| world.pin_names().is_empty()) {
                return;
            }
        }
    }

    fn pin_names(&self) -> Vec<String> {
        let entry = self.cluster.entry();
        entry.into_iter().flat_map(|entry| &entry.pins).map(|pin| pin.name.clone()).collect()
    }
}

fn pin_name(number: u64) -> String {
    format!("pin-{number}")
}
