//! The self-reported progress of a log's replicas.

use seriatim_model::{Address, Endpoint, Position, View};

use super::poll::Answers;
use crate::mutation::{Mutation, Options};
use crate::parts::sequencing::WindowStatus;
use crate::roles::Message;
use crate::shard;

/// Progress of the replicas that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The largest tail of the sequencing replicas; `None` if none answered.
    pub tail: Option<Position>,
    /// The smallest stable bound of the shards' primaries: everything below can be read. `None`
    /// unless all answered.
    pub stable: Option<Position>,
    /// The largest trim point; `None` if no shard answered.
    pub trim: Option<Position>,
    /// Number of sequencing replicas in a view.
    pub open: usize,
    /// Number of sessions that the log remembers.
    pub sessions: u64,
    /// State of the quotas; `None` without quotas or the leader's answer.
    pub windows: Option<WindowStatus>,
}

impl Status {
    /// Asks all sequencing replicas and primaries, in a [`Poll`](super::Poll).
    pub fn questions(view: &View, request: u64) -> impl Iterator<Item = (Address, Message)> {
        let sequencers = view.sequencers.iter().map(move |member| {
            (Address::Node(member.node, Endpoint::Sequencer), Message::ask_status(request))
        });
        sequencers.chain(primaries(view).map(move |to| (to, shard::Message::Status { request }.into())))
    }

    /// Combines the answers. A silent primary may know a lower stable bound.
    #[must_use]
    pub fn told_by(answers: &Answers, view: &View, options: Options) -> Self {
        let mut status = Self::default();
        let leader = Address::Node(view.leader, Endpoint::Sequencer);
        for (from, answer) in answers {
            let Some(answer) = answer else { continue };
            match answer {
                Message::Shard(shard::Message::StatusIs { trim, .. }) => {
                    status.trim = status.trim.max(Some(*trim));
                }
                answer => {
                    let Some(told) = answer.status() else { continue };
                    status.open += usize::from(told.open);
                    status.tail = status.tail.max(Some(told.tail));
                    status.sessions = status.sessions.max(told.sessions);
                    // A former leader may not know that its view is over.
                    status.windows = told.windows.filter(|_| *from == leader).or(status.windows);
                }
            }
        }
        assert!(status.open <= view.sequencers.len(), "each replica is counted once");
        let bounds: Vec<Option<Position>> =
            primaries(view).map(|to| stable(answers.get(&to)?.as_ref()?)).collect();
        let is_known = bounds.iter().all(Option::is_some) || options.mutates(Mutation::StatusOfThoseHeard);
        status.stable = bounds.into_iter().flatten().min().filter(|_| is_known);
        status
    }
}

fn primaries(view: &View) -> impl Iterator<Item = Address> {
    view.shards.iter().map(|members| Address::Node(members.primary().node, Endpoint::Shard(members.shard)))
}

fn stable(answer: &Message) -> Option<Position> {
    match answer {
        Message::Shard(shard::Message::StatusIs { stable, .. }) => Some(*stable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use seriatim_model::ViewNumber;

    use super::super::testing::view;
    use super::*;
    use crate::parts::sequencing;

    fn sequencer(open: bool, tail: u64) -> Option<Message> {
        let (view, tail) = (ViewNumber(3), Position(tail));
        Some(sequencing::Message::StatusIs { request: 1, view, open, tail, held: 0, sessions: tail.0 }.into())
    }

    fn shard(stable: u64, trim: u64) -> Option<Message> {
        let (view, stable, trim) = (ViewNumber(3), Position(stable), Position(trim));
        Some(shard::Message::StatusIs { request: 1, view, stable, trim }.into())
    }

    /// The status by these answers, in the order of the questions.
    fn told(answers: [Option<Message>; 4]) -> Status {
        let view = view();
        let asked: Vec<Address> = Status::questions(&view, 1).map(|(to, _)| to).collect();
        assert_eq!(asked.len(), answers.len());
        Status::told_by(&asked.into_iter().zip(answers).collect(), &view, Options::default())
    }

    #[test]
    fn the_log_is_as_far_as_the_shard_that_is_behind() {
        let status = told([sequencer(true, 9), sequencer(true, 8), shard(7, 2), shard(5, 3)]);
        let (tail, stable, trim) = (Some(Position(9)), Some(Position(5)), Some(Position(3)));
        assert_eq!(status, Status { tail, stable, trim, open: 2, sessions: 9, windows: None });
    }

    #[test]
    fn a_shard_that_is_silent_may_be_behind() {
        let status = told([sequencer(true, 9), None, shard(7, 2), None]);
        let (tail, trim) = (Some(Position(9)), Some(Position(2)));
        assert_eq!(status, Status { tail, stable: None, trim, open: 1, sessions: 9, windows: None });
    }

    #[test]
    fn only_the_leader_says_how_quotas_are() {
        let of = |number| {
            let (view, tail, windows) =
                (ViewNumber(3), Position(9), WindowStatus { number, ..Default::default() });
            let (request, open, held, sessions) = (1, true, 0, 0);
            Some(
                sequencing::Message::StatusWith { request, view, open, tail, held, sessions, windows }.into(),
            )
        };
        assert_eq!(view().leader, view().sequencers[0].node);
        let status = told([of(7), of(8), None, None]);
        assert_eq!((status.open, status.windows.map(|windows| windows.number)), (2, Some(7)));
        assert_eq!(told([None, of(8), None, None]).windows, None);
    }

    #[test]
    fn a_node_that_hosts_no_such_role_says_nothing_of_the_shard() {
        let elsewhere = sequencer(false, 0);
        let status = told([elsewhere.clone(), None, shard(7, 2), elsewhere]);
        assert_eq!((status.open, status.stable), (0, None));
    }
}
