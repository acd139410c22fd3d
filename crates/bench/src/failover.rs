//! `seriatim bench failover`: how long appends stall when a sequencing replica's node is lost.
//!
//! One client appends on schedule to a log of real processes. Each round stops a node, finds the
//! longest time without an acknowledgement, gets the view change's timings, and waits until the log
//! has all members again.

mod cluster;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seriatim_client::{Append, Client, Log, LogConfig, LogEntry, LogOptions, NodeId, Order};
use seriatim_model::ViewNumber;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::chart::Chart;
use super::figure::{Figure, named};
use super::figures::{Figures, Measured, Timeline};
use super::grow::timeline;
use super::pace::Pace;
use super::presentation::{Presentation, check};
use super::report::{Row, Subject};
use crate::arguments::{FailoverArguments, Victim};
use crate::terminal::{Failure, Outcome, steps};
use cluster::Cluster;

const NAME: &str = "failover";
/// Appends per second.
const RATE: u64 = 1000;
/// Time of undisturbed appends before each loss.
const BEFORE: Duration = Duration::from_millis(500);
/// The stall is over after acknowledgements arrived for this long.
const STEADY_FOR: Duration = Duration::from_millis(500);
const GAP_WITHIN: Duration = Duration::from_secs(30);
/// If the last acknowledgement is older than this, appends are stalled.
const STILL_AFTER: Duration = Duration::from_millis(50);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Interval of register questions, long enough not to load the register.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Duration of the appends, longer than any run.
const FOR_EVER: Duration = Duration::from_secs(7 * 86_400);
/// Time limit for the return of all members: views that only add members are not urgent.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

/// Drawn time before and after a loss, and the length of a point in the timeline.
const DRAWN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(180));
const WHILE: Duration = Duration::from_millis(2);

/// The gap; its parts, each named after the step that ends it; and the sum of the protocol's own
/// parts, without detection, register and clients.
static FIGURES: [Figure; 10] = [
    Figure::Gap,
    Figure::Detect,
    Figure::Claim,
    Figure::Seal,
    Figure::Fence,
    Figure::Flush,
    Figure::Stage,
    Figure::Register,
    Figure::Resume,
    Figure::Core,
];

fn parts() -> &'static [Figure] {
    &FIGURES[1..9]
}

const CORE: [Figure; 3] = [Figure::Seal, Figure::Fence, Figure::Flush];

pub(super) const PRESENTATION: Presentation = Presentation {
    figures: &FIGURES,
    remark: |_, table| table.remark("gap: the longest time without an acknowledgement; its parts, in ms"),
    charts: |rows| {
        vec![
            Chart::timelines(
                "Appends acknowledged in each 2 ms; the node is lost at 0; the last round",
                rows,
            ),
            Chart::stacked("What the gap is spent with, medians", rows, parts()),
        ]
    },
};

pub(super) async fn run(arguments: &FailoverArguments) -> Outcome {
    let repeat = &arguments.repeat;
    check(repeat)?;
    let bar = steps(u64::from(repeat.rounds) * arguments.order.len() as u64);
    let mut rows = vec![];
    for order in &arguments.order {
        let mut bench = Bench::start(arguments, *order).await?;
        let mut rounds: BTreeMap<Lost, Vec<Measured>> = BTreeMap::new();
        for number in 0..repeat.rounds {
            if arguments.pause && number > 0 {
                // A node that fails repeatedly is readmitted after growing delays, which are not
                // measured here.
                bench = Bench::start(arguments, *order).await?;
                bench.followers = number as usize / 2;
            }
            let lost = bench.lost(arguments.kill, number)?;
            bar.set_message(format!("{order}: a {} is lost", lost.name()));
            let round = bench.round(lost, arguments.pause).await?;
            rounds.entry(lost).or_default().push(round);
            bar.inc(1);
        }
        let how = if arguments.pause { "paused" } else { "killed" };
        let subject = |lost: Lost| Subject::named(format!("{order}, {} {how}", lost.name()));
        rows.extend(rounds.into_iter().map(|(lost, rounds)| Row::new(subject(lost), rounds)));
    }
    bar.finish_and_clear();
    PRESENTATION.tell(rows, repeat, &[])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lost {
    Leader,
    Follower,
    /// The log's only sequencer.
    Sequencer,
}

impl Lost {
    fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Sequencer => "sequencer",
        }
    }
}

struct Bench {
    cluster: Cluster,
    client: Client,
    log: LogEntry,
    acknowledged: Acknowledged,
    appending: JoinHandle<Outcome>,
    followers: usize,
}

/// Times of acknowledgements, in order.
#[derive(Clone, Default)]
struct Acknowledged {
    instants: Arc<Mutex<Vec<Instant>>>,
}

impl Acknowledged {
    fn now(&self) {
        self.instants.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }

