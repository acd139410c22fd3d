//! The end of a run: everything comes to rest, and the whole log is read.

use std::time::Duration;

use seriatim_model::{Position, ShardId};
use seriatim_protocol::control::LogEntry;

use super::scene::Happening;
use super::second::history_of;
use super::{CONTROL, JUDGE, TIMEOUT, World};
use crate::history::End;
use crate::reader::{Reader, Style};

/// Time to replace a node after the allowed absence: views that add replicas have pauses between
/// them.
const WHOLE_WITHIN: Duration = Duration::from_secs(60);
/// Time to read one replica.
const READING_FOR: Duration = Duration::from_secs(20);

impl World {
    /// If planned, clients get all answers and records while the faults last.
    pub(super) fn come_to_an_end_before_calm(&mut self) {
        let Some(within) = self.cluster.scene.plan.done_without_calm else { return };
        let is_served = |world: &Self| {
            let ordered = world.cluster.truth().leader_ordered().unwrap_or_default();
            world.clients.are_done() && world.clients.have_delivered(ordered)
        };
        if !self.run_until(within, is_served) && !self.cluster.scene.is_over {
            let what = self.what_is_missing();
            self.cluster.scene.note_problem(format!("without calm, not done within {within:?}: {what}"));
        }
        self.become_whole();
    }

    /// Waits until other nodes have the roles of a permanently dead node, if enough live: the log
    /// must bear the next loss.
    fn become_whole(&mut self) {
        let alive = self.cluster.truth().nodes.values().filter(|node| node.host.is_some()).count();
        let Some(config) = self.cluster.entry().map(|entry| entry.config.clone()) else { return };
        if alive == self.cluster.ids().len() || alive < config.sequencers.max(config.replicas) as usize {
            return;
        }
        if !self.run_until(self.cluster.scene.plan.options.limits.replace_after + WHOLE_WITHIN, |world| {
            world.cluster.truth().is_restored()
        }) && !self.cluster.scene.is_over
        {
            let view = self.cluster.scene.latest_view();
            self.cluster.scene.note_problem(format!("nobody has the place of a node that is dead: {view:?}"));
        }
    }

    pub(super) fn drain(&mut self) {
        let rested = self.come_to_rest();
        self.cluster.close_load();
        if !rested {
            let what = self.what_is_missing();
            self.cluster.scene.history.end =
                if self.cluster.excuses_damage() { End::Damaged(what) } else { End::Stuck(what) };
            return;
        }
        if self.cluster.truth().has_given_up() {
            self.cluster.excuse_spoiled();
            let why = self.cluster.entry().and_then(|entry| entry.unavailable.clone()).unwrap_or_default();
            self.clients.end(&mut self.cluster);
            self.cluster.scene.history.judged_from = self.cluster.scene.history.tick();
            let (trim, _) = self.read_everything().unwrap_or_default();
            self.cluster.scene.history.end = End::Unavailable(why);
            self.cluster.scene.history.trimmed_to = trim;
            return;
        }
        self.clients.ask_tails(&mut self.cluster);
        if !self.run_until(TIMEOUT, |world| world.is_at_rest()) {
            self.cluster.scene.history.end =
                End::Stuck(format!("after the last question for the tail: {}", self.what_is_missing()));
            return;
        }
        self.drain_limits();
        self.play_to_the_end();
        let tail = self.cluster.truth().leader_ordered().unwrap_or_default();
        self.clients.end(&mut self.cluster);
        match self.read_everything() {
            Some((trim, true)) => {
                self.cluster.scene.history.end = End::AtRest { trim, tail };
                self.read_second();
                self.free_everything();
            }
            _ => self.cluster.scene.history.end = End::Stuck("the log could not be read to its end".into()),
        }
    }

    /// Waits until everything comes to rest, or the log reports its loss. Returns whether that
    /// happened in time.
    fn come_to_rest(&mut self) -> bool {
        let is_over = |world: &Self| world.is_at_rest() || world.cluster.truth().has_given_up();
        let misses_operator = |world: &Self| world.cluster.misses_operator();
        let in_time = self.run_until(TIMEOUT, |world| is_over(world) || misses_operator(world));
        if !in_time || !misses_operator(self) {
            return in_time;
        }
        let scene = &mut self.cluster.scene;
        scene.tell(format_args!("an operator is called, since a retired shard is lost"));
        scene.plan.has_operator = true;
        scene.schedule(scene.now, Happening::OperatorLooks);
        self.run_until(TIMEOUT, is_over)
    }

