//! Commands of an operator.

use std::collections::BTreeSet;

use seriatim_model::{Position, Time};

use super::machine::{Effect, Out, Player, TargetIndex};
use super::message::Message;
use super::target::{State, Target, Term, Why};

/// A command of an operator for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends the session until `Resume`, for maintenance of the target.
    Pause,
    /// Attaches again after `Pause`.
    Resume,
    /// Attaches again now, and tries a rejected message again.
    Retry,
    /// Passes over the entry, or the gap, at this position.
    Skip {
        /// The target's bound.
        position: Position,
    },
    /// Appends the rejected message at this position to the dead-letter log, and passes over it.
    DeadLetter {
        /// The target's bound.
        position: Position,
    },
    /// Replaces the target's bound, which is lost or belongs to another log.
    Adopt {
        /// The new bound.
        position: Position,
    },
}

/// A command that waits.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    /// Until the target answers the attach.
    Attach { number: u64 },
    /// Until the session has ended.
    Detach { number: u64, term: Term },
    /// Until the message is in the dead-letter log.
    DeadLetter { number: u64, position: Position },
    /// Until the target stops at the position, or passes it.
    Stop { number: u64, command: Command },
}

/// The effect of a command that names a position.
enum Verdict {
    /// The target has not stopped yet.
    Waits,
    /// The reason.
    Refused(String),
    /// The bound moves to this position.
    Skips(Position),
    /// The message goes to the dead-letter log first.
    DeadLetters { message: Message, reason: String },
}

impl Target {
    /// Removes the waiting commands that `choose` accepts, and returns its values.
    fn take<R>(&mut self, choose: impl Fn(&Waiting) -> Option<R>) -> Vec<R> {
        let mut taken = vec![];
        self.commands.retain(|waiting| {
            let chosen = choose(waiting);
            let stays = chosen.is_none();
            taken.extend(chosen);
            stays
        });
        taken
    }

    /// Notes that a session has ended at the target. Returns the commands that waited for that.
    fn ended(&mut self, term: Term) -> Vec<u64> {
        self.detaching = self.detaching.filter(|last| *last > term);
        self.take(|waiting| match waiting {
            Waiting::Detach { number, term: ended } if *ended <= term => Some(*number),
            _ => None,
        })
    }

    fn verdict(&self, command: &Command) -> Verdict {
        let (Command::Skip { position } | Command::DeadLetter { position }) = *command else {
            unreachable!("only commands with a position wait for a stop")
        };
        let bound = self.applied;
        let skips = matches!(command, Command::Skip { .. });
        match &self.state {
            State::Stopped(Why::Rejected { .. } | Why::Gap { .. }) if bound != position => {
                Verdict::Refused(format!("the target's bound is {bound}, not {position}"))
            }
            State::Stopped(Why::Rejected { message, reason }) => match skips {
                true => Verdict::Skips(position.next()),
                false => Verdict::DeadLetters { message: message.clone(), reason: reason.clone() },
            },
            State::Stopped(Why::Gap { end, .. }) if skips => Verdict::Skips(*end),
            State::Stopped(Why::Gap { .. }) => {
                Verdict::Refused("the target is stopped at a gap; use 'skip'".into())
            }
            State::Stopped(why) => {
                Verdict::Refused(format!("the target is stopped for another reason: {why}"))
            }
            State::Paused => Verdict::Refused("the target is paused; use 'resume' first".into()),
            State::Normal | State::Recovering(_) | State::Full { .. } if bound > position => {
                Verdict::Refused(format!("the target has passed the position; its bound is {bound}"))
            }
            _ => Verdict::Waits,
        }
    }
}

/// A command to all targets: an unreadable entry belongs to none of them.
pub(super) fn skip_for_all(skipped: &mut BTreeSet<Position>, command: &Command) -> Result<(), String> {
    let Command::Skip { position } = command else { return Err("only 'skip' applies to all targets".into()) };
    skipped.insert(*position);
    Ok(())
}

impl Player {
    pub(super) fn commanded(
        &mut self,
        now: Time,
        index: usize,
        number: u64,
        command: Command,
        again: bool,
        out: &mut Out,
    ) {
        let target = &mut self.targets[index];
        let state = target.state.clone();
        match command {
            Command::Pause => self.pause(now, index, number, out),
            Command::Resume if state != State::Paused => {
                let outcome = Err("the target is not paused".into());
                out.push(Effect::Done { number, outcome });
            }
            Command::Retry if !matches!(state, State::Stopped(_) | State::Down { .. }) => {
                let outcome = Err("the target is neither stopped nor down".into());
                out.push(Effect::Done { number, outcome });
            }
            Command::Resume | Command::Retry => {
                target.commands.push(Waiting::Attach { number });
                self.attach_now(now, index);
            }
            Command::Adopt { position } => self.adopt(now, index, number, position, out),
            Command::Skip { .. } | Command::DeadLetter { .. } => {
                target.commands.push(Waiting::Stop { number, command });
                let runs = matches!(state, State::Normal | State::Recovering(_) | State::Full { .. });
                if runs && !again {
                    let outcome = Err(format!("the target is not stopped; its bound is {}", target.applied));
                    target.commands.pop();
                    out.push(Effect::Done { number, outcome });
                } else {
                    self.reconsider(now, index, out);
                }
            }
        }
    }

