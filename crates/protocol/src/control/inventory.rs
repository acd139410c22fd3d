//! The logs and nodes that a cluster's nodes know, for a client whose register does not answer.

use std::collections::BTreeMap;
use std::convert::Infallible;

use seriatim_model::{Address, Effect, Endpoint, Input, LogEntry, LogId, Machine, NodeId, Time};

use super::message::{Message, NodeAddress};
use super::poll::{Answers, Poll};
use crate::mutation::{Mutation, Options};
use crate::roles;

/// The logs and nodes that nodes know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The newest entry of each log, in the order of names.
    pub entries: Vec<LogEntry>,
    /// The nodes that the first asked node knows, itself included.
    pub nodes: Vec<NodeAddress>,
}

/// Asks one node for its logs and nodes, and then all nodes that it named; each round is a
/// [`Poll`]. Ends with the merged answers, or with `None` if the first node is silent: no other
/// node is known then.
#[derive(Debug)]
pub struct Inventory {
    first: NodeId,
    options: Options,
    poll: Poll,
    /// The first node's answer.
    known: Option<Known>,
    is_over: bool,
}

type Out = Vec<Effect<roles::Message, Option<Known>>>;

impl Machine for Inventory {
    type Message = roles::Message;
    type Request = Infallible;
    type Reply = Option<Known>;

    fn step(&mut self, now: Time, input: Input<roles::Message, Infallible>, out: &mut Out) {
        if self.is_over {
            return;
        }
        if let Some(answers) = self.step_poll(now, input, out) {
            self.polled(now, &answers, out);
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.poll.deadline().filter(|_| !self.is_over)
    }
}

impl Inventory {
    /// Asks `first` first.
    #[must_use]
    pub fn new(now: Time, first: NodeId, options: Options) -> Self {
        Self { first, options, poll: poll(now, [first]), known: None, is_over: false }
    }

    fn step_poll(
        &mut self,
        now: Time,
        input: Input<roles::Message, Infallible>,
        out: &mut Out,
    ) -> Option<Answers> {
        let (mut effects, mut answers) = (vec![], None);
        self.poll.step(now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Send { to, message } => out.push(Effect::Send { to, message }),
                Effect::Reply { reply, .. } => answers = Some(reply),
                // A poll uses no disk.
                _ => {}
            }
        }
        answers
    }

    /// Ends the first or the second round.
    fn polled(&mut self, now: Time, answers: &Answers, out: &mut Out) {
        let accounts = answers.values().flatten().filter_map(account);
        if let Some(Known { entries, nodes }) = self.known.take() {
            let told = accounts.flat_map(|(entries, _)| entries);
            let entries = self.newest(entries.iter().chain(told));
            return self.end(Some(Known { entries, nodes }), out);
        }
        let Some((entries, nodes)) = accounts.into_iter().next() else { return self.end(None, out) };
        let others = nodes.iter().map(|known| known.node).filter(|node| *node != self.first);
        self.poll = poll(now, others);
        self.known = Some(Known { entries: entries.to_vec(), nodes: nodes.to_vec() });
        // Ends at once if there are no other nodes.
        self.step(now, Input::Wake, out);
    }

    fn newest<'a>(&self, told: impl Iterator<Item = &'a LogEntry>) -> Vec<LogEntry> {
        let is_oldest_kept = self.options.mutates(Mutation::OldestKnown);
        let mut newest: BTreeMap<LogId, &LogEntry> = BTreeMap::new();
        for entry in told {
            let known = newest.entry(entry.id).or_insert(entry);
            if (known.version < entry.version) != is_oldest_kept {
                *known = entry;
            }
        }
        let mut entries: Vec<LogEntry> = newest.into_values().cloned().collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    fn end(&mut self, outcome: Option<Known>, out: &mut Out) {
        self.is_over = true;
        out.push(Effect::Reply { token: 0, reply: outcome });
    }
}

fn poll(now: Time, nodes: impl IntoIterator<Item = NodeId>) -> Poll {
    let question = |node| (Address::Node(node, Endpoint::Node), Message::AskKnown { request: 1 }.into());
    Poll::new(now, nodes.into_iter().map(question))
}

