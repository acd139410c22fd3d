//! A player's queues stay within their limits, besides the batches in flight.

use super::Finding;
use crate::history::History;

/// Memory of the largest message, in bytes: a batch takes one of any size.
const LARGEST: usize = 2048;

pub(super) fn check(history: &History) -> Finding {
    let Some(playing) = &history.playing else { return Ok(()) };
    let (most, limits) = (playing.most, playing.limits);
    // Each of the two queues of a target may hold one gap besides its messages.
    let messages = 2 * (limits.queue_messages + 1);
    if most.messages > messages {
        return Err(format!("a target had {} queued messages; the most is {messages}", most.messages));
    }
    let memory = limits.memory + playing.flights * (limits.batch_bytes + LARGEST);
    if most.memory > memory {
        return Err(format!("the queues had {} bytes; the most is {memory}", most.memory));
    }
    Ok(())
}
