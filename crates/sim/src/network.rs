//! The network: ordered connections, with delays, losses and duplicates by seed and faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seriatim_model::{NodeId, Time};

use crate::plan::NetworkPlan;
use crate::random::Random;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// A node.
    Node(NodeId),
    /// A client process.
    Client(u32),
}

/// A connection. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection(pub u64);

/// Kind of a connection between two parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// All messages but heartbeats; all messages in a cluster without a capacity.
    Bulk,
    /// Heartbeats.
    Urgent,
}

/// State of all links.
#[derive(Debug)]
pub struct Network {
    plan: NetworkPlan,
    random: Random,
    next: u64,
    by_pair: BTreeMap<(Party, Party, Lane), Connection>,
    /// Heartbeat connections, including closed ones.
    urgent: BTreeSet<Connection>,
    pairs: BTreeMap<Connection, (Party, Party)>,
    /// Latest arrival for each direction of a connection.
    busy_until: BTreeMap<(Connection, Party), Time>,
    /// Ends of broken connections that have not noticed the close.
    unnoticed: BTreeSet<(Connection, Party)>,
    /// Directed links that lose everything.
    cut: BTreeSet<(Party, Party)>,
    /// Directed links that pass only heartbeats.
    mute: BTreeSet<(Party, Party)>,
    /// Delay factors of directed links.
    slow: BTreeMap<(Party, Party), u32>,
    /// Messages per thousand that are lost, duplicated, or overtake others.
    loss: u64,
    duplication: u64,
    reordering: u64,
}

impl Network {
    /// A network without faults. [`Network::disturb`] starts the plan's noise.
    #[must_use]
    pub fn new(plan: NetworkPlan, random: Random) -> Self {
        Self {
            plan,
            random,
            next: 0,
            by_pair: BTreeMap::new(),
            urgent: BTreeSet::new(),
            pairs: BTreeMap::new(),
            busy_until: BTreeMap::new(),
            unnoticed: BTreeSet::new(),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            slow: BTreeMap::new(),
            loss: 0,
            duplication: 0,
            reordering: 0,
        }
    }

    /// The connection between two parties, created if missing.
    pub fn connect(&mut self, a: Party, b: Party, lane: Lane) -> Connection {
        let (a, b) = ordered(a, b);
        if let Some(connection) = self.by_pair.get(&(a, b, lane)) {
            return *connection;
        }
        self.next += 1;
        let connection = Connection(self.next);
        self.by_pair.insert((a, b, lane), connection);
        self.pairs.insert(connection, (a, b));
        if lane == Lane::Urgent {
            self.urgent.insert(connection);
        }
        connection
    }

    /// The connection's kind.
    #[must_use]
    pub fn lane(&self, connection: Connection) -> Lane {
        if self.urgent.contains(&connection) { Lane::Urgent } else { Lane::Bulk }
    }

    /// Whether the connection is open.
    #[must_use]
    pub fn stands(&self, connection: Connection) -> bool {
        self.pairs.contains_key(&connection)
    }

    /// The other end of an open connection.
    #[must_use]
    pub fn other_end(&self, connection: Connection, of: Party) -> Option<Party> {
        let (a, b) = *self.pairs.get(&connection)?;
        Some(if a == of { b } else { a })
    }

    /// Both ends of an open connection.
    #[must_use]
    pub fn ends(&self, connection: Connection) -> Option<(Party, Party)> {
        self.pairs.get(&connection).copied()
    }

    /// Breaks the connection. Returns whether it was open.
    pub fn reset(&mut self, connection: Connection) -> bool {
        let Some((a, b)) = self.pairs.remove(&connection) else { return false };
        self.by_pair.remove(&(a, b, self.lane(connection)));
        self.unnoticed.extend([(connection, a), (connection, b)]);
        self.busy_until.remove(&(connection, a));
        self.busy_until.remove(&(connection, b));
        true
    }

    /// One end notices the close.
    pub fn noticed(&mut self, connection: Connection, at: Party) {
        self.unnoticed.remove(&(connection, at));
    }

    /// Forgets the unnoticed closes of a dead process.
    pub fn died(&mut self, party: Party) {
        self.unnoticed.retain(|(_, at)| *at != party);
    }

