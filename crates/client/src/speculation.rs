//! Computation on records before they are final.

use std::collections::VecDeque;

use seriatim_model::{Position, Record};

use crate::error::ReadError;
use crate::log::Log;
use crate::subscription::{Event, SubscribeOptions, Subscription};

/// A computation that processes records before they are final, and undoes the effects of void
/// records.
///
/// It has a state and three functions. *Compute* changes the state by a record and returns the
/// effect. *Undo* removes an effect from the state, the latest first, as if its record had never
/// arrived. *Externalize* publishes an effect after its record is final, in the order of positions:
/// an external action cannot be undone.
///
/// ```no_run
/// use seriatim_client::{Client, Position};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Client::connect("127.0.0.1:7700").await?.log("payments").await?;
/// let total = log
///     .speculate(Position(0), 0_u64)
///     .compute(|total: &mut u64, _position, record| {
///         let amount = record.payload().len() as u64;
///         *total += amount;
///         amount
///     })
///     .undo(|total, amount| *total -= amount)
///     .externalize(|total, position, amount| println!("{position}: {amount}, of {total} so far"))
///     .until(Position(1000))
///     .run()
///     .await?;
/// println!("{total}");
/// # Ok(())
/// # }
/// ```
///
/// Each run externalizes an effect once, so a restarted program does so at least once: it must
/// store its position, for example with the last effect, and resume there. The subscription bounds
/// the number of pending effects. A panic in a function occurs in the program's own task and ends
/// the subscription; the log is not affected.
#[derive(Debug)]
pub struct Speculation<S, C, U, X> {
    log: Log,
    from: Position,
    options: SubscribeOptions,
    state: S,
    compute: C,
    undo: U,
    externalize: X,
}

/// Placeholder for a function that is not set yet.
#[derive(Clone, Copy, Debug)]
pub struct Missing;

impl Log {
    /// Computes on the records from `from` on, before they are final. See [`Speculation`].
    #[must_use]
    pub fn speculate<S>(&self, from: Position, state: S) -> Speculation<S, Missing, Missing, Missing> {
        let (log, options) = (self.clone(), SubscribeOptions::default());
        let (compute, undo, externalize) = (Missing, Missing, Missing);
        Speculation { log, from, options, state, compute, undo, externalize }
    }
}

impl<S, C, U, X> Speculation<S, C, U, X> {
    /// Sets the function that changes the state by a record and returns the effect.
    #[must_use]
    pub fn compute<F, E>(self, compute: F) -> Speculation<S, F, U, X>
    where
        F: FnMut(&mut S, Position, &Record) -> E,
    {
        let Self { log, from, options, state, undo, externalize, .. } = self;
        Speculation { log, from, options, state, compute, undo, externalize }
    }

    /// Sets the function that removes an effect from the state.
    #[must_use]
    pub fn undo<F, E>(self, undo: F) -> Speculation<S, C, F, X>
    where
        F: FnMut(&mut S, E),
    {
        let Self { log, from, options, state, compute, externalize, .. } = self;
        Speculation { log, from, options, state, compute, undo, externalize }
    }

    /// Sets the function that publishes an effect, called when its record is final. The state
    /// passed to it may already include effects of later records.
    #[must_use]
    pub fn externalize<F, E>(self, externalize: F) -> Speculation<S, C, U, F>
    where
        F: FnMut(&S, Position, E),
    {
        let Self { log, from, options, state, compute, undo, .. } = self;
        Speculation { log, from, options, state, compute, undo, externalize }
    }

    /// Stops after all effects below `end` are externalized.
    #[must_use]
    pub fn until(self, end: Position) -> Self {
        Self { options: self.options.until(end), ..self }
    }

    /// Replaces the options, an earlier [`until`](Self::until) included. `speculative` has no
    /// effect: a computation always receives records before they are final.
    #[must_use]
    pub fn with(self, options: SubscribeOptions) -> Self {
        Self { options, ..self }
    }
}

impl<S, C, U, X> Speculation<S, C, U, X> {
    /// Runs to the requested end and returns the state.
    ///
    /// # Errors
    /// Those of a subscription. Unconfirmed effects are not undone, because the state is dropped.
    pub async fn run<E>(self) -> Result<S, ReadError>
    where
        C: FnMut(&mut S, Position, &Record) -> E,
        U: FnMut(&mut S, E),
        X: FnMut(&S, Position, E),
    {
        let Self { log, from, options, state, compute, undo, externalize } = self;
        let mut events = log.subscribe(from, options.speculative()).await?;
        let mut ahead = Ahead { state, effects: VecDeque::new(), compute, undo, externalize };
        while let Some(event) = next(&mut events).await? {
            ahead.take(event);
        }
        Ok(ahead.state)
    }
}

