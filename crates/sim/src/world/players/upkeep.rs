//! The operator of players, and the control log.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_delivery::player::{Command, Stage, Why};
use seriatim_model::{Position, Time};

use super::{Play, Players};
use crate::playing::PlayersPlan;
use crate::random::Random;
use crate::world::cluster::Cluster;
use crate::world::scene::Happening;
use crate::world::targets::Call;

/// What the operator does, and when the control log is absent.
#[derive(Debug)]
pub(super) struct Upkeep {
    /// Apart from the random numbers of the players.
    random: Random,
    /// When the maintenance of each paused target ends.
    ends: BTreeMap<usize, Time>,
    /// Targets with the process that has paused each.
    paused: BTreeMap<usize, u32>,
    /// Times without the control log: from, end.
    absences: Vec<(Time, Time)>,
}

impl Upkeep {
    pub(super) fn new(seed: u64) -> Self {
        let random = Random::new(seed ^ 0x0B5E_47E5);
        Self { random, ends: BTreeMap::new(), paused: BTreeMap::new(), absences: vec![] }
    }

    /// The end of the control log's absence. None: it is there.
    pub(super) fn absent_until(&self, now: Time) -> Option<Time> {
        let absent = self.absences.iter().filter(|(from, end)| (*from..*end).contains(&now));
        absent.map(|(_, end)| *end).max()
    }

    /// Whether a process that has paused a target may not make this call in its last session. Calls
    /// of earlier sessions may be late.
    pub(super) fn forbids(&self, target: usize, call: &Call) -> bool {
        self.paused.get(&target) == Some(&call.session.0) && call.is_batch_in_time()
    }

    /// A process has ended: the next one does not know its pauses.
    pub(super) fn ended(&mut self, process: u32) {
        self.paused.retain(|_, by| *by != process);
    }

    pub(super) fn calm(&mut self) {
        self.absences.clear();
        self.ends.clear();
    }
}

impl Players {
    pub(super) fn plan_upkeep(&mut self, cluster: &mut Cluster, plan: &PlayersPlan) {
        let now = cluster.scene.now;
        self.upkeep.absences =
            plan.absences.iter().map(|(at, last)| (now + *at, now + *at + *last)).collect();
        for (at, lasting, target) in &plan.maintenances {
            cluster.scene.schedule(now + *at, Happening::Play(Play::Maintains(*target, *lasting)));
        }
    }

    /// The operator pauses a target.
    pub(super) fn maintains(&mut self, cluster: &mut Cluster, target: usize, lasting: Duration) {
        let is_possible = self.has_faults && self.is_idle(target);
        let Some(run) = self.active().filter(|_| is_possible) else { return };
        self.upkeep.ends.insert(target, cluster.scene.now + lasting);
        self.command(cluster, run, target, Command::Pause);
    }

    /// The process with the last claim, which alone obeys commands. None: it does not run now.
    fn active(&self) -> Option<u32> {
        self.runs.values().next_back().filter(|run| !run.is_paused).map(|run| run.number)
    }

    fn is_idle(&self, target: usize) -> bool {
        self.commands.values().all(|(other, _)| *other != target)
    }

    fn command(&mut self, cluster: &mut Cluster, run: u32, target: usize, command: Command) {
        let well_since = &mut self.targets[target].well_since;
        *well_since = (*well_since).max(cluster.scene.now);
        self.numbers += 1;
        self.commands.insert(self.numbers, (target, command.clone()));
        self.commanded(cluster, run, self.numbers, target, command, false);
    }

    /// A process has obeyed or refused a command.
    pub(super) fn done(
        &mut self,
        cluster: &mut Cluster,
        process: u32,
        number: u64,
        outcome: &Result<(), String>,
    ) {
        if let (Some((target, Command::Pause)), Ok(())) = (self.commands.get(&number), outcome) {
            let target = *target;
            self.upkeep.paused.insert(target, process);
            cluster.scene.coverage.played("paused by the operator");
            if self.has_faults && self.upkeep.random.percent(30) {
                self.targets[target].restore(&mut self.upkeep.random);
            }
        }
        if let (Some((_, Command::Adopt { .. })), Ok(())) = (self.commands.get(&number), outcome) {
            cluster.scene.coverage.played("adopted");
        }
        match self.upkeep.absent_until(cluster.scene.now) {
            Some(end) => cluster.scene.schedule(end, Happening::Play(Play::Recorded(process, number))),
            None => self.recorded(process, number),
        }
    }

    /// Without a record of the outcome, the next process receives the command again.
    pub(super) fn recorded(&mut self, process: u32, number: u64) {
        if self.runs.contains_key(&process) {
            self.commands.remove(&number);
        }
    }

    /// The player notices that a target was restored: its connection breaks.
    fn notice_restored(&mut self, cluster: &mut Cluster, process: u32) {
        for index in 0..self.targets.len() {
            if let Some(input) = self.targets[index].breaks_restored(process) {
                self.comes(cluster, process, input);
            }
        }
    }

    /// An operator looks after stopped and paused targets without a command.
    pub(super) fn operate(&mut self, cluster: &mut Cluster) {
        let Some(number) = self.active() else { return };
        self.notice_restored(cluster, number);
        let status = self.runs[&number].player.status();
        for (target, status) in status.targets.into_iter().enumerate() {
            let is_idle = self.is_idle(target);
            let known = self.runs[&number].stopped.get(&target).cloned();
            if status.stage == Stage::Stopped
                && is_idle
                && self.random.percent(40)
                && let Some((bound, why)) = known
            {
                self.act(cluster, number, target, (bound, &why));
            }
            let is_over = self.upkeep.ends.get(&target).is_none_or(|end| *end <= cluster.scene.now);
            if status.stage == Stage::Paused && is_idle && is_over {
                self.upkeep.paused.remove(&target);
                self.command(cluster, number, target, Command::Resume);
            }
        }
    }

    /// The operator repairs the target, or passes over the entry.
    fn act(&mut self, cluster: &mut Cluster, run: u32, target: usize, (bound, why): (Position, &Why)) {
        let (command, range) = match why {
            Why::Rejected { message, .. } => {
                let position = message.position;
                let is_automatic = self.plan.as_ref().is_some_and(|plan| plan.dead_letters);
                // The operator does the same whenever the target refuses this entry.
                match Random::new(position.0).below(3) {
                    _ if is_automatic => return,
                    0 => {
                        self.targets[target].repair(position);
                        (Command::Retry, None)
                    }
                    1 => (Command::DeadLetter { position }, None),
                    _ => (Command::Skip { position }, Some((position, position.next()))),
                }
            }
            Why::Gap { .. } => (Command::Skip { position: bound }, None),
            Why::Unusable { .. } => unreachable!("simulated targets keep their bounds"),
            Why::OtherStream { .. } => {
                let position = Position(self.upkeep.random.below(self.tail(cluster).0 + 1));
                // The tail never falls below a position that the operator saw.
                self.highest = self.highest.max(position);
                (Command::Adopt { position }, None)
            }
            other @ Why::AboveTail { .. } => {
                return cluster.scene.note_problem(format!("target t{target} is stopped: {other}"));
            }
        };
        self.targets[target].played.skipped.extend(range);
        self.command(cluster, run, target, command);
    }
}
