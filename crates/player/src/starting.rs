//! The start of a player: who plays, and with which epoch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use seriatim_client::{Client, Log, Position};
use seriatim_delivery::player::{Mapper, Rule, Rules, rules_at};

use crate::control::{CommandRecord, ControlLog, Event, Events, Holder, RulesRecord, SILENCE};
use crate::kept::Bounds;
use crate::runner::{PlayerError, Settings, Start, TargetSettings};

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
    /// First position of the control log.
    pub(crate) first: Position,
    /// Position of the claim.
    pub(crate) claim: Position,
    pub(crate) rules: Vec<(String, Rules)>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) skipped: BTreeSet<u64>,
    /// Bounds that targets cannot store.
    pub(crate) bounds: Bounds,
    pub(crate) tail: Position,
}

/// What the control log holds.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The last claim. None: no player ever ran.
    pub(crate) last: Option<Last>,
    pub(crate) rules: RulesRecord,
    pub(crate) pending: Vec<Pending>,
    pub(crate) skipped: BTreeSet<u64>,
    pub(crate) bounds: Bounds,
}

/// A claim.
#[derive(Debug)]
pub(crate) struct Last {
    epoch: u64,
    base: u64,
    /// Whether the player ended in order.
    has_ended: bool,
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
            Event::Claim { base, rules, .. } => {
                self.last = Some(Last { epoch: base + position.0 + 1, base, has_ended: false });
                self.rules = rules;
            }
            // A paused player may report after a later one has claimed.
            Event::Status(status) if status.epoch < self.epoch() => {}
            Event::Status(status) => {
                if status.epoch > self.epoch() {
                    self.last = Some(Last { epoch: status.epoch, base: status.base, has_ended: false });
                    self.rules = status.rules.clone();
                }
                self.skipped.extend(&status.skipped);
                status.bounds.into_iter().for_each(|(at, record)| self.bounds.keep(at, record));
            }
            // The player of this record continued after a later claim, and knows no bound of it.
            Event::Bound(record) if record.epoch < self.epoch() => {}
            Event::Bound(record) => self.bounds.keep(position.0, record),
            Event::Command { target, command } => self.pending.push((position.0, target, command)),
            Event::Done { command, .. } => {
                let done = |(position, ..): &Pending| *position == command;
                if let Some(index) = self.pending.iter().position(done)
                    && let (_, None, CommandRecord::Skip { position }) = self.pending.remove(index)
                {
                    self.skipped.insert(position);
                }
            }
            Event::Ended { epoch } => {
                if let Some(last) = self.last.as_mut().filter(|last| last.epoch == epoch) {
                    last.has_ended = true;
                }
            }
            Event::Hello { .. } => {}
        }
    }

    /// The epoch of the last claim. 0: no player ever ran.
    fn epoch(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.epoch)
    }

    /// The recorded bounds, with those of further events.
    fn bounds_with(&self, events: Vec<(Position, Event)>) -> Bounds {
        let (mut bounds, mut epoch) = (self.bounds.clone(), self.epoch());
        for (position, event) in events {
            match event {
                Event::Claim { base, .. } => epoch = base + position.0 + 1,
                Event::Bound(record) if record.epoch >= epoch => bounds.keep(position.0, record),
                _ => {}
            }
        }
        bounds
    }

    /// Unreadable entries that belong to no target, with those of commands that no player has seen.
    fn all_skipped(&self) -> BTreeSet<u64> {
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
    for TargetSettings { id, target, .. } in &settings.targets {
        let checked = target.check_start().await;
        checked.map_err(|reason| PlayerError::Target { id: id.clone(), reason })?;
    }
    let control = ControlLog::create(client, &settings.name).await?;
    let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
    let events = control.history(Position::ZERO, asked.next()).await?;
    let first = events.first().map_or(asked, |(position, _)| *position);
    let mut history = History::of(events);
    let mut events = control.follow(asked.next(), None).await?;
    let is_free = history.last.as_ref().is_none_or(|last| last.has_ended);
    match settings.start {
        Start::TakeOver => {}
        Start::Refuse if is_free => {}
        Start::Refuse => {
            if let Some(active) = events.status_within(SILENCE).await? {
                return Err(PlayerError::Active { player: settings.name.clone(), active: Box::new(active) });
            }
        }
        Start::Standby => stand_by(&control, &mut events, is_free, history.epoch()).await?,
    }
    // Events since the question count, too.
    let earlier = asked;
    let asked = control.append(&Event::Hello { from: Holder::own() }).await?;
    for (position, event) in control.history(earlier.next(), asked.next()).await? {
        history.note(position, event);
    }
    let recorded = history.rules.rules(mapper).map_err(PlayerError::Rules)?;
    let tail = log.check_tail().await?;
    let rules = rules_at(&recorded, rule, settings.begin, tail);
    let recorded = history.last.as_ref().map_or(0, |last| last.base);
    let base = settings.above.map_or(recorded, |above| recorded.max(above));
    let claim = Event::Claim { holder: Holder::own(), base, rules: RulesRecord::of(&rules) };
    let claim = control.append(&claim).await?;
    // The earlier player may have recorded bounds until the claim.
    let bounds = history.bounds_with(control.history(asked.next(), claim).await?);
    // Commands between the question and the claim are for this player.
    let events = control.follow(asked.next(), None).await?;
    let epoch = base + claim.0 + 1;
    let skipped = history.all_skipped();
    Ok(Claimed {
        log,
        control,
        events,
        epoch,
        base,
        first,
        claim,
        rules,
        pending: history.pending,
        skipped,
        bounds,
        tail,
    })
}

