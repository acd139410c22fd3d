//! An operator asks about the loss of a log that has a view: records of retired shards that no
//! replica holds.
//!
//! ```text
//!  operator      controller      replicas of retired shards
//!     |-- Recover --->|                |
//!     |               |-- Registered ->|     the current view
//!     |               |-- Survey ----->|
//!     |               |<- Surveyed ----|     within a second
//!     |<- Recovered --|                      records that no answering replica has; silent nodes
//! ```
//!
//! If no view can be formed, the operator sees and accepts the whole loss at once. With the
//! operator's consent a view abandons these records, and the log's history lists them as lost. A
//! shard without records leaves the view; its late replicas hold nothing that counts.

use std::convert::Infallible;

use seriatim_model::{
    Address, Effect, Endpoint, Gap, Input, LogEntry, Machine, RetiredShard, Time, View, ViewNumber,
};

use super::{Controller, Message, retired, send};
use crate::control::attempt::Attempt;
use crate::control::data_loss::Loss;
use crate::control::poll::{ANSWER_WITHIN, Answers, Poll};
use crate::control::survey::surveyed;
use crate::mutation::{Mutation, Options};
use crate::roles::{self, RoleEffect};
use crate::shard::{self, Survey, Surveyed};

/// Distinguishes these surveys from those of `retaining.rs`.
const OF_RETIRED: u64 = 1 << 63;

/// A survey of a view's retired shards.
#[derive(Debug, Clone)]
pub(super) struct Inquiry {
    entry: LogEntry,
    request: u64,
    poll: Poll,
    then: Then,
}

/// What to do with the survey.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// A view stands: answer, or form a view that abandons the lost records.
    Answer,
    /// No view is possible without this loss: report both losses.
    Add(Loss),
    /// The loss is accepted: form a view.
    Attempt,
}

impl Inquiry {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.poll.deadline()
    }

    fn view(&self) -> ViewNumber {
        self.entry.view_number()
    }
}

impl Controller {
    /// Answers a waiting operator: at once without retired shards, otherwise after a survey.
    pub(super) fn answer_of_retired(&mut self, now: Time, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        if !self.orders.is_pending()
            || self.inquiry.as_ref().is_some_and(|inquiry| inquiry.view() == entry.view_number())
        {
            return;
        }
        if retired(entry).next().is_none() {
            return self.answer_whole(entry, out);
        }
        self.ask_of_retired(now, entry, Then::Answer, out);
    }

    pub(super) fn ask_of_retired(
        &mut self,
        now: Time,
        entry: &LogEntry,
        then: Then,
        out: &mut Vec<RoleEffect>,
    ) {
        for to in retired(entry) {
            send(to, Message::Registered { entry: entry.clone() }, out);
        }
        self.inquiries += 1;
        let request = OF_RETIRED | self.inquiries;
        let survey = shard::Message::Survey(Survey { request, times: false, usage: false });
        let poll = Poll::new(now, retired(entry).map(|to| (to, survey.clone().into())));
        self.inquiry = Some(Inquiry { entry: entry.clone(), request, poll, then });
        self.inquire(now, Input::Wake, out);
    }

    pub(super) fn surveyed(
        &mut self,
        now: Time,
        from: Address,
        answer: &Surveyed,
        out: &mut Vec<RoleEffect>,
    ) {
        if self.inquiry.as_ref().is_some_and(|inquiry| inquiry.request == answer.request) {
            let message = shard::Message::Surveyed(answer.clone()).into();
            self.inquire(now, Input::Message { from, message }, out);
        }
    }

