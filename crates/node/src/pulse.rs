//! Sends, receives and answers heartbeats on a separate thread.
//!
//! No record passes through the thread, its locks or its queues: however busy the driver, the
//! runtime or the disk is, the node exchanges heartbeats. The thread reports changes to the driver.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use seriatim_host::{Detector, Event, Liveness, Unmet, Via};
use seriatim_model::{Endpoint, LogId, NodeId, Time};
use seriatim_net::{
    Detached, LinkEvent, Links, Receiver, RefusalCode, Unlinked, message_frame, open_message,
};
use seriatim_protocol::control::Heartbeat;
use seriatim_protocol::{Message, control};
use tokio::sync::{mpsc, watch};

use crate::alarm::until;
use crate::driver::Arrival;
use crate::vitals::Vitals;

/// Most heartbeats queued for the thread.
const WAITING: usize = 1024;

#[derive(Debug)]
pub(crate) struct Connected(pub(crate) NodeId, pub(crate) Detached);

type Others = BTreeMap<NodeId, Unmet>;

enum Heard {
    Beat(NodeId, Via, Heartbeat),
    Closed(NodeId, Via),
}

#[derive(Debug)]
pub(crate) struct Pulse {
    /// Other nodes to exchange heartbeats with. `None` ends the thread.
    others: Option<watch::Sender<Others>>,
    connected: mpsc::Sender<Connected>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) struct PulseParts {
    pub(crate) detector: Detector,
    /// Connections to other nodes. Made on any runtime, used on the thread's own.
    pub(crate) links: (Links, mpsc::Receiver<LinkEvent>),
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) driver: mpsc::Sender<Arrival>,
}

