//! A queue of one target.

use std::collections::VecDeque;

use seriatim_model::Position;

use super::limits::PlayerLimits;
use super::message::{Batch, Message};

/// An element of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A message to send.
    Message(Message),
    /// Nothing from `from` to `end` can be read.
    Gap { from: Position, end: Position, reason: String },
}

impl Item {
    pub(super) fn position(&self) -> Position {
        match self {
            Self::Message(message) => message.position,
            Self::Gap { from, .. } => *from,
        }
    }

    /// Memory that the item occupies, in bytes.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Message(message) => message.memory(),
            Self::Gap { reason, .. } => size_of::<Self>() + reason.len(),
        }
    }
}

/// Messages and gaps, in order of their positions. [`Target`](super::target::Target) asserts the
/// order.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
}

impl Queue {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a message of this size fits. An empty queue takes a message of any size.
    pub(super) fn has_room(&self, bytes: usize, limits: &PlayerLimits) -> bool {
        self.is_empty() || self.len() < limits.queue_messages && self.bytes + bytes <= limits.queue_bytes
    }

    /// Whether at least half of the queue is free.
    pub(super) fn is_half_free(&self, limits: &PlayerLimits) -> bool {
        self.len() <= limits.queue_messages / 2 && self.bytes <= limits.queue_bytes / 2
    }

    pub(super) fn push(&mut self, item: Item) {
        self.bytes += item.memory();
        self.items.push_back(item);
    }

    /// Position of the last item.
    pub(super) fn last(&self) -> Option<Position> {
        self.items.back().map(Item::position)
    }

    pub(super) fn front(&self) -> Option<&Item> {
        self.items.front()
    }

    pub(super) fn pop(&mut self) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.bytes -= item.memory();
        Some(item)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops the later half of the items, at least one. Returns the position of the first dropped.
    pub(super) fn drop_half(&mut self) -> Option<Position> {
        let dropped = self.items.split_off(self.len() / 2);
        self.bytes -= dropped.iter().map(Item::memory).sum::<usize>();
        dropped.front().map(Item::position)
    }

    /// Takes the messages of the next batch: up to a gap, and within the limits of a batch.
    pub(super) fn take_messages(&mut self, limits: &PlayerLimits) -> Vec<Message> {
        let (mut messages, mut bytes) = (vec![], 0);
        while let Some(Item::Message(message)) = self.items.front() {
            bytes += message.memory();
            if messages.len() == limits.batch_messages || bytes > limits.batch_bytes && !messages.is_empty() {
                break;
            }
            let Some(Item::Message(message)) = self.pop() else { unreachable!("the front is a message") };
            messages.push(message);
        }
        messages
    }
}

/// Memory of a batch's messages, in bytes.
pub(super) fn memory(batch: &Batch) -> usize {
    batch.messages.iter().map(Message::memory).sum()
}