    pub(super) fn inquire(
        &mut self,
        now: Time,
        input: Input<roles::Message, Infallible>,
        out: &mut Vec<RoleEffect>,
    ) {
        let Some(inquiry) = &mut self.inquiry else { return };
        let mut effects = vec![];
        inquiry.poll.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push(RoleEffect::Send { to, message }),
                Effect::Reply { reply, .. } => judge(self, now, &reply, out),
                // A poll uses no disk.
                _ => {}
            }
        }
    }

    fn stands(&self, view: ViewNumber) -> bool {
        self.current.as_ref().is_some_and(|entry| entry.view_number() == view)
    }

    /// Answers that nothing is lost now. After an accepted loss it also names the view that
    /// continued, for retransmitted questions.
    fn answer_whole(&mut self, entry: &LogEntry, out: &mut Vec<RoleEffect>) {
        let mut text = format!("view {} is active: nothing to recover", entry.view_number());
        if let Some((after, start)) = entry.history.last_reassigned() {
            text += &format!("; after an accepted loss, view {after} continued at position {start}");
        }
        self.answer_orders((true, false), text, out);
    }

    /// Returns whether an operator still waits for the loss of retired shards.
    pub(super) fn answer_registered(
        &mut self,
        attempt: &Attempt,
        view: &View,
        out: &mut Vec<RoleEffect>,
    ) -> bool {
        let mut text =
            format!("view {} is registered; the log continues at position {}", view.number, view.start);
        let loss = attempt.loss();
        let lost = loss.is_some();
        if let Some(loss) = loss {
            text = format!("{text}; {loss}");
        }
        let is_asked = self.orders.is_pending() && !lost && !view.retired.is_empty();
        if !is_asked {
            self.answer_orders((true, lost), text, out);
        }
        is_asked
    }

    pub(super) fn answer_orders(
        &mut self,
        (done, lost): (bool, bool),
        text: String,
        out: &mut Vec<RoleEffect>,
    ) {
        (self.given_up, self.gives_up_all) = (vec![], false);
        self.orders.answer(done, lost, text, out);
    }
}

/// Starts a survey before an attempt if the operator accepts a loss and that of retired shards is
/// unknown. Returns whether it did.
pub(super) fn asks_of_retired_first(
    controller: &mut Controller,
    now: Time,
    entry: &LogEntry,
    out: &mut Vec<RoleEffect>,
) -> bool {
    let accepts = controller.orders.accepts_at(now) && entry.unavailable.is_some();
    let is_unknown =
        !controller.gives_up_all && controller.given_up.is_empty() && retired(entry).next().is_some();
    if accepts && is_unknown {
        controller.ask_of_retired(now, entry, Then::Attempt, out);
        controller.rest(now, ANSWER_WITHIN * 2);
    }
    accepts && is_unknown
}

/// Answers the operator, or begins the view that abandons the lost records.
fn judge(controller: &mut Controller, now: Time, answers: &Answers, out: &mut Vec<RoleEffect>) {
    let Some(inquiry) = controller.inquiry.take() else { return };
    let Some(view) = inquiry.entry.view.as_ref().filter(|view| controller.stands(view.number)) else {
        // A newer view may have other retired shards.
        return controller.begin(now, out);
    };
    let lost = view
        .retired
        .iter()
        .filter_map(|retired| lost_of(retired, &inquiry.entry, answers, controller.options));
    let lost: Vec<Gap> = lost.collect();
    let loss = match inquiry.then {
        Then::Attempt => {
            (controller.given_up, controller.gives_up_all) = (lost, true);
            return controller.begin_at_once(now, out);
        }
        Then::Add(loss) => loss.with_retired(lost),
        Then::Answer if lost.is_empty() => return controller.answer_whole(&inquiry.entry, out),
        Then::Answer if controller.orders.accepts_at(now) => {
            (controller.given_up, controller.wanted) = (lost, Some(view.number));
            return controller.begin(now, out);
        }
        Then::Answer => Loss::of_retired(lost),
    };
    let silent = answers.iter().filter(|(_, answer)| answer.is_none());
    // A live node without an answer has no such replica.
    let silent = silent.filter_map(|(to, _)| match to {
        Address::Node(node, _) if controller.suspected.contains(node) => Some(format!("node {node}")),
        _ => None,
    });
    let silent: Vec<String> = silent.collect();
    let mut text = loss.to_string();
    match &silent[..] {
        [] => {}
        [node] => text += &format!("; {node} is not responding and may still have them"),
        nodes => text += &format!("; {} are not responding and may still have them", nodes.join(" and ")),
    }
    controller.answer_orders((false, true), text, out);
}

/// Positions of a retired shard that no answering replica holds; a silent one may hold them. A
/// replica that reports the shard's last view lacks at most cuts, which the ordering layer sends:
/// then nothing is lost, and the result is `None`.
fn lost_of(retired: &RetiredShard, entry: &LogEntry, answers: &Answers, options: Options) -> Option<Gap> {
    let RetiredShard { shard, last, .. } = retired;
    let mut held = entry.history.start().max(retired.members().begins);
    for node in retired.nodes() {
        let from = Address::Node(node, Endpoint::Shard(*shard));
        let Some(answer) = answers.get(&from).cloned().flatten().and_then(surveyed) else { continue };
        if options.mutates(Mutation::GivenUpWhole) {
            continue;
        }
        if answer.view == last.number {
            return None;
        }
        held = held.max(answer.stable);
    }
    let gap = Gap { shard: *shard, from: held, end: retired.ends(&entry.history) };
    (gap.from < gap.end).then_some(gap)
}
