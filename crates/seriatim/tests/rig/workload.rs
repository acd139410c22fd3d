//! Programs that append to and read a log while its cluster is killed and restarted, and record a
//! [`History`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use seriatim_client::{
    Append, AppendError, AppendOptions, Client, Event, Log, LogOptions, Order, Position, Receipt, SessionId,
    SubscribeOptions, Subscription,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::connect;
use crate::history::{History, may_have_no_ops};
use crate::speculating::speculate;

/// Time limit of an operation, including a cluster restart.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Silence after which a reader asks for the tail again.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Keeps this many appends in flight.
    Pipelined(usize),
    /// Waits for each append's final position, and asks for the tail.
    Synchronous,
    /// Pipelined; it crashes repeatedly and resumes its session.
    Resuming,
    /// Keeps this many appends in flight, over two unordered sessions.
    Unordered(usize),
}

/// The kinds that behave differently in this order.
pub(crate) fn all_styles(order: Order) -> Vec<Style> {
    let mut styles = vec![Style::Pipelined(32), Style::Synchronous];
    if order.is_lazy() {
        styles.push(Style::Resuming);
    }
    if may_have_no_ops(order) {
        styles.push(Style::Unordered(32));
    }
    styles
}

pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) history: History,
    stop: watch::Sender<bool>,
    writers: JoinSet<()>,
    address: String,
}

impl Workload {
    /// Starts a program per style, a reader and a speculating reader.
    pub(crate) fn start(address: &str, name: &str, order: Order, seed: u64, styles: &[Style]) -> Self {
        let (history, stop) = (History::new(order), watch::Sender::new(false));
        let mut writers = JoinSet::new();
        for (number, style) in styles.iter().enumerate() {
            let writer = Writer {
                address: address.to_owned(),
                log: name.to_owned(),
                label: format!("{name}-{number}"),
                style: *style,
                history: history.clone(),
                random: StdRng::seed_from_u64(seed ^ (number as u64) << 32),
                stop: stop.subscribe(),
                submitted: 0,
            };
            writers.spawn(writer.run());
        }
        writers.spawn(follow(address.to_owned(), name.to_owned(), history.clone(), stop.subscribe()));
        writers.spawn(speculate(address.to_owned(), name.to_owned(), history.clone(), stop.subscribe()));
        Self { name: name.to_owned(), history, stop, writers, address: address.to_owned() }
    }

    /// Stops the programs, reads the whole log and checks it. Returns the number of acknowledged
    /// appends.
    pub(crate) async fn finish(mut self) -> Result<u64, Vec<String>> {
        self.stop.send_replace(true);
        while let Some(ended) = self.writers.join_next().await {
            ended.expect("a program came to its end");
        }
        let end = self.read_all().await;
        let violations = self.history.check(end);
        if violations.is_empty() { Ok(self.history.acknowledged()) } else { Err(violations) }
    }

    pub(crate) async fn read_all(&self) -> Position {
        let log = open(&self.address, &self.name).await;
        let asked = self.history.ask_tail();
        let tail = log.check_tail().await.expect("the tail");
        self.history.tail(asked, tail);
        let mut events =
            log.subscribe(Position(0), SubscribeOptions::default()).await.expect("a subscription");
        read_to(&log, &mut events, (Position(0), tail), &self.history).await
    }

    /// Reads the stable part, without waiting.
    pub(crate) async fn read_stable(&self) {
        let log = open(&self.address, &self.name).await;
        let mut next = Position(0);
        loop {
            let records = log.read(next, 4096, Duration::ZERO).await.expect("the stable part is readable");
            let Some(last) = records.last() else { return };
            next = last.position + 1;
            for stored in records {
                self.history.observe(stored.position, stored.id, stored.record.payload());
            }
        }
    }
}

pub(crate) async fn open(address: &str, name: &str) -> Log {
    connect(address, DEADLINE).await.log(name).await.expect("the log is there")
}