/// Asks until no player answers for a while.
async fn stand_by(
    control: &ControlLog,
    events: &mut Events,
    is_free: bool,
    mut epoch: u64,
) -> Result<(), PlayerError> {
    if is_free {
        return Ok(());
    }
    let mut silent_since = tokio::time::Instant::now();
    loop {
        control.append(&Event::Hello { from: Holder::own() }).await?;
        let ask_at = tokio::time::Instant::now() + ASK_EVERY;
        while let Ok(event) = tokio::time::timeout_at(ask_at, events.next()).await {
            match event? {
                Some((_, Event::Status(_))) => silent_since = tokio::time::Instant::now(),
                Some((position, Event::Claim { base, .. })) => {
                    epoch = base + position.0 + 1;
                    silent_since = tokio::time::Instant::now();
                }
                Some((_, Event::Ended { epoch: ended })) if ended == epoch => return Ok(()),
                _ => {}
            }
        }
        if silent_since.elapsed() >= SILENCE {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{BoundRecord, StatusRecord};

    fn claim() -> Event {
        Event::Claim { holder: Holder::own(), base: 0, rules: RulesRecord::default() }
    }

    fn bound(epoch: u64, bound: u64) -> BoundRecord {
        BoundRecord { target: "hook".into(), epoch, log: 7, bound, bookmark: None }
    }

    fn status(epoch: u64, bounds: Vec<(u64, BoundRecord)>) -> Event {
        Event::Status(Box::new(StatusRecord {
            holder: Holder::own(),
            epoch,
            base: 0,
            log: "orders".into(),
            since_ms: 0,
            at_ms: 0,
            dispatched: None,
            tail: 0,
            memory: 0,
            targets: vec![],
            unknown: vec![],
            skipped: vec![],
            rules: RulesRecord::default(),
            bounds,
        }))
    }

    fn history(events: Vec<(u64, Event)>) -> History {
        History::of(events.into_iter().map(|(at, event)| (Position(at), event)).collect())
    }

    #[test]
    fn a_status_repeats_bounds_whose_records_are_trimmed() {
        let events = vec![(9000, status(4, vec![(8900, bound(4, 70))]))];
        assert_eq!(history(events).bounds.get("hook"), Some(&bound(4, 70)));
        // The status was composed before its player read the record in front of it.
        let events = vec![(8999, Event::Bound(bound(4, 75))), (9000, status(4, vec![(8900, bound(4, 70))]))];
        assert_eq!(history(events).bounds.get("hook"), Some(&bound(4, 75)));
    }

    #[test]
    fn a_bound_that_a_deposed_player_records_does_not_count() {
        let before = vec![(3, claim()), (4, Event::Bound(bound(4, 5)))];
        let deposed = (6, Event::Bound(bound(4, 9)));
        let after = [&before[..], &[(5, claim()), deposed.clone()]].concat();
        assert_eq!(history(after).bounds.get("hook"), Some(&bound(4, 5)));
        // The same between the last question and the own claim.
        let late = |events: Vec<(u64, Event)>| {
            let events = events.into_iter().map(|(at, event)| (Position(at), event)).collect();
            history(before.clone()).bounds_with(events).get("hook").cloned()
        };
        assert_eq!(late(vec![(5, claim()), deposed.clone()]), Some(bound(4, 5)));
        assert_eq!(late(vec![deposed]), Some(bound(4, 9)), "it was not deposed then");
    }
}