impl Pulse {
    pub(crate) fn start(parts: PulseParts) -> io::Result<Self> {
        let (connected, connections) = mpsc::channel(WAITING);
        let (others, known) = watch::channel(Others::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("heartbeats".into()).spawn(move || {
            runtime.block_on(Heart::new(parts, known, connections).run());
        })?;
        Ok(Self { others: Some(others), connected, thread: Some(thread) })
    }

    pub(crate) fn door(&self) -> mpsc::Sender<Connected> {
        self.connected.clone()
    }

    pub(crate) fn meet(&self, unmet: Unmet) {
        let others = self.others.as_ref().expect("it is there until the end");
        others.send_modify(|others| drop(others.insert(unmet.node, unmet)));
    }

    pub(crate) fn forget(&self, node: NodeId) {
        let others = self.others.as_ref().expect("it is there until the end");
        others.send_modify(|others| drop(others.remove(&node)));
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.others = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Heart {
    detector: Detector,
    links: Links,
    link_events: mpsc::Receiver<LinkEvent>,
    vitals: Arc<Vitals>,
    driver: mpsc::Sender<Arrival>,
    others: watch::Receiver<Others>,
    /// Each node's address at the last update.
    addresses: BTreeMap<NodeId, String>,
    door: mpsc::Receiver<Connected>,
    hear: mpsc::Sender<Heard>,
    heard: mpsc::Receiver<Heard>,
    connections: u64,
    started: Instant,
}

impl Heart {
    fn new(parts: PulseParts, others: watch::Receiver<Others>, door: mpsc::Receiver<Connected>) -> Self {
        let PulseParts { detector, links: (links, link_events), vitals, driver } = parts;
        let (hear, heard) = mpsc::channel(WAITING);
        Self {
            detector,
            links,
            link_events,
            vitals,
            driver,
            others,
            addresses: BTreeMap::new(),
            door,
            hear,
            heard,
            connections: 0,
            started: Instant::now(),
        }
    }

    async fn run(mut self) {
        loop {
            let wake = self.detector.deadline().map(|at| self.started + at.since(Time::ZERO));
            tokio::select! {
                biased;
                Some(heard) = self.heard.recv() => self.hear(heard).await,
                known = self.others.changed() => match known {
                    Ok(()) => self.meet(),
                    Err(_) => return,
                },
                Some(Connected(node, connection)) = self.door.recv() => self.connected(node, connection),
                Some(event) = self.link_events.recv() => self.link(event).await,
                () = until(wake) => {}
            }
            // All heartbeats that have arrived count before any node is found silent.
            tokio::task::yield_now().await;
            while let Ok(heard) = self.heard.try_recv() {
                self.hear(heard).await;
            }
            self.beat().await;
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn meet(&mut self) {
        let now = self.now();
        let others = self.others.borrow_and_update();
        for node in
            self.addresses.keys().copied().filter(|node| !others.contains_key(node)).collect::<Vec<_>>()
        {
            self.detector.forget(node);
            self.links.moved(node);
            self.addresses.remove(&node);
        }
        for Unmet { node, taken, address } in others.values() {
            self.detector.meet(now, *node, taken.clone());
            if self.addresses.insert(*node, address.clone()).is_some_and(|before| before != *address) {
                self.links.moved(*node);
            }
        }
    }

    fn connected(&mut self, node: NodeId, connection: Detached) {
        self.connections += 1;
        let via = Via(self.connections);
        // If attaching fails, the connection closes and the other node connects again.
        let Ok(connection) = connection.attach() else { return };
        self.detector.connected(node, via);
        let hear = self.hear.clone();
        tokio::spawn(async move {
            // This node sends nothing over the connection, but dropping the sender would close it.
            let _sender = connection.sender;
            read(node, via, connection.receiver, &hear).await;
            let _ = hear.send(Heard::Closed(node, via)).await;
        });
    }

    async fn link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Dialled(node, outcome) => {
                if let Err(Unlinked { cause, refusal: Some(RefusalCode::BeatsDiffer) }) = &outcome {
                    let _ = self.driver.send(Arrival::BeatsDiffer(node, cause.clone())).await;
                }
                self.links.dialled(node, outcome);
            }
            LinkEvent::Down(node) => self.links.down(node),
            // Answers arrive over the other node's own connection.
            LinkEvent::Frames(..) => {}
        }
    }

    async fn hear(&mut self, heard: Heard) {
        let now = self.now();
        let changes = match heard {
            Heard::Beat(node, via, beat) => self.detector.heard(now, node, via, beat),
            Heard::Closed(node, via) => self.detector.disconnected(node, via).into_iter().collect(),
        };
        self.vitals.was_wrong(self.detector.wrong_suspicions());
        self.tell(changes).await;
    }

    async fn beat(&mut self) {
        self.detector.feel(self.vitals.ailment());
        let (beats, changes) = self.detector.beat(self.now());
        for (node, beat) in beats {
            let message = Message::Control(control::Message::Heartbeat(beat));
            let frame = message_frame(LogId(0), Endpoint::Node, Endpoint::Node, &message)
                .expect("a heartbeat fits into a frame");
            let others = self.others.borrow();
            self.links.send(node, others.get(&node).map(|other| other.address.as_str()), frame);
        }
        self.tell(changes).await;
    }

    /// Reports changes to the driver. Waits while its queue is full: a node with a stalled driver
    /// must send no heartbeats.
    async fn tell(&self, changes: Vec<Liveness>) {
        for change in changes {
            let _ = self.driver.send(Arrival::Host(Event::Liveness(change))).await;
        }
    }
}

async fn read(node: NodeId, via: Via, mut receiver: Receiver, hear: &mpsc::Sender<Heard>) {
    while let Ok(Some(frames)) = receiver.receive().await {
        for frame in frames {
            let Ok((_, _, _, Message::Control(control::Message::Heartbeat(beat)))) = open_message(frame)
            else {
                return;
            };
            if hear.send(Heard::Beat(node, via, beat)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim_host::{Cause, DiskMark, Taken};
    use seriatim_model::limits::Limits;
    use seriatim_model::{Record, SessionId, ViewNumber};
    use seriatim_net::{ClusterId, Hello, Identity, Lane, ListenOptions, Listener};
    use seriatim_protocol::control::Ailment;
    use seriatim_protocol::cuts::ShardMessage;

    use super::*;
    use crate::progress::JournalProgress;
    use crate::readers::{Doors, accept};

    const CLUSTER: ClusterId = ClusterId(1);
    const HERE: NodeId = NodeId(1);
    const THERE: NodeId = NodeId(2);

    struct End {
        pulse: Pulse,
        changes: mpsc::Receiver<Arrival>,
        usual: mpsc::Receiver<Arrival>,
        journal: JournalProgress,
        address: String,
        /// The other end's count of messages from this one.
        arrived: Taken,
        is_mute: bool,
    }

    async fn start(node: NodeId, limits: &Limits) -> End {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address().to_string();
        let incarnation = u64::from(node.0);
        let identity = Identity::new(CLUSTER, node, incarnation, limits);
        let incoming = listener.serve(identity, ListenOptions::default());
        let (driver, usual) = mpsc::channel(1);
        let (urgent, changes) = mpsc::channel(16);
        let (events, arrivals) = mpsc::channel(16);
        let hello = Hello::node(CLUSTER, node, incarnation, address.clone());
        let hello = hello.beating(identity.beats).over(Lane::Heartbeats);
        let journal = JournalProgress::new();
        let pulse = Pulse::start(PulseParts {
            detector: Detector::new(incarnation, limits, DiskMark::default()),
            links: (Links::new(hello, Default::default(), events), arrivals),
            vitals: Arc::new(Vitals::new(journal.clone())),
            driver: urgent,
        })
        .unwrap();
        tokio::spawn(accept(incoming, Doors { clients: driver.clone(), nodes: driver, pulse: pulse.door() }));
        End { pulse, changes, usual, journal, address, arrived: Taken::default(), is_mute: false }
    }

    impl End {
        /// Returns the next change. Sends a message when the detector asks for one, as a host does,
        /// unless mute.
        async fn next(&mut self) -> Liveness {
            loop {
                let change =
                    tokio::time::timeout(Duration::from_secs(10), self.changes.recv()).await.unwrap();
                match change {
                    Some(Arrival::Host(Event::Liveness(Liveness::Unproven(_)))) if self.is_mute => {}
                    Some(Arrival::Host(Event::Liveness(Liveness::Unproven(_)))) => self.arrived.note(),
                    Some(Arrival::Host(Event::Liveness(change))) => return change,
                    _ => panic!("only changes are reported"),
                }
            }
        }
    }

    fn unmet(node: NodeId, end: &End) -> Unmet {
        Unmet { node, address: end.address.clone(), taken: end.arrived.clone() }
    }

    /// Two connected ends. Each may have been suspected before its first heartbeat.
    async fn pair(limits: &Limits) -> (End, End) {
        let (mut here, mut there) = (start(HERE, limits).await, start(THERE, limits).await);
        here.pulse.meet(unmet(THERE, &there));
        there.pulse.meet(unmet(HERE, &here));
        while here.next().await != Liveness::Alive(THERE) {}
        while there.next().await != Liveness::Alive(HERE) {}
        (here, there)
    }

    #[tokio::test]
    async fn a_node_whose_driver_takes_nothing_and_whose_runtime_is_busy_is_alive_until_it_is_gone() {
        let (mut here, there) = pair(&Limits::default()).await;
        let (events, mut arrivals) = mpsc::channel(16);
        let mut bulk = Links::new(Hello::node(CLUSTER, THERE, 2, "x:1"), Default::default(), events);
        let (view, session) = (ViewNumber(1), SessionId(1));
        for first in 0..32 {
            let records = vec![Record::new(&[0; 1 << 20], 0)];
            let submit = ShardMessage::Submit { view, session, lowest: 0, first, records };
            let frames =
                message_frame(LogId(1), Endpoint::Node, Endpoint::Node, &Message::from(submit)).unwrap();
            bulk.send(HERE, Some(&here.address), frames);
        }
        while here.usual.is_empty() {
            if let Ok(LinkEvent::Dialled(node, outcome)) = arrivals.try_recv() {
                bulk.dialled(node, outcome);
            }
            tokio::task::yield_now().await;
        }
        // Keep the only thread of the test's runtime busy.
        let busy_until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < busy_until {
            std::hint::spin_loop();
        }
        assert!(here.changes.is_empty(), "{:?}", here.next().await);
        drop(there);
        assert!(matches!(here.next().await, Liveness::Suspected(THERE, _)));
    }

    #[tokio::test]
    async fn an_end_that_only_beats_is_suspected_by_both_until_what_it_sends_arrives() {
        let (probe_after, unheard_for) = (Duration::from_millis(50), Duration::from_millis(200));
        let (mut here, mut there) = pair(&Limits { probe_after, unheard_for, ..Limits::default() }).await;
        here.is_mute = true;
        let (here_says, there_says) = tokio::join!(here.next(), there.next());
        assert!(matches!(here_says, Liveness::Suspected(THERE, Cause::Unreached(_))), "{here_says:?}");
        assert_eq!(there_says, Liveness::Suspected(HERE, Cause::Unwell(Ailment::Unheard)));
        here.is_mute = false;
        assert_eq!(tokio::join!(here.next(), there.next()), (Liveness::Alive(THERE), Liveness::Alive(HERE)));
    }

    #[tokio::test]
    async fn a_node_that_ends_before_it_is_heard_is_noticed_by_its_connection() {
        let limits = Limits { heartbeats_missed: 10_000, ..Limits::default() };
        let mut here = start(HERE, &limits).await;
        here.pulse.meet(Unmet { node: THERE, address: "127.0.0.1:1".into(), taken: Taken::default() });
        let (events, mut arrivals) = mpsc::channel(16);
        let hello = Hello::node(CLUSTER, THERE, 2, "127.0.0.1:1");
        let hello = hello.beating(Identity::new(CLUSTER, THERE, 2, &limits).beats).over(Lane::Heartbeats);
        let mut links = Links::new(hello, Default::default(), events);
        links.send(HERE, Some(&here.address), vec![]);
        // The other end accepts, and is gone before its first message.
        let dialled = arrivals.recv().await;
        assert!(matches!(&dialled, Some(LinkEvent::Dialled(HERE, Ok(_)))));
        drop((dialled, links));
        assert_eq!(here.next().await, Liveness::Suspected(THERE, Cause::Closed));
    }

    #[tokio::test]
    async fn a_node_whose_disk_stands_still_says_so() {
        let (mut here, there) = pair(&Limits::default()).await;
        let (ends, write) = std::sync::mpsc::sync_channel::<()>(1);
        let journal = there.journal.clone();
        std::thread::spawn(move || journal.during(|| write.recv()));
        let stalled = Cause::Unwell(Ailment::DiskStalled);
        assert_eq!(here.next().await, Liveness::Suspected(THERE, stalled));
        ends.send(()).unwrap();
        assert_eq!(here.next().await, Liveness::Alive(THERE));
    }
}
