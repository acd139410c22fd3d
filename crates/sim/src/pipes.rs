//! Connections with limited rate, queue at the sender, and unread bytes at the receiver.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::Time;

use crate::network::{Connection, Party};

/// One direction of a connection: connection and receiver.
pub type Way = (Connection, Party);

/// A frame leaving a queue, and when its last byte is sent.
pub type Leaving = (Bytes, Time);

/// All directions.
#[derive(Debug, Default)]
pub struct Pipes {
    pipes: BTreeMap<Way, Pipe>,
    /// Bytes queued at nodes.
    queued_at_nodes: usize,
    /// Bytes not yet read by nodes.
    unread_at_nodes: usize,
}

#[derive(Debug)]
struct Pipe {
    from: Party,
    queue: VecDeque<(Bytes, Time)>,
    queued_bytes: usize,
    unread_bytes: usize,
    free_at: Time,
}

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes per second.
    pub link_bytes: u64,
    /// Most unread bytes at the receiver.
    pub socket_bytes: usize,
    /// Most queued bytes at the sender.
    pub queue_bytes: usize,
}

impl Pipes {
    /// Queues a frame that is ready at `now`. Returns false if there is no room.
    pub fn push(&mut self, way: Way, from: Party, now: Time, frame: Bytes, bounds: Bounds) -> bool {
        let pipe = self.pipes.entry(way).or_insert_with(|| Pipe {
            from,
            queue: VecDeque::new(),
            queued_bytes: 0,
            unread_bytes: 0,
            free_at: Time::ZERO,
        });
        if pipe.queued_bytes > 0 && pipe.queued_bytes + frame.len() > bounds.queue_bytes {
            return false;
        }
        pipe.queued_bytes += frame.len();
        self.queued_at_nodes += if is_node(from) { frame.len() } else { 0 };
        pipe.queue.push_back((frame, now));
        true
    }

    /// Removes and returns the frames that can leave now.
    pub fn pump(&mut self, way: Way, now: Time, bounds: Bounds) -> Vec<Leaving> {
        let Some(pipe) = self.pipes.get_mut(&way) else { return vec![] };
        let mut leaving = vec![];
        while let Some((frame, ready)) = pipe.queue.front() {
            if pipe.unread_bytes > 0 && pipe.unread_bytes + frame.len() > bounds.socket_bytes {
                break;
            }
            let takes = frame.len() as u64 * 1_000_000_000 / bounds.link_bytes;
            pipe.free_at = pipe.free_at.max(*ready).max(now) + Duration::from_nanos(takes);
            let (frame, _) = pipe.queue.pop_front().expect("just seen");
            pipe.queued_bytes -= frame.len();
            pipe.unread_bytes += frame.len();
            self.queued_at_nodes -= if is_node(pipe.from) { frame.len() } else { 0 };
            self.unread_at_nodes += if is_node(way.1) { frame.len() } else { 0 };
            leaving.push((frame, pipe.free_at));
        }
        leaving
    }

    /// Notes that the receiver read `bytes`, or that they were lost.
    pub fn taken(&mut self, way: Way, bytes: usize) {
        let Some(pipe) = self.pipes.get_mut(&way) else { return };
        // Of a duplicated frame, only one copy was counted as unread.
        let bytes = bytes.min(pipe.unread_bytes);
        pipe.unread_bytes -= bytes;
        self.unread_at_nodes -= if is_node(way.1) { bytes } else { 0 };
    }

    /// Removes a closed connection and its queues.
    pub fn reset(&mut self, connection: Connection, ends: [Party; 2]) {
        for end in ends {
            let Some(pipe) = self.pipes.remove(&(connection, end)) else { continue };
            self.queued_at_nodes -= if is_node(pipe.from) { pipe.queued_bytes } else { 0 };
            self.unread_at_nodes -= if is_node(end) { pipe.unread_bytes } else { 0 };
        }
    }

    /// Bytes queued at nodes or not yet read by them.
    #[must_use]
    pub fn held_at_nodes(&self) -> usize {
        self.queued_at_nodes + self.unread_at_nodes
    }
}

fn is_node(party: Party) -> bool {
    matches!(party, Party::Node(_))
}

#[cfg(test)]
mod tests {
    use seriatim_model::NodeId;

    use super::*;

    const WAY: Way = (Connection(1), Party::Node(NodeId(2)));
    const FROM: Party = Party::Node(NodeId(1));
    const BOUNDS: Bounds = Bounds { link_bytes: 1000, socket_bytes: 150, queue_bytes: 250 };

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn push(pipes: &mut Pipes) -> bool {
        pipes.push(WAY, FROM, at(0), Bytes::from_static(&[0; 100]), BOUNDS)
    }

    #[test]
    fn a_frame_takes_its_time_and_waits_for_room_at_the_receiver() {
        let mut pipes = Pipes::default();
        assert!(push(&mut pipes) && push(&mut pipes));
        assert!(!push(&mut pipes), "the queue is full");
        let leaving = pipes.pump(WAY, at(0), BOUNDS);
        assert_eq!(leaving.iter().map(|(_, when)| *when).collect::<Vec<_>>(), [at(100)]);
        assert!(pipes.pump(WAY, at(500), BOUNDS).is_empty(), "the receiver took nothing");
        pipes.taken(WAY, 100);
        assert_eq!(pipes.pump(WAY, at(500), BOUNDS).len(), 1);
        assert_eq!(pipes.held_at_nodes(), 100);
        pipes.reset(WAY.0, [FROM, WAY.1]);
        assert_eq!(pipes.held_at_nodes(), 0);
    }
}