/// Reads from `next` to the tail, without gaps; returns the end. The tail may exceed the last
/// record while replicas disagree, so silence causes a new question.
async fn read_to(
    log: &Log,
    events: &mut Subscription,
    (mut next, mut tail): (Position, Position),
    history: &History,
) -> Position {
    let mut quiet_since = Instant::now();
    while next < tail {
        match tokio::time::timeout(QUIET, events.next()).await {
            Ok(event) => {
                next = deliver(event.expect("it has no end").expect("it outlives restarts"), next, history);
                quiet_since = Instant::now();
            }
            Err(_) => {
                tail = tail.min(log.check_tail().await.expect("the tail"));
                if history.may_have_no_ops() && ends_with_no_ops(log, next, tail).await {
                    history.skip(next, tail);
                    next = tail;
                }
            }
        }
        let name = log.name();
        assert!(quiet_since.elapsed() < DEADLINE, "{name}: the subscriber is stuck at {next} of {tail}");
    }
    next
}

/// Whether everything from `next` to the tail is final and without records.
async fn ends_with_no_ops(log: &Log, next: Position, tail: Position) -> bool {
    let mut rest =
        log.subscribe(next, SubscribeOptions::default().until(tail)).await.expect("a subscription");
    tokio::time::timeout(QUIET, rest.next()).await.is_ok_and(|event| event.is_none())
}