fn account(answer: &roles::Message) -> Option<(&[LogEntry], &[NodeAddress])> {
    match answer {
        roles::Message::Control(Message::KnownIs { entries, nodes, .. }) => Some((entries, nodes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::poll::ANSWER_WITHIN;
    use super::super::testing;
    use super::*;

    const FIRST: NodeId = NodeId(1);

    fn entry(id: u64, name: &str, version: u64) -> LogEntry {
        LogEntry { id: LogId(id), name: name.into(), version, ..testing::entry(None) }
    }

    /// The answer of `node`. It also names the nodes 1, 2 and 3.
    fn tells(node: u32, entries: &[LogEntry]) -> Input<roles::Message, Infallible> {
        let address = |node| NodeAddress { node: NodeId(node), address: format!("node{node}:7700") };
        let nodes = [1, 2, 3].map(address).to_vec();
        let message = Message::KnownIs { request: 1, entries: entries.to_vec(), nodes }.into();
        Input::Message { from: Address::Node(NodeId(node), Endpoint::Node), message }
    }

    /// Returns the asked nodes and the outcome.
    fn step(
        inventory: &mut Inventory,
        ms: u64,
        input: Input<roles::Message, Infallible>,
    ) -> (Vec<u32>, Option<Option<Known>>) {
        let (mut out, mut asked, mut outcome) = (vec![], vec![], None);
        inventory.step(Time::ZERO + Duration::from_millis(ms), input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to: Address::Node(node, Endpoint::Node), .. } => asked.push(node.0),
                Effect::Reply { reply, .. } => outcome = Some(reply),
                other => panic!("{other:?}"),
            }
        }
        (asked, outcome)
    }

    fn begin() -> Inventory {
        let mut inventory = Inventory::new(Time::ZERO, FIRST, Options::default());
        assert_eq!(step(&mut inventory, 0, Input::Wake), (vec![1], None));
        inventory
    }

    fn versions(outcome: Option<Option<Known>>) -> Vec<(String, u64)> {
        let known = outcome.flatten().expect("the first node answered");
        assert_eq!(known.nodes.len(), 3);
        known.entries.into_iter().map(|entry| (entry.name, entry.version)).collect()
    }

    #[test]
    fn of_each_log_the_newest_entry_is_told_whoever_has_it() {
        let mut inventory = begin();
        let first = [entry(7, "orders", 4), entry(8, "audit", 2)];
        assert_eq!(step(&mut inventory, 1, tells(1, &first)), (vec![2, 3], None));
        let second = [entry(7, "orders", 3), entry(8, "audit", 5)];
        assert_eq!(step(&mut inventory, 2, tells(2, &second)), (vec![], None));
        let (_, outcome) = step(&mut inventory, 3, tells(3, &[entry(9, "returns", 1)]));
        let expected = [("audit", 5), ("orders", 4), ("returns", 1)].map(|(name, at)| (name.to_owned(), at));
        assert_eq!(versions(outcome), expected);
        assert_eq!(inventory.deadline(), None);
        assert_eq!(step(&mut inventory, 4, tells(3, &[])), (vec![], None), "it is over");
    }

    #[test]
    fn a_node_that_does_not_answer_is_left_out() {
        let mut inventory = begin();
        step(&mut inventory, 1, tells(1, &[entry(7, "orders", 4)]));
        step(&mut inventory, 2, tells(2, &[entry(7, "orders", 6)]));
        assert_eq!(step(&mut inventory, 301, Input::Wake), (vec![3], None));
        let late = 1 + ANSWER_WITHIN.as_millis() as u64;
        let (_, outcome) = step(&mut inventory, late, Input::Wake);
        assert_eq!(versions(outcome), [("orders".to_owned(), 6)]);
    }

    #[test]
    fn without_the_first_node_nothing_is_known() {
        let mut inventory = begin();
        assert_eq!(step(&mut inventory, 1, tells(2, &[])), (vec![], None), "it was not asked");
        let late = ANSWER_WITHIN.as_millis() as u64;
        assert_eq!(step(&mut inventory, late, Input::Wake), (vec![], Some(None)));
    }

    #[test]
    fn a_node_that_knows_no_other_is_all_there_is() {
        let mut inventory = begin();
        let nodes = vec![NodeAddress { node: FIRST, address: "node1:7700".into() }];
        let message = Message::KnownIs { request: 1, entries: vec![entry(7, "orders", 4)], nodes }.into();
        let from = Address::Node(FIRST, Endpoint::Node);
        let (asked, outcome) = step(&mut inventory, 1, Input::Message { from, message });
        let known = outcome.flatten().expect("it answered");
        assert_eq!((asked, known.entries.len(), known.nodes.len()), (vec![], 1, 1));
    }
}
