//! Listeners for newer views of a log. The keeper of the register's entries notifies them.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, LogId, Time, ViewNumber};

/// How long a listener is notified after its question; it asks again earlier.
pub const LISTENS_FOR: Duration = Duration::from_secs(5);
/// Listeners beyond this number are notified only when they ask.
const MOST: usize = 64 << 10;

/// The addresses that recently asked for news of a log.
///
/// Invariant: `count` is the number of all listeners, and each log in `logs` has one.
#[derive(Clone, Debug, Default)]
pub struct Audience {
    logs: BTreeMap<LogId, BTreeMap<Address, Listener>>,
    count: usize,
    forget_at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    known: ViewNumber,
    until: Time,
}

impl Audience {
    /// Adds a listener that knows `view`, or receives it now.
    pub fn join(&mut self, now: Time, log: LogId, listener: Address, view: ViewNumber) {
        if now >= self.forget_at {
            self.forget_late(now);
        }
        let listeners = self.logs.entry(log).or_default();
        let known = listeners.get_mut(&listener);
        if known.is_none() && self.count >= MOST {
            return self.logs.retain(|_, listeners| !listeners.is_empty());
        }
        self.count += usize::from(known.is_none());
        let known = known.map_or(view, |listener| listener.known.max(view));
        listeners.insert(listener, Listener { known, until: now + LISTENS_FOR });
    }

    /// Whether a log has listeners.
    #[must_use]
    pub fn is_there(&self, log: LogId) -> bool {
        self.logs.contains_key(&log)
    }

    /// Marks the listeners that do not know `view` as notified, and returns them.
    pub fn hears_of(&mut self, now: Time, log: LogId, view: ViewNumber) -> Vec<Address> {
        let Some(listeners) = self.logs.get_mut(&log) else { return vec![] };
        assert!(!listeners.is_empty(), "a log without listeners is not among them");
        let mut behind = vec![];
        for (address, listener) in listeners {
            if listener.known < view && now < listener.until {
                listener.known = view;
                behind.push(*address);
            }
        }
        behind
    }

    /// Removes a deleted log, and returns its listeners.
    pub fn remove_log(&mut self, log: LogId) -> Vec<Address> {
        let listeners = self.logs.remove(&log).unwrap_or_default();
        assert!(
            listeners.len() <= self.count,
            "{} of {} listeners listen to a log",
            listeners.len(),
            self.count
        );
        self.count -= listeners.len();
        listeners.into_keys().collect()
    }

    fn forget_late(&mut self, now: Time) {
        self.forget_at = now + LISTENS_FOR;
        self.logs.retain(|_, listeners| {
            listeners.retain(|_, listener| now < listener.until);
            !listeners.is_empty()
        });
        self.count = self.logs.values().map(BTreeMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ConnectionId;

    use super::*;

    const LOG: LogId = LogId(1);

    fn client(number: u64) -> Address {
        Address::Client(ConnectionId(number), 1)
    }

    fn view(number: u64) -> ViewNumber {
        (0..number).fold(ViewNumber::NONE, |view, _| view.next())
    }

    #[test]
    fn each_is_told_once_of_each_view_that_it_does_not_know() {
        let mut audience = Audience::default();
        audience.join(Time::ZERO, LOG, client(1), view(1));
        audience.join(Time::ZERO, LOG, client(2), view(2));
        audience.join(Time::ZERO, LogId(2), client(3), view(1));
        assert_eq!(audience.hears_of(Time::ZERO, LOG, view(2)), [client(1)]);
        assert_eq!(audience.hears_of(Time::ZERO, LOG, view(2)), []);
        // A late answer does not reset the known view.
        audience.join(Time::ZERO, LOG, client(1), view(1));
        assert_eq!(audience.hears_of(Time::ZERO, LOG, view(2)), []);
        assert_eq!(audience.hears_of(Time::ZERO, LOG, view(3)), [client(1), client(2)]);
        assert_eq!(audience.remove_log(LOG), [client(1), client(2)]);
        assert!(!audience.is_there(LOG) && audience.is_there(LogId(2)));
    }

    #[test]
    fn whoever_does_not_ask_again_is_forgotten() {
        let mut audience = Audience::default();
        audience.join(Time::ZERO, LOG, client(1), view(1));
        let late = Time::ZERO + LISTENS_FOR;
        assert_eq!(audience.hears_of(late, LOG, view(2)), []);
        audience.join(late, LogId(2), client(2), view(1));
        assert!(!audience.is_there(LOG));
        assert_eq!(audience.count, 1);
    }
}