/// Reads up to the log's tail when the writers end.
async fn follow(address: String, name: String, history: History, mut stop: watch::Receiver<bool>) {
    let log = open(&address, &name).await;
    let mut events = log.subscribe(Position(0), SubscribeOptions::default()).await.expect("a subscription");
    let mut next = Position(0);
    loop {
        tokio::select! {
            event = events.next() => {
                let event = event.expect("it has no end").expect("it outlives restarts");
                next = deliver(event, next, &history);
            }
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    let tail = log.check_tail().await.expect("the tail");
    read_to(&log, &mut events, (next, tail), &history).await;
}

/// Records an event; returns the next expected position.
fn deliver(event: Event, next: Position, history: &History) -> Position {
    match event {
        Event::Deliver { position, id, record, speculative } => {
            let skips = position > next && history.may_have_no_ops();
            if position != next && !skips || speculative {
                history.violation(format!("a subscriber was given {position} instead of {next}"));
            }
            if skips {
                history.skip(next, position);
            }
            history.observe(position, id, record.payload());
            position + 1
        }
        other => {
            history.violation(format!("a subscriber was told {other:?}"));
            next
        }
    }
}

struct Writer {
    address: String,
    log: String,
    label: String,
    style: Style,
    history: History,
    random: StdRng,
    stop: watch::Receiver<bool>,
    submitted: u64,
}

/// Index in the history, and payload, of an unacknowledged append.
type Pending = (usize, Bytes);

impl Writer {
    async fn run(self) {
        match self.style {
            Style::Pipelined(in_flight) => self.pipeline(in_flight).await,
            Style::Synchronous => self.one_by_one().await,
            Style::Resuming => self.die_and_resume().await,
            Style::Unordered(in_flight) => self.unordered(in_flight).await,
        }
    }

    fn is_over(&self) -> bool {
        *self.stop.borrow()
    }

    fn payload(&mut self) -> Bytes {
        self.submitted += 1;
        let filler = "abcdefgh".repeat(self.random.random_range(0..40));
        format!("{}-{} {filler}", self.label, self.submitted).into()
    }

    async fn pipeline(mut self, in_flight: usize) {
        let log = open(&self.address, &self.log).await;
        let session = self.history.open_session();
        let mut pending: VecDeque<(usize, Append)> = VecDeque::new();
        while !self.is_over() {
            let payload = self.payload();
            let index = self.history.invoke(session, payload.clone());
            let append = log.submit(payload).await.expect("there is room");
            pending.push_back((index, append));
            if pending.len() >= in_flight {
                self.complete(pending.pop_front()).await;
            }
        }
        while !pending.is_empty() {
            self.complete(pending.pop_front()).await;
        }
    }

    async fn complete(&self, pending: Option<(usize, Append)>) {
        let Some((index, append)) = pending else { return };
        match append.await {
            Ok(Receipt { id, position, appended_again, .. }) => {
                self.history.acknowledge(index, Some(id), position, appended_again);
            }
            Err(AppendError::NotAppended) if self.history.may_have_no_ops() => self.history.refuse(index),
            Err(cause) => panic!("{}: {cause}", self.label),
        }
    }

    async fn unordered(mut self, in_flight: usize) {
        let client = connect(&self.address, DEADLINE).await;
        let log = client.log_with(&self.log, LogOptions::unordered(2)).await.expect("the log is there");
        let mut pending: VecDeque<(usize, Append)> = VecDeque::new();
        while !self.is_over() {
            let payload = self.payload();
            // Without an order, each append counts as its own session.
            let index = self.history.invoke(self.history.open_session(), payload.clone());
            pending.push_back((index, log.submit(payload).await.expect("there is room")));
            if pending.len() >= in_flight {
                self.complete(pending.pop_front()).await;
            }
        }
        while !pending.is_empty() {
            self.complete(pending.pop_front()).await;
        }
    }

    async fn one_by_one(mut self) {
        let log = open(&self.address, &self.log).await;
        let session = self.history.open_session();
        while !self.is_over() {
            let payload = self.payload();
            let index = self.history.invoke(session, payload.clone());
            let mut options = AppendOptions::default();
            options.sync = true;
            let append = log.submit_with(payload, options).await.expect("there is room");
            self.complete(Some((index, append))).await;
            if self.random.random_ratio(1, 8) {
                let asked = self.history.ask_tail();
                let tail = log.check_tail().await.unwrap_or_else(|cause| panic!("{}: {cause}", self.label));
                self.history.tail(asked, tail);
            }
        }
    }

    /// Each run is a new client. It crashes with appends in flight, which the next run repeats in
    /// the same session.
    async fn die_and_resume(mut self) {
        let session = self.history.open_session();
        let mut pending: VecDeque<Pending> = VecDeque::new();
        let mut known: Option<(SessionId, u64)> = None;
        loop {
            let is_last = self.is_over();
            let client = connect(&self.address, DEADLINE).await;
            let lives_for = if is_last { u64::MAX } else { self.random.random_range(1..300) };
            self.live(&client, session, &mut known, &mut pending, lives_for).await;
            if is_last && pending.is_empty() {
                return;
            }
        }
    }

    /// One run, which crashes after `lives_for` answers. `known`: the session, and its first
    /// unacknowledged number.
    async fn live(
        &mut self,
        client: &Client,
        session: usize,
        known: &mut Option<(SessionId, u64)>,
        pending: &mut VecDeque<Pending>,
        lives_for: u64,
    ) {
        let mut options = LogOptions::default();
        options.resume = *known;
        let log = client.log_with(&self.log, options).await.expect("the log is there");
        if known.is_none() {
            *known = log.session().await;
        }
        let mut in_flight = VecDeque::new();
        for (_, payload) in pending.iter() {
            in_flight.push_back(log.submit(payload.clone()).await.expect("there is room"));
        }
        for _ in 0..lives_for {
            while pending.len() < 64 && !self.is_over() {
                let payload = self.payload();
                pending.push_back((self.history.invoke(session, payload.clone()), payload.clone()));
                in_flight.push_back(log.submit(payload).await.expect("there is room"));
            }
            let Some(oldest) = in_flight.pop_front() else { return };
            let outcome = oldest.await;
            let (index, _) = pending.pop_front().expect("it is as long as what is in flight");
            *known = Some(self.outcome(index, outcome, *known));
        }
    }

    fn outcome(
        &self,
        index: usize,
        outcome: Result<Receipt, AppendError>,
        known: Option<(SessionId, u64)>,
    ) -> (SessionId, u64) {
        match (outcome, known) {
            (Ok(Receipt { id, position, .. }), _) => {
                // The id may belong to a successor of the known session.
                if let Some((session, number)) = known.filter(|(session, _)| *session == id.session)
                    && id.number != number
                {
                    self.history.violation(format!("acknowledged as {id}, not as {session}:{number}"));
                }
                self.history.acknowledge(index, Some(id), position, 0);
                (id.session, id.number + 1)
            }
            // An earlier run got the answer and crashed before recording it.
            (Err(AppendError::AppendedBefore), Some((session, number))) => {
                // The append's id may be in a successor session.
                self.history.acknowledge(index, None, None, 0);
                (session, number + 1)
            }
            (Err(AppendError::NotAppended), Some((session, number))) if self.history.may_have_no_ops() => {
                self.history.refuse(index);
                (session, number + 1)
            }
            (Err(cause), _) => panic!("{}: {cause}", self.label),
        }
    }
}