    fn take(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.instants.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn last(&self) -> Option<Instant> {
        self.instants.lock().unwrap_or_else(PoisonError::into_inner).last().copied()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.appending.abort();
    }
}

impl Bench {
    async fn start(arguments: &FailoverArguments, order: Order) -> Result<Self, Failure> {
        let cluster = Cluster::start(arguments.register).await?;
        let client = Client::connect(&cluster.addresses()).await?;
        // The first three nodes have the sequencing replicas; no shard replaces a lost node.
        let config = LogConfig {
            order,
            durability: arguments.durable.durability,
            sequencers: 3,
            min_sequencers: 2,
            replicas: 3,
            min_replicas: 2,
            ..LogConfig::default()
        };
        let log = client.create(NAME, config).await?;
        // The appending client is separate from the observing one.
        let appender = Client::connect(&cluster.addresses()).await?;
        let appender = appender.log_with(NAME, LogOptions::unordered(1)).await?;
        let acknowledged = Acknowledged::default();
        let appending = tokio::spawn(append_for_ever(appender, acknowledged.clone()));
        Ok(Self { cluster, client, log, acknowledged, appending, followers: 0 })
    }

    fn lost(&self, kill: Victim, number: u32) -> Result<Lost, Failure> {
        let has_followers = self.log.config.sequencers > 1;
        match kill {
            Victim::Follower if !has_followers => {
                Err(Failure::new(format!("a log of order {} has no followers", self.log.config.order)))
            }
            _ if !has_followers => Ok(Lost::Sequencer),
            Victim::Leader => Ok(Lost::Leader),
            Victim::Sequencer if number.is_multiple_of(2) => Ok(Lost::Leader),
            Victim::Sequencer | Victim::Follower => Ok(Lost::Follower),
        }
    }

    async fn round(&mut self, lost: Lost, pauses: bool) -> Result<Measured, Failure> {
        let (before, victim) = self.victim(lost).await?;
        self.acknowledged.take();
        tokio::time::sleep(BEFORE).await;
        let lost_at = Instant::now();
        self.cluster.signal(victim, if pauses { Signal::STOP } else { Signal::KILL })?;
        self.steady_again(lost_at).await?;
        let acknowledged = self.acknowledged.take();
        let (began, ended) = longest_gap(lost_at, &acknowledged);
        let mut figures = self.parts(victim, before, lost_at, &acknowledged).await;
        figures.insert(Figure::Gap, milliseconds(ended - began));
        if pauses {
            self.cluster.signal(victim, Signal::CONT)?;
        } else {
            self.cluster.restart(victim).await?;
        }
        self.whole().await?;
        Ok(Measured { timeline: around(lost_at, &acknowledged), ..Measured::of(figures) })
    }

    /// The present view, and the node to lose in it: the leader, or each follower in turn.
    async fn victim(&mut self, lost: Lost) -> Result<(ViewNumber, NodeId), Failure> {
        let entry = self.client.lookup(NAME).await?;
        let view = entry.view.ok_or_else(|| Failure::new("the log has no view"))?;
        if lost != Lost::Follower {
            return Ok((view.number, view.leader));
        }
        let followers: Vec<NodeId> =
            view.sequencers.iter().map(|member| member.node).filter(|node| *node != view.leader).collect();
        self.followers += 1;
        Ok((view.number, followers[self.followers % followers.len()]))
    }

    async fn steady_again(&self, lost_at: Instant) -> Outcome {
        let mut steady_since = None;
        while steady_since.is_none_or(|since: Instant| since.elapsed() < STEADY_FOR) {
            tokio::time::sleep(POLL_EVERY).await;
            let comes =
                self.acknowledged.last().is_some_and(|last| last > lost_at && last.elapsed() < STILL_AFTER);
            steady_since = if comes { steady_since.or(Some(Instant::now())) } else { None };
            if self.appending.is_finished() {
                return Err(Failure::new("an append failed"));
            }
            if lost_at.elapsed() > GAP_WITHIN {
                return Err(Failure::new(format!("appends were not steady again within {GAP_WITHIN:?}")));
            }
        }
        Ok(())
    }

