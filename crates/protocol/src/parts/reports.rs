//! Reports from a replica that takes part in no view to the controller on its node, which may form
//! a view with it.

use std::time::Duration;

use seriatim_model::{Address, Endpoint, Member, Time, ViewNumber, limits};

use super::Backoff;
use crate::control::message::Message;
use crate::roles::RoleEffect;

/// How long a replica waits for the outcome of a view change attempt that has reached it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(400);
/// The longest pause between reports.
const MOST: Duration = Duration::from_secs(1);

/// When a replica reports that it takes part in no view, and the highest registered view that it
/// cannot start.
///
/// It reports at once when it learns of such a view, then with backoff: controllers learn of
/// returning nodes and registrations by themselves.
#[derive(Clone, Debug)]
pub struct Reports {
    cannot_start: ViewNumber,
    backoff: Backoff,
}

impl Default for Reports {
    fn default() -> Self {
        Self { cannot_start: ViewNumber::NONE, backoff: Backoff::new(Time::ZERO, limits::REPORT_EVERY, MOST) }
    }
}

impl Reports {
    /// The highest view that the replica cannot start.
    #[must_use]
    pub fn cannot_start(&self) -> ViewNumber {
        self.cannot_start
    }

    /// Notes a registered view that the replica cannot start. Only a later view can include it.
    pub fn note(&mut self, now: Time, view: ViewNumber) {
        self.cannot_start = self.cannot_start.max(view);
        self.backoff.restart(now);
    }

    /// Delays the next report, so that a view change attempt that reached the replica can finish.
    pub fn back_off(&mut self, now: Time) {
        self.backoff.restart(now + ATTEMPT_TIMEOUT);
    }

    /// The replica started a view. The next report stays scheduled, in case the write of the view
    /// fails.
    pub fn started(&mut self) {
        self.cannot_start = ViewNumber::NONE;
        self.backoff.helped();
    }

    /// When the next report is due.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.backoff.at()
    }

    /// Sends the report if it is due. The state of replica `me` belongs to view `view`.
    pub fn report(&mut self, now: Time, me: Member, view: ViewNumber, out: &mut Vec<RoleEffect>) {
        if !self.backoff.is_due(now) {
            return;
        }
        self.backoff.tried(now);
        let to = Address::Node(me.node, Endpoint::Controller);
        let message = Message::Report { view, cannot_start: self.cannot_start, incarnation: me.incarnation };
        out.push(RoleEffect::Send { to, message: message.into() });
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::{Incarnation, NodeId};

    use super::*;

    fn reported(reports: &mut Reports, from: u64, until: u64) -> Vec<u64> {
        let me = Member { node: NodeId(1), incarnation: Incarnation(7) };
        let is_sent = |ms: &u64| {
            let mut out = vec![];
            reports.report(Time::ZERO + Duration::from_millis(*ms), me, ViewNumber::NONE, &mut out);
            !out.is_empty()
        };
        (from..until).filter(is_sent).collect()
    }

    #[test]
    fn reports_come_less_and_less_often_until_something_happens() {
        let mut reports = Reports::default();
        assert_eq!(reported(&mut reports, 0, 5000), [0, 100, 300, 700, 1500, 2500, 3500, 4500]);
        reports.note(Time::ZERO + Duration::from_millis(5000), ViewNumber(3));
        assert_eq!(reported(&mut reports, 5000, 5300), [5000, 5100]);
        assert_eq!(reports.cannot_start(), ViewNumber(3));
        reports.back_off(Time::ZERO + Duration::from_millis(5300));
        assert_eq!(reported(&mut reports, 5300, 6000), [5700, 5800]);
        reports.started();
        assert_eq!(
            (reports.cannot_start(), reported(&mut reports, 6000, 6200)),
            (ViewNumber::NONE, vec![6000, 6100])
        );
    }
}
