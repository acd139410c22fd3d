//! Commands of an operator.

use seriatim_model::{Position, Time};

use super::machine::{Effect, Out, Player, TargetIndex};
use super::target::{State, Term, Why};

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
    /// Replaces the target's bound, which belongs to another log or is above the tail.
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

impl Player {
    /// A command to all targets: an unreadable entry belongs to none of them.
    pub(super) fn commanded_to_all(&mut self, number: u64, command: &Command, out: &mut Out) {
        let outcome = match command {
            Command::Skip { position } => {
                self.config.skipped.insert(*position);
                Ok(())
            }
            _ => Err("only 'skip' applies to all targets".into()),
        };
        out.push(Effect::Done { number, outcome });
    }

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
        let target = &mut self.targets[index];
        let term = target.term;
        if !target.has_session() {
            target.state = State::Paused;
            return out.push(Effect::Done { number, outcome: Ok(()) });
        }
        target.commands.push(Waiting::Detach { number, term });
        self.end(now, index, State::Paused, out);
    }

    pub(super) fn detached(&mut self, index: usize, term: Term, out: &mut Out) {
        let Some(target) = self.targets.get_mut(index) else { return };
        target.commands.retain(|waiting| match waiting {
            Waiting::Detach { number, term: ended } if *ended <= term => {
                out.push(Effect::Done { number: *number, outcome: Ok(()) });
                false
            }
            _ => true,
        });
    }

    fn adopt(&mut self, now: Time, index: usize, number: u64, position: Position, out: &mut Out) {
        let target = &mut self.targets[index];
        let refused = match &target.state {
            State::Stopped(Why::OtherStream { .. } | Why::AboveTail { .. }) if position > self.tail => {
                Some(format!("position {position} is above the log's tail {}", self.tail))
            }
            State::Stopped(Why::OtherStream { .. } | Why::AboveTail { .. }) => None,
            _ => Some("the target has a bound of this log; 'adopt' replaces only a foreign one".into()),
        };
        if let Some(reason) = refused {
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
        let is_attaching =
            matches!(self.targets[index].state, State::Attaching { .. } | State::Doubted { .. });
        if !is_attaching {
            return;
        }
        self.targets[index].commands.retain(|waiting| match waiting {
            Waiting::Attach { number } => {
                out.push(Effect::Done { number: *number, outcome: outcome.clone() });
                false
            }
            _ => true,
        });
    }

    /// Applies or refuses the commands that wait for the target to stop at a position.
    pub(super) fn reconsider(&mut self, now: Time, index: usize, out: &mut Out) {
        if self.targets[index].commands.is_empty() {
            return;
        }
        for waiting in std::mem::take(&mut self.targets[index].commands) {
            match waiting {
                Waiting::Stop { number, command } => self.judge(now, index, number, command, out),
                other => self.targets[index].commands.push(other),
            }
        }
    }

    fn judge(&mut self, now: Time, index: usize, number: u64, command: Command, out: &mut Out) {
        let target = &mut self.targets[index];
        let (Command::Skip { position } | Command::DeadLetter { position }) = command else {
            unreachable!("only commands with a position wait for a stop")
        };
        let bound = target.applied;
        let refuse = |reason: String, out: &mut Out| out.push(Effect::Done { number, outcome: Err(reason) });
        match target.state.clone() {
            State::Stopped(Why::Rejected { .. } | Why::Gap { .. }) if bound != position => {
                refuse(format!("the target's bound is {bound}, not {position}"), out);
            }
            State::Stopped(Why::Rejected { message, reason }) => match command {
                Command::DeadLetter { .. } => {
                    target.commands.push(Waiting::DeadLetter { number, position });
                    out.push(Effect::DeadLetter { target: TargetIndex(index), message, reason });
                }
                _ => self.skip(now, index, (position, position.next()), Some(number)),
            },
            State::Stopped(Why::Gap { end, .. }) => match command {
                Command::Skip { .. } => self.skip(now, index, (position, end), Some(number)),
                _ => refuse("the target is stopped at a gap; use 'skip'".into(), out),
            },
            State::Stopped(why) => refuse(format!("the target is stopped for another reason: {why}"), out),
            State::Paused => refuse("the target is paused; use 'resume' first".into(), out),
            State::Normal | State::Recovering(_) | State::Full { .. } if bound > position => {
                refuse(format!("the target has passed the position; its bound is {bound}"), out);
            }
            _ => target.commands.push(Waiting::Stop { number, command }),
        }
    }

    /// Attaches again, and moves the bound from `at` to `upto`.
    fn skip(&mut self, now: Time, index: usize, (at, upto): (Position, Position), command: Option<u64>) {
        self.targets[index].skip = Some((at, upto, command));
        self.attach_now(now, index);
    }

    pub(super) fn dead_lettered(&mut self, now: Time, index: usize, position: Position, out: &mut Out) {
        let Some(target) = self.targets.get_mut(index) else { return };
        let mut command = None;
        target.commands.retain(|waiting| match waiting {
            Waiting::DeadLetter { number, position: at } if *at == position => {
                command = Some(*number);
                false
            }
            _ => true,
        });
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