    /// Extra delay of a message whose connection broke, or `None` if it is lost. Between nodes it
    /// may reach another incarnation. From or to a client it arrives before the close is noticed,
    /// or never.
    pub fn straggles(&mut self, connection: Connection, from: Party, to: Party) -> Option<Duration> {
        if !self.random.percent(self.plan.straggle_percent) {
            return None;
        }
        let (_, most) = self.plan.delay_us;
        match (from, to) {
            (Party::Node(_), Party::Node(_)) => Some(match self.random.below(4) {
                0 => self.random.millis(0, 600),
                1 => self.random.micros(0, most * 4),
                _ => Duration::ZERO,
            }),
            _ => self.unnoticed.contains(&(connection, to)).then_some(Duration::ZERO),
        }
    }

    /// Delay of a message's second copy between nodes, if any.
    pub fn echo(&mut self, from: Party, to: Party) -> Option<Duration> {
        let is_between_nodes = matches!((from, to), (Party::Node(_), Party::Node(_)));
        let echoes = is_between_nodes && self.random.permille(self.plan.echo_permille);
        echoes.then(|| self.random.millis(0, 600))
    }

    /// Connections of a party with their other ends.
    #[must_use]
    pub fn connections_of(&self, party: Party) -> Vec<(Connection, Party)> {
        let others = self.pairs.iter().filter_map(|(connection, (a, b))| match party {
            _ if *a == party => Some((*connection, *b)),
            _ if *b == party => Some((*connection, *a)),
            _ => None,
        });
        others.collect()
    }

    /// All connections.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.pairs.keys().copied().collect()
    }

    /// Arrival times of a message sent now: none, one or two.
    pub fn arrivals(&mut self, now: Time, connection: Connection, from: Party, to: Party) -> Vec<Time> {
        if self.cut.contains(&(from, to)) || self.random.permille(self.loss) {
            return vec![];
        }
        let copies = if self.random.permille(self.duplication) { 2 } else { 1 };
        let mut times = vec![];
        for _ in 0..copies {
            let (least, most) = self.plan.delay_us;
            let slow = self.slow.get(&(from, to)).copied().unwrap_or(1);
            let mut at = now + self.random.micros(least, most) * slow;
            if self.random.permille(self.reordering) {
                at = at + self.random.micros(0, most * 4);
            } else {
                let busy = self.busy_until.entry((connection, to)).or_default();
                at = at.max(*busy);
                *busy = at;
            }
            times.push(at);
        }
        times
    }

    /// Time until an end notices a closed connection.
    pub fn notice(&mut self) -> Duration {
        let (least, most) = self.plan.delay_us;
        self.random.micros(least, most * 2)
    }

    /// Whether messages of one party do not reach the other.
    #[must_use]
    pub fn is_cut(&self, from: Party, to: Party) -> bool {
        self.cut.contains(&(from, to))
    }

    /// Blocks everything from one party to the other.
    pub fn cut(&mut self, from: Party, to: Party) {
        self.cut.insert((from, to));
    }

    /// Undoes [`Network::cut`].
    pub fn mend(&mut self, from: Party, to: Party) {
        self.cut.remove(&(from, to));
    }

    /// Whether only heartbeats pass from one party to the other.
    #[must_use]
    pub fn is_mute(&self, from: Party, to: Party) -> bool {
        self.mute.contains(&(from, to))
    }

    /// Blocks everything but heartbeats from one party to the other.
    pub fn silence(&mut self, from: Party, to: Party) {
        self.mute.insert((from, to));
    }

    /// Undoes [`Network::silence`].
    pub fn give_voice(&mut self, from: Party, to: Party) {
        self.mute.remove(&(from, to));
    }

    /// Multiplies delays from one party to the other.
    pub fn slow_down(&mut self, from: Party, to: Party, times: u32) {
        self.slow.insert((from, to), times);
    }

    /// Undoes [`Network::slow_down`].
    pub fn speed_up(&mut self, from: Party, to: Party) {
        self.slow.remove(&(from, to));
    }

    /// Sets messages per thousand to lose, duplicate and reorder, at least the plan's.
    pub fn disturb(&mut self, loss: u64, duplication: u64, reordering: u64) {
        let (usual_loss, usual_duplication, usual_reordering) = self.plan.noise_permille;
        self.loss = usual_loss.max(loss);
        self.duplication = usual_duplication.max(duplication);
        self.reordering = usual_reordering.max(reordering);
    }

    /// Ends all faults and the plan's noise.
    pub fn heal(&mut self) {
        (self.loss, self.duplication, self.reordering) = (0, 0, 0);
        (self.plan.noise_permille, self.plan.echo_permille) = ((0, 0, 0), 0);
        self.cut.clear();
        self.mute.clear();
        self.slow.clear();
    }
}

fn ordered(a: Party, b: Party) -> (Party, Party) {
    if a <= b { (a, b) } else { (b, a) }
}