    fn pause(&mut self, now: Time, index: usize, number: u64, out: &mut Out) {
        if self.targets[index].has_session() {
            self.end(now, index, State::Paused, out);
        }
        let target = &mut self.targets[index];
        target.state = State::Paused;
        match target.detaching {
            Some(term) => target.commands.push(Waiting::Detach { number, term }),
            None => out.push(Effect::Done { number, outcome: Ok(()) }),
        }
    }

    pub(super) fn detached(&mut self, index: usize, term: Term, out: &mut Out) {
        let Some(target) = self.targets.get_mut(index) else { return };
        for number in target.ended(term) {
            out.push(Effect::Done { number, outcome: Ok(()) });
        }
    }

    fn adopt(&mut self, now: Time, index: usize, number: u64, position: Position, out: &mut Out) {
        let target = &mut self.targets[index];
        if matches!(target.state, State::Down { .. } | State::Attaching { .. } | State::Doubted { .. }) {
            // A command for the next player waits until the target has answered the attach.
            let command = Command::Adopt { position };
            return target.commands.push(Waiting::Stop { number, command });
        }
        if let Some(reason) = target.refuses(position, self.tail) {
            return out.push(Effect::Done { number, outcome: Err(reason) });
        }
        target.adopts = Some(position);
        target.acknowledged = position;
        target.commands.push(Waiting::Attach { number });
        self.attach_now(now, index);
    }

    fn attach_now(&mut self, now: Time, index: usize) {
        self.targets[index].state = State::Down { attach_at: now };
        self.schedule(now);
    }

    /// Completes the commands that wait for an attach.
    pub(super) fn complete_attach(&mut self, index: usize, outcome: Result<(), String>, out: &mut Out) {
        let target = &mut self.targets[index];
        if !matches!(target.state, State::Attaching { .. } | State::Doubted { .. }) {
            return;
        }
        let attaching = |waiting: &Waiting| match waiting {
            Waiting::Attach { number } => Some(*number),
            _ => None,
        };
        for number in target.take(attaching) {
            out.push(Effect::Done { number, outcome: outcome.clone() });
        }
    }

    /// Applies or refuses the commands that wait for the target to stop at a position.
    pub(super) fn reconsider(&mut self, now: Time, index: usize, out: &mut Out) {
        let stopping = |waiting: &Waiting| match waiting {
            Waiting::Stop { number, command } => Some((*number, command.clone())),
            _ => None,
        };
        for (number, command) in self.targets[index].take(stopping) {
            self.judge(now, index, number, command, out);
        }
    }

    fn judge(&mut self, now: Time, index: usize, number: u64, command: Command, out: &mut Out) {
        if let Command::Adopt { position } = command {
            return self.adopt(now, index, number, position, out);
        }
        let target = &mut self.targets[index];
        match target.verdict(&command) {
            Verdict::Waits => target.commands.push(Waiting::Stop { number, command }),
            Verdict::Refused(reason) => out.push(Effect::Done { number, outcome: Err(reason) }),
            Verdict::Skips(upto) => self.skip(now, index, (self.targets[index].applied, upto), Some(number)),
            Verdict::DeadLetters { message, reason } => {
                target.commands.push(Waiting::DeadLetter { number, position: message.position });
                out.push(Effect::DeadLetter { target: TargetIndex(index), message, reason });
            }
        }
    }

    /// Attaches again, and moves the bound from `at` to `upto`.
    fn skip(&mut self, now: Time, index: usize, (at, upto): (Position, Position), command: Option<u64>) {
        self.targets[index].skip = Some((at, upto, command));
        self.attach_now(now, index);
    }

    pub(super) fn dead_lettered(&mut self, now: Time, index: usize, position: Position, out: &mut Out) {
        let Some(target) = self.targets.get_mut(index) else { return };
        let lettered = |waiting: &Waiting| match waiting {
            Waiting::DeadLetter { number, position: at } if *at == position => Some(*number),
            _ => None,
        };
        let mut numbers = target.take(lettered).into_iter();
        let command = numbers.next();
        for number in numbers {
            let outcome = Err("another command passes over this entry".into());
            out.push(Effect::Done { number, outcome });
        }
        match &target.state {
            State::Stopped(Why::Rejected { message, .. }) if message.position == position => {
                self.skip(now, index, (position, position.next()), command);
            }
            _ => {
                if let Some(number) = command {
                    let outcome = Err("the target is not stopped at this position any more".into());
                    out.push(Effect::Done { number, outcome });
                }
            }
        }
    }
}
