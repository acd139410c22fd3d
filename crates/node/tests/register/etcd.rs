//! The register in a real etcd, which is killed and paused.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seriatim_etcd::testing::EtcdServer;
use seriatim_etcd::{Client, EndpointError};
use seriatim_host::{Event, RegisterQuestion};
use seriatim_model::{Address, LogId, NodeId};
use seriatim_node::register::{EtcdOptions, EtcdRegister, OpenError, ValueError, open};
use seriatim_protocol::control::{LogEntry, Message, catalog};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use crate::news::Crowd;
use crate::scenarios::{SCENARIOS, WITHIN_AN_INCARNATION};
use crate::talk::{NODES, Register, Talk, creation, itself};

const ON_ITS_WAY: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any answer takes.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Clone)]
pub(crate) struct Server {
    etcd: Rc<RefCell<EtcdServer>>,
    runtime: Rc<Runtime>,
}

impl Server {
    fn start() -> Option<Self> {
        let etcd = Rc::new(RefCell::new(EtcdServer::start()?));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Some(Self { etcd, runtime: Rc::new(runtime.unwrap()) })
    }

    fn options(&self, cluster: &str) -> EtcdOptions {
        let endpoints = vec![self.etcd.borrow().endpoint()];
        EtcdOptions { endpoints, cluster: cluster.to_owned() }
    }

    fn open(&self, options: &EtcdOptions) -> Result<EtcdRegister, OpenError> {
        self.runtime.block_on(open(options, None))
    }

    fn talk(&self, cluster: &str) -> Talk {
        Talk::joined(Box::new(InEtcd::new(self.clone(), cluster)))
    }
}

/// Registers in one etcd, one for each node, as in a cluster.
struct InEtcd {
    server: Server,
    cluster: String,
    started: Instant,
    nodes: BTreeMap<NodeId, mpsc::Sender<RegisterQuestion>>,
    said: mpsc::Receiver<Event>,
    telling: mpsc::Sender<Event>,
}

impl InEtcd {
    fn new(server: Server, cluster: &str) -> Self {
        let (telling, said) = mpsc::channel(ON_ITS_WAY);
        let (nodes, started) = (BTreeMap::new(), Instant::now());
        Self { server, cluster: cluster.to_owned(), started, nodes, said, telling }
    }

    fn node(&mut self, node: NodeId) -> mpsc::Sender<RegisterQuestion> {
        if let Some(known) = self.nodes.get(&node) {
            return known.clone();
        }
        let register = self.server.open(&self.server.options(&self.cluster)).unwrap();
        let (questions, mut asked) = mpsc::channel(ON_ITS_WAY);
        let telling = self.telling.clone();
        self.server.runtime.spawn(async move {
            let mut register = register.attend(node);
            loop {
                tokio::select! {
                    question = asked.recv() => match question {
                        Some(question) => register.ask(question),
                        None => return,
                    },
                    event = register.next() => telling.send(event).await.unwrap(),
                }
            }
        });
        self.nodes.insert(node, questions.clone());
        questions
    }
}

