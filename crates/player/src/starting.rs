//! The start of a player: who plays, and with which epoch.

use std::sync::Arc;
use std::time::Duration;

use seriatim_client::{Client, Log, Position};
use seriatim_delivery::player::{Mapper, Rule, Rules, rules_at};

use crate::control::{CommandRecord, ControlLog, Event, Events, Holder, RulesRecord, SILENCE, StatusRecord};
use crate::runner::{PlayerError, Settings, Start};

/// Interval between questions of a standby.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A command without outcome: its position, its target and itself.
pub(crate) type Pending = (u64, Option<String>, CommandRecord);

/// A player that has claimed.
pub(crate) struct Claimed {
    pub(crate) log: Log,
    pub(crate) control: ControlLog,
    /// Events after the claim.
    pub(crate) events: Events,
    pub(crate) epoch: u64,
    pub(crate) base: u64,
    /// Position of the claim.
    pub(crate) claim: Position,
    pub(crate) rules: Vec<(String, Rules)>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) skipped: Vec<u64>,
    pub(crate) tail: Position,
}

/// What the control log holds.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The holder of the last claim, its base, and whether it ended in order.
    pub(crate) last: Option<(Holder, u64, bool)>,
    pub(crate) rules: RulesRecord,
    pub(crate) status: Option<StatusRecord>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) skipped: Vec<u64>,
}

impl History {
    pub(crate) fn of(events: Vec<(Position, Event)>) -> Self {
        let mut history = Self::default();
        for (position, event) in events {
            history.note(position, event);
        }
        history
    }

    fn note(&mut self, position: Position, event: Event) {
        match event {
            Event::Claim { holder, base, rules } => {
                self.last = Some((holder, base, false));
                self.rules = rules;
            }
            Event::Status(status) => {
                if self.last.is_none() {
                    self.last = Some((status.holder.clone(), status.base, false));
                    self.rules = status.rules.clone();
                }
                self.skipped.clone_from(&status.skipped);
                self.status = Some(*status);
            }
            Event::Command { target, command } => self.pending.push((position.0, target, command)),
            Event::Done { command, .. } => {
                let done = |(position, ..): &Pending| *position == command;
                if let Some(index) = self.pending.iter().position(done) {
                    self.pending.remove(index);
                }
            }
            Event::Ended { .. } => {
                if let Some((_, _, has_ended)) = &mut self.last {
                    *has_ended = true;
                }
            }
            Event::Hello { .. } => {}
        }
    }

    /// Unreadable entries that belong to no target, with those of commands that no player has seen.
    fn all_skipped(&self) -> Vec<u64> {
        let of_command = |(_, target, command): &Pending| match (target, command) {
            (None, CommandRecord::Skip { position }) => Some(*position),
            _ => None,
        };
        self.skipped.iter().copied().chain(self.pending.iter().filter_map(of_command)).collect()
    }
}

/// Claims the stream, as soon as the settings allow it.
pub(crate) async fn claim(
    client: &Client,
    settings: &Settings,
    rule: &Rule,
    mapper: Option<&Arc<dyn Mapper>>,
) -> Result<Claimed, PlayerError> {
    let log = client.log(&settings.log).await?;
    let control = ControlLog::create(client, &settings.name).await?;
    let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
    let history = History::of(control.history(asked.next()).await?);
    let mut events = control.follow(asked.next(), None).await?;
    let is_free = history.last.as_ref().is_none_or(|(_, _, has_ended)| *has_ended);
    match settings.start {
        Start::TakeOver => {}
        Start::Refuse if is_free => {}
        Start::Refuse => {
            if let Some(active) = events.status_within(SILENCE).await? {
                return Err(PlayerError::Active { player: settings.name.clone(), active: Box::new(active) });
            }
        }
        Start::Standby => stand_by(&control, &mut events, is_free).await?,
    }
    // Events between the question and the claim count, too.
    let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
    let history = History::of(control.history(asked.next()).await?);
    let recorded = history.rules.rules(mapper).map_err(PlayerError::Rules)?;
    let tail = log.check_tail().await?;
    let rules = rules_at(&recorded, rule, settings.begin, tail);
    let earlier = history.last.as_ref().map_or(0, |(_, base, _)| *base);
    let base = settings.above.map_or(earlier, |above| earlier.max(above));
    let claim = Event::Claim { holder: Holder::own(), base, rules: RulesRecord::of(&rules) };
    let claim = control.append(&claim).await?;
    let events = control.follow(claim.next(), None).await?;
    let epoch = base + claim.0 + 1;
    let skipped = history.all_skipped();
    Ok(Claimed { log, control, events, epoch, base, claim, rules, pending: history.pending, skipped, tail })
}

/// Asks until no player answers for a while.
async fn stand_by(control: &ControlLog, events: &mut Events, is_free: bool) -> Result<(), PlayerError> {
    if is_free {
        return Ok(());
    }
    let mut silent_since = tokio::time::Instant::now();
    loop {
        control.append(&Event::Hello { from: Holder::own() }).await?;
        let ask_at = tokio::time::Instant::now() + ASK_EVERY;
        while let Ok(event) = tokio::time::timeout_at(ask_at, events.next()).await {
            match event? {
                Some((_, Event::Status(_) | Event::Claim { .. })) => {
                    silent_since = tokio::time::Instant::now();
                }
                Some((_, Event::Ended { .. })) => return Ok(()),
                _ => {}
            }
        }
        if silent_since.elapsed() >= SILENCE {
            return Ok(());
        }
    }
}
