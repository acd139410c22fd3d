//! Tests that every kind of target passes, with real databases and files.

use bytes::Bytes;
use seriatim_model::{LogId, Position};

use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

/// A database or a file in which a target stores payloads.
pub(super) trait Fixture {
    type Target: Target;

    /// A target that is not attached.
    fn target(&self) -> Self::Target;

    /// The stored payloads, in order.
    async fn effects(&self) -> Vec<String>;
}

/// A fixture whose target keeps its bound beside the payloads.
pub(super) trait Restored: Fixture {
    /// Copies the data.
    async fn save(&mut self);

    /// Replaces the data by the last copy.
    async fn restore(&mut self);
}

pub(super) fn stream(log: u64) -> Stream {
    Stream { log: LogId(log), player: "billing".into() }
}

pub(super) fn message(position: u64, parts: &[&str]) -> Message {
    Message {
        position: Position(position),
        appended_ms: 1_700_000_000_000 + position,
        key: None,
        parts: parts.iter().map(|part| Bytes::copy_from_slice(part.as_bytes())).collect(),
    }
}

/// A batch with one message `entry P` at each of the positions.
pub(crate) fn batch(after: u64, upto: u64, positions: impl IntoIterator<Item = u64>) -> Batch {
    let message = |position| message(position, &[&format!("entry {position}")]);
    Batch {
        after: Position(after),
        upto: Position(upto),
        messages: positions.into_iter().map(message).collect(),
    }
}

pub(super) fn entries(positions: impl IntoIterator<Item = u64>) -> Vec<String> {
    positions.into_iter().map(|position| format!("entry {position}")).collect()
}

/// Attaches for log 7.
pub(super) async fn attach(target: &mut impl Target, epoch: u64) -> Result<Position, AttachError> {
    target.attach(&stream(7), epoch, None).await
}

pub(super) async fn passes(mut fixture: impl Restored) {
    passes_without_copies(&fixture).await;
    continues_from_a_restored_copy(&mut fixture).await;
    applies_a_large_batch(&fixture).await;
}

/// The tests for targets whose bound is elsewhere, so that no copy has both.
pub(super) async fn passes_without_copies(fixture: &impl Fixture) {
    applies_once_although_an_answer_is_lost(fixture).await;
    applies_nothing_at_another_bound(fixture).await;
    fences_a_lower_epoch(fixture).await;
    keeps_the_bound_of_another_log(fixture).await;
}

async fn applies_once_although_an_answer_is_lost(fixture: &impl Fixture) {
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(target.apply(&batch(0, 3, [1, 2])).await, Ok(()));
    assert_eq!(target.apply(&batch(3, 4, [])).await, Ok(()));
    // The player ends between the commit and the answer: it knows none of the bounds.
    drop(target);
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 2).await, Ok(Position(4)));
    assert_eq!(target.apply(&batch(4, 5, [4])).await, Ok(()));
    // A second attach of one session.
    assert_eq!(attach(&mut target, 2).await, Ok(Position(5)));
    assert_eq!(fixture.effects().await, entries([1, 2, 4]));
}

async fn applies_nothing_at_another_bound(fixture: &impl Fixture) {
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 2).await, Ok(Position(5)));
    let moved = Err(ApplyError::Moved { applied: Position(5) });
    assert_eq!(target.apply(&batch(4, 6, [5])).await, moved);
    assert_eq!(attach(&mut target, 2).await, Ok(Position(5)));
    assert_eq!(target.apply(&batch(6, 7, [6])).await, moved);
    assert_eq!(fixture.effects().await, entries([1, 2, 4]));
    // Without an attach there is no session.
    let mut target = fixture.target();
    assert!(matches!(target.apply(&batch(5, 6, [5])).await, Err(ApplyError::Broken { .. })));
    assert_eq!(fixture.effects().await, entries([1, 2, 4]));
}

async fn fences_a_lower_epoch(fixture: &impl Fixture) {
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 3).await, Ok(Position(5)));
    drop(target);
    assert_eq!(attach(&mut fixture.target(), 2).await, Err(AttachError::Fenced { epoch: 3 }));
}

async fn keeps_the_bound_of_another_log(fixture: &impl Fixture) {
    let mut target = fixture.target();
    let other = Err(AttachError::OtherStream { stream: stream(7) });
    assert_eq!(target.attach(&stream(8), 4, None).await, other);
    assert_eq!(attach(&mut target, 3).await, Ok(Position(5)), "nothing changed");
    drop(target);
    // The new log's player replaces the bound, at any epoch.
    let mut target = fixture.target();
    assert_eq!(target.attach(&stream(8), 1, Some(Position(2))).await, Ok(Position(2)));
    assert_eq!(target.apply(&batch(2, 3, [2])).await, Ok(()));
    assert_eq!(target.attach(&stream(8), 1, Some(Position(2))).await, Ok(Position(3)), "its own bound");
    drop(target);
    let mut target = fixture.target();
    let other = Err(AttachError::OtherStream { stream: stream(8) });
    assert_eq!(attach(&mut target, 3).await, other);
    assert_eq!(target.attach(&stream(7), 3, Some(Position(5))).await, Ok(Position(5)));
    assert_eq!(fixture.effects().await, entries([1, 2, 4, 2]));
}

async fn continues_from_a_restored_copy(fixture: &mut impl Restored) {
    fixture.save().await;
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 4).await, Ok(Position(5)));
    assert_eq!(target.apply(&batch(5, 7, [5, 6])).await, Ok(()));
    drop(target);
    fixture.restore().await;
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 4).await, Ok(Position(5)));
    assert_eq!(fixture.effects().await, entries([1, 2, 4, 2]));
    assert_eq!(target.apply(&batch(5, 7, [5, 6])).await, Ok(()));
    assert_eq!(fixture.effects().await, entries([1, 2, 4, 2, 5, 6]));
}

async fn applies_a_large_batch(fixture: &impl Fixture) {
    let mut target = fixture.target();
    assert_eq!(attach(&mut target, 4).await, Ok(Position(7)));
    assert_eq!(target.apply(&batch(7, 7 + 256, 7..7 + 256)).await, Ok(()));
    assert_eq!(fixture.effects().await, entries([1, 2, 4, 2].into_iter().chain(5..7 + 256)));
}