impl Register for InEtcd {
    fn ask(&mut self, through: NodeId, asker: Address, message: Message) {
        let question = RegisterQuestion { asker, log: LogId(0), message };
        self.node(through).try_send(question).unwrap();
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the next answer. Skips `Unanswered`: askers retransmit.
    fn hear(&mut self, until: Duration) -> Option<(Address, Message)> {
        loop {
            let wait = until.saturating_sub(self.now());
            let said =
                self.server.runtime.block_on(async { tokio::time::timeout(wait, self.said.recv()).await });
            match said.ok()?? {
                Event::RegisterAnswered { message: Message::Unanswered { why }, .. } => {
                    assert!(why.contains("etcd does not answer"), "{why}");
                }
                Event::RegisterAnswered { to, message, .. } => return Some((to, message)),
                other => panic!("a register does not say this: {other:?}"),
            }
        }
    }

    fn restart(&mut self) {
        self.server.etcd.borrow_mut().restart();
    }
}

#[test]
fn etcd_keeps_the_contract() {
    let Some(server) = Server::start() else { return };
    for (index, (_, scenario)) in SCENARIOS.iter().chain(WITHIN_AN_INCARNATION).enumerate() {
        scenario(&mut server.talk(&format!("cluster-{index}")));
    }
}

/// If each client asked every 20 ms, with two requests per question, etcd would get 20,000 requests
/// per second.
#[test]
fn a_crowd_that_waits_costs_etcd_little_and_is_told_at_once() {
    let Some(server) = Server::start() else { return };
    let mut register = InEtcd::new(server.clone(), "a");
    let (mut crowd, entry) = Crowd::gather(&mut register);
    let requests = || server.etcd.borrow().requests();
    let (before, wait) = (requests(), Duration::from_secs(10));
    crowd.wait(&mut register, wait);
    let each_second = (requests() - before) as f64 / wait.as_secs_f64();
    assert!(each_second < 50.0, "200 clients that wait cost etcd {each_second} requests a second");
    let took = crowd.is_told(&mut register, &entry, 1);
    println!("etcd: {each_second} requests/s for {} questions; all were told after {took:?}", crowd.asked);
}

#[test]
fn answers_and_news_resume_after_a_kill() {
    let Some(server) = Server::start() else { return };
    let mut talk = server.talk("a");
    let log = talk.create(NODES[0], "orders");
    let old = talk.create(NODES[0], "old");
    talk.forget();
    server.etcd.borrow_mut().kill();
    let asker = talk.asker(NODES[1]);
    talk.ask(asker, Message::Get { log });
    assert_eq!(talk.hears_within(SILENCE, asker, |_| true), None);
    server.etcd.borrow_mut().restart();
    assert_eq!(talk.get(NODES[1], log).unwrap().name, "orders");
    // Other nodes learn of the deletion without a question.
    talk.delete(NODES[0], "old", old);
    for node in NODES {
        talk.hears(itself(node), |message| *message == Message::RemoveLog { log: old });
    }
    talk.moves(NODES[0], "node-1:2");
    for node in NODES {
        talk.hears_of(node, 3, |listed| listed.address == "node-1:2");
    }
}

#[test]
fn a_compare_and_set_whose_answer_is_lost_happens_once() {
    let Some(server) = Server::start() else { return };
    let mut talk = server.talk("a");
    let log = talk.create(NODES[0], "orders");
    let known = talk.get(NODES[0], log).unwrap();
    let proposed = LogEntry { claimant: 5, ..known.clone() };
    server.etcd.borrow().pause();
    let asker = talk.asker(NODES[0]);
    talk.ask(asker, Message::CompareAndSet { entry: proposed.clone() });
    assert_eq!(talk.hears_within(SILENCE, asker, |_| true), None);
    server.etcd.borrow().resume();
    // etcd may have performed the abandoned request after its pause, or not: both have this result.
    let expected = LogEntry { version: known.version + 1, ..proposed.clone() };
    let answer = talk.answer(NODES[0], Message::CompareAndSet { entry: proposed });
    assert_eq!(answer, Message::Current { entry: expected.clone() });
    assert_eq!(talk.get(NODES[2], log), Some(expected));
}

#[test]
fn a_creation_whose_answer_is_lost_happens_once() {
    let Some(server) = Server::start() else { return };
    let mut talk = server.talk("a");
    server.etcd.borrow().pause();
    let asker = talk.asker(NODES[0]);
    talk.ask(asker, creation(700, "orders"));
    assert_eq!(talk.hears_within(SILENCE, asker, |_| true), None);
    server.etcd.borrow_mut().restart();
    let answer = talk.answer(NODES[1], creation(700, "orders"));
    assert!(matches!(answer, Message::Done { request: 700, log } if catalog::count(log) == 1), "{answer:?}");
    assert_eq!(catalog::count(talk.create(NODES[0], "invoices")), 2);
}

#[test]
fn a_cluster_has_one_id() {
    let Some(server) = Server::start() else { return };
    let first = server.open(&server.options("a")).unwrap().cluster_id();
    assert_eq!(server.open(&server.options("a")).unwrap().cluster_id(), first);
    assert_ne!(server.open(&server.options("b")).unwrap().cluster_id(), first);
    let known = |cluster: &str, known| {
        let opened = server.runtime.block_on(open(&server.options(cluster), Some(known)));
        opened.map(|register| register.cluster_id())
    };
    assert_eq!(known("a", first), Ok(first));
    let name = || "a".to_owned();
    assert_eq!(known("a", 7), Err(OpenError::OtherCluster { name: name(), found: first, known: 7 }));
    assert_eq!(known("c", 7), Err(OpenError::NoSuchCluster { name: "c".into(), known: 7 }));
    // The failed opening did not create the cluster.
    assert_eq!(known("c", 7), Err(OpenError::NoSuchCluster { name: "c".into(), known: 7 }));
    for name in ["", "a/b", "-a"] {
        assert_eq!(known(name, 7), Err(OpenError::Name { name: name.into() }));
    }
}

#[test]
fn what_is_wrong_is_said() {
    let Some(server) = Server::start() else { return };
    let none = EtcdOptions { endpoints: vec![], ..server.options("a") };
    assert_eq!(server.open(&none).unwrap_err(), OpenError::Endpoint(EndpointError::None));
    let nobody = EtcdOptions { endpoints: vec!["127.0.0.1:1".into()], ..server.options("a") };
    let error = server.open(&nobody).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1: Connection refused"), "{error}");
    let endpoint = server.etcd.borrow().endpoint();
    let other = server.runtime.block_on(async { Client::new(&[endpoint]) }).unwrap();
    let put = |key: &str, value: &'static [u8]| {
        server.runtime.block_on(other.put(key, Bytes::from_static(value))).unwrap();
    };
    put("seriatim/new/cluster", b"\x02what the future holds");
    let key = "seriatim/new/cluster".to_owned();
    let newer = OpenError::Etcd(ValueError::Newer { key, found: 2 }.into());
    assert_eq!(server.open(&server.options("new")).unwrap_err(), newer);
    put("seriatim/odd/cluster", b"\x01odd");
    let error = server.open(&server.options("odd")).unwrap_err().to_string();
    assert!(error.contains("'seriatim/odd/cluster'") && error.contains("restore etcd"), "{error}");
}

