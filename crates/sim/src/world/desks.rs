//! Messages that clients have not read, in plans with a capacity.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use seriatim_model::Time;

use super::scene::Flight;

#[derive(Debug, Default)]
pub(super) struct Desks(BTreeMap<u32, Desk>);

#[derive(Debug, Default)]
struct Desk {
    inbox: VecDeque<Flight>,
    free_at: Time,
    is_reading: bool,
    stalled_until: Time,
}

impl Desks {
    /// Adds a message. Returns when the process starts reading, unless it already does.
    pub(super) fn put(&mut self, client: u32, flight: Flight) -> Option<Time> {
        let desk = self.0.entry(client).or_default();
        desk.inbox.push_back(flight);
        (!std::mem::replace(&mut desk.is_reading, true)).then_some(desk.free_at)
    }

    pub(super) fn take(&mut self, client: u32) -> Option<Flight> {
        self.0.get_mut(&client)?.inbox.pop_front()
    }

    /// Ends the work on a message. Returns when the process reads the next, if any.
    pub(super) fn go_on(&mut self, client: u32) -> Option<Time> {
        let desk = self.0.get_mut(&client)?;
        desk.is_reading = !desk.inbox.is_empty();
        desk.is_reading.then_some(desk.free_at)
    }

    /// Occupies a client's process. Returns when it is free.
    pub(super) fn work(&mut self, client: u32, now: Time, takes: Duration) -> Time {
        let desk = self.0.entry(client).or_default();
        desk.free_at = desk.free_at.max(now) + takes;
        desk.free_at
    }

    pub(super) fn stall(&mut self, client: u32, now: Time, takes: Duration) {
        self.work(client, now, takes);
        self.0.entry(client).or_default().stalled_until = now + takes;
    }

    /// End of the present pause. `None` if the process runs.
    pub(super) fn stalls_until(&self, client: u32, now: Time) -> Option<Time> {
        self.0.get(&client).map(|desk| desk.stalled_until).filter(|until| *until > now)
    }

    pub(super) fn free_at(&mut self, client: u32) -> Time {
        self.0.entry(client).or_default().free_at
    }

    /// Drops the messages of a dead process.
    pub(super) fn clear(&mut self, client: u32) {
        self.0.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::network::{Connection, Party};

    fn flight() -> Flight {
        let (from, to) = (Party::Client(2), Party::Client(1));
        Flight { connection: Connection(1), from, to, frame: Bytes::new(), straggles: false }
    }

    #[test]
    fn a_process_reads_one_message_after_the_other() {
        let (mut desks, ms) = (Desks::default(), Duration::from_millis(1));
        assert_eq!(desks.put(1, flight()), Some(Time::ZERO));
        assert_eq!(desks.put(1, flight()), None, "it is reading already");
        assert!(desks.take(1).is_some());
        assert_eq!(desks.work(1, Time::ZERO, ms), Time::ZERO + ms);
        assert_eq!(desks.go_on(1), Some(Time::ZERO + ms));
        assert!(desks.take(1).is_some());
        assert_eq!((desks.go_on(1), desks.take(1).is_none()), (None, true));
        assert_eq!(desks.put(1, flight()), Some(Time::ZERO + ms), "it was busy until then");
    }

    #[test]
    fn a_process_that_is_not_scheduled_is_busy_as_well() {
        let (mut desks, ms) = (Desks::default(), Duration::from_millis(1));
        desks.work(1, Time::ZERO, ms);
        desks.stall(1, Time::ZERO, ms);
        assert_eq!(desks.free_at(1), Time::ZERO + 2 * ms);
        assert_eq!(desks.stalls_until(1, Time::ZERO), Some(Time::ZERO + ms));
        assert_eq!(desks.stalls_until(1, Time::ZERO + ms), None);
        desks.clear(1);
        assert_eq!((desks.stalls_until(1, Time::ZERO), desks.free_at(1)), (None, Time::ZERO));
    }
}