async fn next(events: &mut Subscription) -> Result<Option<Event>, ReadError> {
    events.next().await.transpose()
}

/// The computation, driven by the events of a subscription.
struct Ahead<S, E, C, U, X> {
    state: S,
    /// Effects of unconfirmed records, in the order of positions.
    effects: VecDeque<(Position, E)>,
    compute: C,
    undo: U,
    externalize: X,
}

impl<S, E, C, U, X> Ahead<S, E, C, U, X>
where
    C: FnMut(&mut S, Position, &Record) -> E,
    U: FnMut(&mut S, E),
    X: FnMut(&S, Position, E),
{
    fn take(&mut self, event: Event) {
        match event {
            Event::Deliver { position, record, .. } => {
                let effect = (self.compute)(&mut self.state, position, &record);
                self.effects.push_back((position, effect));
            }
            Event::Confirm { upto } => {
                let below = self.effects.partition_point(|(position, _)| *position < upto);
                for (position, effect) in self.effects.drain(..below) {
                    (self.externalize)(&self.state, position, effect);
                }
            }
            Event::Fail { after } => {
                let standing = self.effects.partition_point(|(position, _)| *position < after);
                for (_, effect) in self.effects.drain(standing..).rev() {
                    (self.undo)(&mut self.state, effect);
                }
            }
            // Trimmed and lost records have no effect.
            Event::Trimmed { .. } | Event::Lost { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use seriatim_model::{RecordId, SessionId};

    use super::*;

    fn deliver(position: u64, text: &str) -> Event {
        let id = RecordId { session: SessionId(1), number: position };
        let record = Record::new(text.as_bytes(), 0);
        Event::Deliver { position: Position(position), id, record, speculative: true }
    }

    fn after(events: impl IntoIterator<Item = Event>) -> (String, Vec<(u64, String)>) {
        let out = RefCell::new(vec![]);
        let mut ahead = Ahead {
            state: String::new(),
            effects: VecDeque::new(),
            compute: |state: &mut String, _: Position, record: &Record| {
                let text = String::from_utf8(record.payload().to_vec()).unwrap();
                state.push_str(&text);
                text
            },
            undo: |state: &mut String, text: String| {
                assert!(state.ends_with(&text), "{text} is undone of {state}");
                state.truncate(state.len() - text.len());
            },
            externalize: |_: &String, position: Position, text| out.borrow_mut().push((position.0, text)),
        };
        events.into_iter().for_each(|event| ahead.take(event));
        let state = ahead.state;
        (state, out.into_inner())
    }

    #[test]
    fn nothing_gets_out_before_it_is_confirmed_and_each_effect_once_in_order() {
        let known = [deliver(0, "a"), deliver(2, "b"), deliver(3, "c")];
        assert_eq!(after(known.clone()), ("abc".into(), vec![]));
        let confirms = [Event::Confirm { upto: Position(3) }, Event::Confirm { upto: Position(4) }];
        let out = vec![(0, "a".into()), (2, "b".into()), (3, "c".into())];
        assert_eq!(after(known.into_iter().chain(confirms)), ("abc".into(), out));
    }

    #[test]
    fn what_fails_is_undone_from_the_last_to_the_first_and_never_gets_out() {
        let events = [
            deliver(0, "a"),
            deliver(1, "bb"),
            deliver(2, "c"),
            Event::Confirm { upto: Position(1) },
            Event::Fail { after: Position(1) },
            deliver(1, "d"),
            Event::Confirm { upto: Position(2) },
        ];
        assert_eq!(after(events), ("ad".into(), vec![(0, "a".into()), (1, "d".into())]));
    }

    #[test]
    fn a_trim_changes_nothing_that_was_computed() {
        let events =
            [deliver(0, "a"), Event::Confirm { upto: Position(1) }, Event::Trimmed { first: Position(9) }];
        assert_eq!(after(events), ("a".into(), vec![(0, "a".into())]));
    }

    #[test]
    #[should_panic(expected = "it cannot be undone")]
    fn an_undo_that_panics_is_the_programs_own() {
        let mut ahead = Ahead {
            state: (),
            effects: VecDeque::new(),
            compute: |(): &mut (), _: Position, _: &Record| (),
            undo: |(): &mut (), ()| panic!("it cannot be undone"),
            externalize: |(): &(), _: Position, ()| (),
        };
        ahead.take(deliver(0, "a"));
        ahead.take(Event::Fail { after: Position(0) });
    }
}