#[test]
fn trouble_is_there_to_be_seen_and_passes() {
    let Some(server) = Server::start() else { return };
    let register = server.open(&server.options("a")).unwrap();
    let mut outage = register.outage();
    let _attended = {
        let _inside = server.runtime.enter();
        register.attend(NODES[0])
    };
    server.etcd.borrow_mut().kill();
    let told = seen(&server, &mut outage, true).unwrap();
    assert!(told.starts_with("etcd does not answer"), "{told}");
    server.etcd.borrow_mut().restart();
    assert_eq!(seen(&server, &mut outage, false), None);
}

#[test]
fn a_node_that_knows_its_cluster_starts_before_etcd_does() {
    let Some(server) = Server::start() else { return };
    let id = server.open(&server.options("a")).unwrap().cluster_id();
    server.etcd.borrow_mut().kill();
    let early = |known| server.runtime.block_on(open(&server.options("a"), Some(known))).unwrap();
    let (ours, strange) = (early(id), early(7));
    assert_eq!((ours.cluster_id(), strange.cluster_id()), (id, 7));
    let (mut outage, mut strange_outage) = (ours.outage(), strange.outage());
    assert!(outage.borrow().as_ref().unwrap().starts_with("etcd does not answer"));
    let inside = server.runtime.enter();
    let (mut ours, mut strange) = (ours.attend(NODES[0]), strange.attend(NODES[0]));
    drop(inside);
    server.etcd.borrow_mut().restart();
    assert_eq!(seen(&server, &mut outage, false), None);
    let list =
        || RegisterQuestion { asker: itself(NODES[0]), log: LogId(0), message: Message::List { request: 1 } };
    ours.ask(list());
    let answer = server.runtime.block_on(async { tokio::time::timeout(TIMEOUT, ours.next()).await });
    let Event::RegisterAnswered { message, .. } = answer.unwrap() else { panic!("an answer") };
    assert_eq!(message, Message::Listing { request: 1, entries: vec![], nodes: vec![] });
    // The node with another cluster's id reports the conflict, and changes nothing.
    let other =
        async { strange_outage.wait_for(|told| is_about(told, "correct the cluster's name")).await.is_ok() };
    assert!(server.runtime.block_on(async { tokio::time::timeout(TIMEOUT, other).await }).unwrap());
    strange.ask(list());
    assert!(server.runtime.block_on(async { tokio::time::timeout(SILENCE, strange.next()).await }).is_err());
}

fn is_about(told: &Option<String>, what: &str) -> bool {
    told.as_ref().is_some_and(|told| told.contains(what))
}

fn seen(server: &Server, outage: &mut watch::Receiver<Option<String>>, wanted: bool) -> Option<String> {
    let wait = async {
        let seen = outage.wait_for(|outage| outage.is_some() == wanted);
        tokio::time::timeout(TIMEOUT, seen).await.unwrap().unwrap().clone()
    };
    server.runtime.block_on(wait)
}
