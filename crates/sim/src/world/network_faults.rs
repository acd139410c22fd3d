//! Network faults: affected links, and how each fault ends.

use seriatim_model::NodeId;

use super::CONTROL;
use crate::coverage::FaultKind;
use crate::network::{Connection, Network, Party};
use crate::plan::{Fault, Target};
use crate::random::Random;

/// Percentage of links that a partial partition spares.
const SPARED_PERCENT: u64 = 30;

type Link = (Party, Party);

pub(super) struct NetworkFaults<'a> {
    pub(super) network: &'a mut Network,
    pub(super) random: &'a mut Random,
    pub(super) nodes: Vec<NodeId>,
    /// Number of ordinary clients.
    pub(super) clients: u32,
}

pub(super) struct Struck {
    pub(super) mend: NetworkMend,
    /// Connections that the fault breaks.
    pub(super) broken: Vec<(Connection, Party, Party)>,
}

#[derive(Debug)]
pub(super) enum NetworkMend {
    Links(Vec<Link>),
    Speed(Vec<Link>),
    Voice(Vec<Link>),
    Noise,
}

impl NetworkMend {
    /// Ends a network fault. Once calm has returned, noise is already over.
    pub(super) fn mend(self, network: &mut Network, is_calm: bool) {
        match self {
            Self::Links(links) => links.into_iter().for_each(|(from, to)| network.mend(from, to)),
            Self::Speed(links) => links.into_iter().for_each(|(from, to)| network.speed_up(from, to)),
            Self::Voice(links) => links.into_iter().for_each(|(from, to)| network.give_voice(from, to)),
            Self::Noise if !is_calm => network.disturb(0, 0, 0),
            Self::Noise => {}
        }
    }
}

impl NetworkFaults<'_> {
    pub(super) fn strike(&mut self, fault: Fault, victims: &[NodeId]) -> Struck {
        let mut broken = vec![];
        let mend = match fault.kind {
            FaultKind::Partition | FaultKind::PartialPartition | FaultKind::ControlPartition => {
                let links = self.partition(fault, victims);
                let cut = self.cut(links);
                // Half of the partitions break connections, so that nodes notice them.
                if self.random.percent(50) {
                    broken = self.cut_connections();
                }
                cut
            }
            FaultKind::ControlOneWay => {
                let links = self.deaf_control();
                self.cut(links)
            }
            FaultKind::OneWay => {
                let pairs = victims.windows(2);
                self.cut(pairs.map(|pair| (Party::Node(pair[0]), Party::Node(pair[1]))).collect())
            }
            FaultKind::ClientPartition => {
                let links = self.clients_off();
                self.cut(links)
            }
            FaultKind::Mute => self.silence(victims[0]),
            FaultKind::SlowLinks => self.slow_links(),
            kind => self.make_noise(kind),
        };
        Struck { mend, broken }
    }

    pub(super) fn some_connections(&mut self) -> Vec<(Connection, Party, Party)> {
        let share = self.random.pick(&[20, 50, 100]);
        let mut some = vec![];
        for connection in self.network.connections() {
            let Some((a, b)) = self.network.ends(connection) else { continue };
            if self.random.percent(share) {
                some.push((connection, a, b));
            }
        }
        some
    }

    fn cut_connections(&self) -> Vec<(Connection, Party, Party)> {
        let connections = self.network.connections().into_iter();
        let with_ends = connections.filter_map(|connection| {
            let (a, b) = self.network.ends(connection)?;
            Some((connection, a, b))
        });
        with_ends.filter(|(_, a, b)| self.network.is_cut(*a, *b)).collect()
    }

    pub(super) fn cut(&mut self, links: Vec<Link>) -> NetworkMend {
        for (from, to) in &links {
            self.network.cut(*from, *to);
        }
        NetworkMend::Links(links)
    }

    /// Parties on the side of `nodes`, and on the other side. A client on neither list reaches both
    /// sides.
    fn sides(&mut self, nodes: &[NodeId], targeted: bool) -> (Vec<Party>, Vec<Party>) {
        let (mut ours, mut others) = (vec![], vec![]);
        for node in &self.nodes {
            if nodes.contains(node) { &mut ours } else { &mut others }.push(Party::Node(*node));
        }
        // A targeted node is cut off only from nodes.
        let clients = if targeted { 0 } else { self.clients };
        for client in 0..clients {
            match self.random.below(3) {
                0 => ours.push(Party::Client(client)),
                1 => others.push(Party::Client(client)),
                _ => {}
            }
        }
        (ours, others)
    }

    fn partition(&mut self, fault: Fault, nodes: &[NodeId]) -> Vec<Link> {
        let (ours, others) = self.sides(nodes, fault.target != Target::Any);
        let spared = if fault.kind == FaultKind::PartialPartition { SPARED_PERCENT } else { 0 };
        let mut links = vec![];
        for a in &ours {
            for b in &others {
                if !self.random.percent(spared) {
                    links.extend([(*a, *b), (*b, *a)]);
                }
            }
        }
        links
    }

    fn clients_off(&mut self) -> Vec<Link> {
        let mut links = vec![];
        for client in (0..self.clients).map(Party::Client) {
            for node in self.nodes.iter().map(|node| Party::Node(*node)) {
                match self.random.below(4) {
                    0 => links.push((client, node)),
                    1 => links.push((node, client)),
                    _ => {}
                }
            }
        }
        links
    }

    fn deaf_control(&mut self) -> Vec<Link> {
        let hears = self.random.percent(50);
        let others = self.nodes.iter().filter(|node| **node != CONTROL).map(|node| Party::Node(*node));
        let link = |other| {
            let control = Party::Node(CONTROL);
            if hears { (control, other) } else { (other, control) }
        };
        others.map(link).collect()
    }

    fn silence(&mut self, id: NodeId) -> NetworkMend {
        let mut others: Vec<NodeId> = self.nodes.iter().copied().filter(|other| *other != id).collect();
        if self.random.percent(50) {
            others = vec![self.random.pick(&others)];
        }
        let (hears, is_heard) = self.random.pick(&[(false, false), (true, false), (false, true)]);
        let mut links = vec![];
        for other in others {
            let (here, there) = (Party::Node(id), Party::Node(other));
            links.extend([(here, there)].into_iter().filter(|_| !is_heard));
            links.extend([(there, here)].into_iter().filter(|_| !hears));
        }
        for (from, to) in &links {
            self.network.silence(*from, *to);
        }
        NetworkMend::Voice(links)
    }

    fn slow_links(&mut self) -> NetworkMend {
        let parties: Vec<Party> = self.nodes.iter().map(|node| Party::Node(*node)).collect();
        let mut links = vec![];
        for from in &parties {
            for to in &parties {
                if from != to && self.random.percent(30) {
                    let times = self.random.between(5, 60) as u32;
                    self.network.slow_down(*from, *to, times);
                    links.push((*from, *to));
                }
            }
        }
        NetworkMend::Speed(links)
    }

    fn make_noise(&mut self, kind: FaultKind) -> NetworkMend {
        let much = self.random.between(50, 500);
        match kind {
            FaultKind::Loss => self.network.disturb(much, 0, 0),
            FaultKind::Duplication => self.network.disturb(0, much, 0),
            _ => self.network.disturb(0, 0, much),
        }
        NetworkMend::Noise
    }
}