    fn is_at_rest(&self) -> bool {
        self.clients.are_done()
            && self.nodes_are_at_rest()
            && self.cluster.truth().second_is_at_rest()
            && self.fleet.remains(&self.cluster).is_empty()
            && self.leavers.are_over(&self.cluster)
    }

    /// Whether nodes are done and clients have read everything. After an accepted loss, readers
    /// must know the latest view.
    pub(super) fn nodes_are_at_rest(&self) -> bool {
        let truth = self.cluster.truth();
        let has_lost = self.cluster.scene.history.accepted.is_some();
        let view = self.cluster.entry().map(LogEntry::view_number).filter(|_| has_lost);
        self.cluster.is_at_rest(&self.leavers)
            && view.is_none_or(|view| self.clients.know(view))
            && truth.leader_ordered().is_some_and(|ordered| self.clients.have_delivered(ordered))
    }

    /// Possible reasons for a delay, for a person.
    pub(super) fn what_is_missing(&self) -> String {
        let mut lines = self.clients.state();
        lines.extend(self.fleet.remains(&self.cluster));
        lines.extend(self.clients.dead().into_iter().map(|client| format!("client {client} is dead")));
        lines.extend(self.cluster.state());
        lines.extend(self.leavers.state(&self.cluster));
        if let Some(entry) = self.cluster.entry() {
            let members = entry.view.as_ref().map(|view| (&view.sequencers, &view.shards));
            lines.push(format!(
                "register: view {}, claimed {}, members {members:?}, unavailable {:?}; step {:?}",
                entry.view_number(),
                entry.claimed,
                entry.unavailable,
                self.cluster.truth().view_change_step()
            ));
        }
        lines.join("\n  ")
    }

    /// Reads every replica. Returns the trim point, and whether all were read to the end.
    fn read_everything(&mut self) -> Option<(Position, bool)> {
        let entry = self.cluster.entry()?.clone();
        let shards = self.cluster.scene.history.shards().collect();
        self.read_log(JUDGE, &entry, shards)
    }

    pub(super) fn read_log(
        &mut self,
        judge: u32,
        entry: &LogEntry,
        shards: Vec<ShardId>,
    ) -> Option<(Position, bool)> {
        let mut trim = Position::ZERO;
        let mut complete = true;
        let view = entry.view.clone()?;
        for shard in shards {
            let mut replicas = self.cluster.truth().stored_to_read(entry.id, &view, shard);
            if let Some(retired) = view.retired(shard).filter(|_| replicas.len() > 1) {
                // Replicas of a retired shard do not repair each other: another one serves what
                // this one cannot.
                let damaged = self.cluster.disks().damaged_node();
                replicas.retain(|place| Some(retired.copies().replicas[*place].node) != damaged);
            }
            for (nth, replica) in replicas.into_iter().enumerate() {
                let style = Style::Drain { shard, replica };
                let first = history_of(&mut self.cluster.scene.history, judge).observations.len();
                let reader = Reader::new(
                    CONTROL,
                    entry.clone(),
                    style,
                    Position::ZERO,
                    self.cluster.scene.random.fork(),
                );
                let reader = self.read_with(judge, reader, READING_FOR);
                trim = trim.max(reader.trimmed());
                complete &= reader.is_done();
                if nth == 0 {
                    let history = history_of(&mut self.cluster.scene.history, judge);
                    for observation in &history.observations[first..] {
                        history.last.insert(observation.position, (observation.id, observation.append));
                        history.last_shards.insert(observation.position, shard);
                    }
                }
            }
        }
        Some((trim, complete))
    }

    /// Runs a reader until it is done, for at most `most`.
    fn read_with(&mut self, number: u32, reader: Reader, most: Duration) -> Reader {
        self.clients.add_reader(&mut self.cluster, number, reader);
        self.run_until(most, |world| world.clients.has_read(number));
        self.clients.end_reader(&mut self.cluster, number)
    }
}