    /// Parts of the gap, from the loss to the first acknowledgement in a new view. Empty if the
    /// node that formed the first view after `before` does not report its steps.
    async fn parts(
        &self,
        victim: NodeId,
        before: ViewNumber,
        lost_at: Instant,
        acknowledged: &[Instant],
    ) -> Figures {
        let mut change: Option<(ViewNumber, Vec<(String, Instant)>)> = None;
        for node in self.cluster.numbers().filter(|node| *node != victim) {
            let asked_at = Instant::now();
            let Some(told) = self.client.last_view_change(self.log.id, node).await else { continue };
            // Assume that the node answered half-way between question and receipt.
            let answered_at = asked_at + asked_at.elapsed() / 2;
            let is_first = change.as_ref().is_none_or(|(view, _)| told.view < *view);
            if told.view > before && is_first {
                let at = |(step, ago): (String, Duration)| Some((step, answered_at.checked_sub(ago)?));
                change = Some((told.view, told.steps.into_iter().filter_map(at).collect()));
            }
        }
        let Some((_, steps)) = change else { return Figures::new() };
        let registered_at = steps.last().map_or(lost_at, |(_, at)| *at);
        let resumed_at = acknowledged.iter().copied().find(|at| *at > registered_at);
        let ends = steps.iter().filter_map(|(step, at)| Some((part_until(step)?, *at)));
        let ends = ends.chain(resumed_at.map(|at| (Figure::Resume, at)));
        let mut from = lost_at;
        let part = |(part, end): (Figure, Instant)| {
            let took = milliseconds(end.saturating_duration_since(from));
            from = end;
            (part, took)
        };
        with_core(ends.map(part).collect())
    }

    async fn whole(&self) -> Outcome {
        let config = &self.log.config;
        let began = Instant::now();
        loop {
            let entry = self.client.lookup(NAME).await?;
            let is_whole = entry.view.as_ref().is_some_and(|view| {
                let shards = &view.shards;
                view.sequencers.len() == config.sequencers as usize
                    && shards.iter().all(|members| members.replicas.len() == config.replicas as usize)
            });
            if is_whole && self.client.status(entry).await.open == config.sequencers as usize {
                return Ok(());
            }
            if began.elapsed() > WHOLE_WITHIN {
                return Err(Failure::new(format!("the log is not whole again within {WHOLE_WITHIN:?}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The part of the gap that ends with this step of a view change.
fn part_until(step: &str) -> Option<Figure> {
    if step == "notice" { Some(Figure::Detect) } else { named(&format!("{step}_ms")) }
}

/// Adds the protocol's own part, if its last step is known. Sequencing replicas without entries
/// have nothing to seal.
fn with_core(mut parts: Figures) -> Figures {
    if parts.contains_key(&Figure::Flush) {
        let core = CORE.iter().filter_map(|part| parts.get(part)).sum();
        parts.insert(Figure::Core, core);
    }
    parts
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn around(lost_at: Instant, acknowledged: &[Instant]) -> Timeline {
    timeline(acknowledged, lost_at, (lost_at - DRAWN.0, lost_at + DRAWN.1), WHILE)
}

/// Open loop: appends begin on schedule.
async fn append_for_ever(log: Log, acknowledged: Acknowledged) -> Outcome {
    let (appends, mut in_flight) = mpsc::channel::<Append>(1 << 16);
    let completions = tokio::spawn(async move {
        while let Some(append) = in_flight.recv().await {
            append.await?;
            acknowledged.now();
        }
        Ok::<_, Failure>(())
    });
    let mut pace = Pace::new(RATE, FOR_EVER)?;
    while pace.next().await.is_some() {
        let append = log.submit("a record").await?;
        if appends.send(append).await.is_err() {
            break;
        }
    }
    completions.await?
}

/// Beginning and end of the longest time without an acknowledgement after the loss.
fn longest_gap(lost_at: Instant, acknowledged: &[Instant]) -> (Instant, Instant) {
    let before = acknowledged.iter().rev().find(|at| **at <= lost_at).copied().unwrap_or(lost_at);
    let after: Vec<Instant> = acknowledged.iter().filter(|at| **at > lost_at).copied().collect();
    let began = [before].into_iter().chain(after.iter().copied());
    let gaps = began.zip(after.iter().copied());
    gaps.max_by_key(|(began, ended)| *ended - *began).unwrap_or((lost_at, lost_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_ends_the_part_that_is_named_after_it() {
        let steps = ["notice", "claim", "seal", "fence", "flush", "stage", "register"];
        assert!(steps.iter().map(|step| part_until(step)).eq(parts()[..7].iter().copied().map(Some)));
        assert_eq!(part_until("something"), None);
    }

    #[test]
    fn the_protocols_own_part_is_known_if_it_came_to_its_end() {
        let core = |parts: &[(Figure, f64)]| with_core(parts.iter().copied().collect()).remove(&Figure::Core);
        assert_eq!(core(&[(Figure::Seal, 1.0), (Figure::Fence, 2.0), (Figure::Flush, 3.0)]), Some(6.0));
        assert_eq!(core(&[(Figure::Fence, 2.0), (Figure::Flush, 3.0)]), Some(5.0));
        assert_eq!(core(&[(Figure::Seal, 1.0)]), None);
    }

    #[test]
    fn the_gap_may_have_begun_before_the_loss() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let acknowledged = [at(1), at(2), at(20), at(21), at(25)];
        assert_eq!(longest_gap(at(3), &acknowledged), (at(2), at(20)));
        assert_eq!(longest_gap(at(20), &acknowledged), (at(21), at(25)));
    }
}
