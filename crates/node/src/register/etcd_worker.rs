//! A node's task for etcd: answers questions and reports changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use seriatim_etcd::{Change, Follower, KeyValue, RequestError, Update, pause};
use seriatim_host::{Event, RegisterQuestion};
use seriatim_model::{Address, Endpoint, LogId, NodeId};
use seriatim_protocol::control::parting;
use seriatim_protocol::control::{Message, NodeAddress, Partings};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use super::desk::Desk;
use super::entries::{Entries, EtcdError};
use super::keys::{Followed, Keys, ValueError, decode};
use super::{Cluster, check};

/// Most questions queued for the desk. Further ones are dropped; askers retransmit.
const QUESTIONS: usize = 4096;
/// Most answers queued for the node.
const ANSWERS: usize = 256;
const UPDATES: usize = 16;
/// Pause between reminders to the node to forget a deleted log.
const RETIRE_EVERY: Duration = Duration::from_secs(1);

/// etcd's last failure; `None` after a success.
pub(super) type Outage = watch::Sender<Option<String>>;

/// A node's end of a register in etcd. Dropping it ends its task.
#[derive(Debug)]
pub struct OutsideRegister {
    questions: mpsc::Sender<RegisterQuestion>,
    answers: mpsc::Receiver<Event>,
    _tasks: JoinSet<()>,
}

impl OutsideRegister {
    pub(super) fn start(entries: Entries, cluster: Cluster, me: NodeId, outage: &Arc<Outage>) -> Self {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (answered, answers) = mpsc::channel(ANSWERS);
        let (told, updates) = mpsc::channel(UPDATES);
        let follower = entries.client.follow(entries.keys.followed());
        let teller = Teller {
            keys: entries.keys.clone(),
            me,
            known: Told::default(),
            answered: answered.clone(),
            outage: outage.clone(),
        };
        let changes = entries.client.follow_changes(entries.keys.logs());
        let (told_of_logs, changed_logs) = mpsc::channel(UPDATES);
        let outage = outage.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            confirm(&entries, cluster, &outage).await;
            let desk = Desk::new(entries, me, answered, outage);
            let follow = async { tokio::join!(follow(follower, told), follow(changes, told_of_logs)) };
            tokio::join!(follow, teller.run(updates), desk.run(asked, changed_logs));
        });
        Self { questions, answers, _tasks: tasks }
    }

    /// Sends a question. Drops it if too many are queued: askers retransmit.
    pub fn ask(&self, question: RegisterQuestion) {
        // If the queue is full, the asker retransmits. If it is closed, no task answers.
        let _ = self.questions.try_send(question);
    }

    /// The register's next event. Cancel safe.
    pub async fn next(&mut self) -> Event {
        match self.answers.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// The register's next event, if one is queued.
    pub fn try_next(&mut self) -> Option<Event> {
        self.answers.try_recv().ok()
    }
}

/// Waits until etcd confirms this node's cluster; forever if etcd has another cluster of its name.
async fn confirm(entries: &Entries, mut cluster: Cluster, outage: &Outage) {
    while !cluster.is_confirmed {
        let told = match entries.cluster().await {
            Ok(found) => check(&cluster.name, found, cluster.id).map(|_| ()),
            Err(error) => Err(error.into()),
        };
        cluster.is_confirmed = told.is_ok();
        note(outage, told.err());
        if !cluster.is_confirmed {
            pause().await;
        }
    }
}

/// A task of its own: the reminders must not interrupt it.
async fn follow(mut follower: Follower, told: mpsc::Sender<Result<Update, RequestError>>) {
    while told.send(follower.next().await).await.is_ok() {}
}

/// Reports to a node the cluster's nodes, and the logs to forget.
struct Teller {
    keys: Keys,
    me: NodeId,
    known: Told,
    answered: mpsc::Sender<Event>,
    outage: Arc<Outage>,
}

#[derive(Clone, Default)]
struct Told {
    nodes: BTreeMap<NodeId, String>,
    partings: Partings,
    retiring: BTreeSet<LogId>,
}

impl Teller {
    async fn run(mut self, mut updates: mpsc::Receiver<Result<Update, RequestError>>) {
        let mut reminder = tokio::time::interval(RETIRE_EVERY);
        reminder.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                update = updates.recv() => match update {
                    Some(update) => self.take(update, &mut reminder).await,
                    None => return,
                },
                _ = reminder.tick(), if !self.known.retiring.is_empty() => self.remind().await,
            }
        }
    }

    async fn take(&mut self, update: Result<Update, RequestError>, reminder: &mut Interval) {
        let outcome = match update {
            Ok(update) => self.note_update(update).await.map_err(EtcdError::from),
            Err(error) => Err(error.into()),
        };
        note(&self.outage, outcome.as_ref().err());
        if let Ok(true) = outcome {
            reminder.reset_immediately();
        }
    }

    /// Reports an update to the node. Returns whether there are logs to forget.
    async fn note_update(&mut self, update: Update) -> Result<bool, ValueError> {
        let mut told = self.known.clone();
        match update {
            Update::Whole(found) => {
                told = Told::default();
                for stored in found {
                    self.put(&stored, &mut told)?;
                }
            }
            Update::Changed(changes) => {
                for change in changes {
                    match change {
                        Change::Put(stored) => self.put(&stored, &mut told)?,
                        Change::Deleted { key } => match self.keys.about(&key) {
                            Some(Followed::Node(node)) => drop(told.nodes.remove(&node)),
                            Some(Followed::Parting(node)) => drop(told.partings.remove(&node)),
                            Some(Followed::Retiring(log)) => drop(told.retiring.remove(&log)),
                            None => {}
                        },
                    }
                }
            }
        }
        let before = std::mem::replace(&mut self.known, told.clone());
        // Report partings first, so that the node does not add a removed node again.
        if told.partings != before.partings {
            self.tell(Message::Partings { partings: parting::listed(&told.partings) }).await;
        }
        if told.nodes != before.nodes {
            let address =
                |(node, address): (&NodeId, &String)| NodeAddress { node: *node, address: address.clone() };
            self.tell(Message::Cluster { nodes: told.nodes.iter().map(address).collect() }).await;
        }
        Ok(!told.retiring.is_subset(&before.retiring))
    }

    fn put(&self, stored: &KeyValue, told: &mut Told) -> Result<(), ValueError> {
        match self.keys.about(&stored.key) {
            Some(Followed::Node(node)) => drop(told.nodes.insert(node, decode(stored)?)),
            Some(Followed::Parting(node)) => drop(told.partings.insert(node, decode(stored)?)),
            Some(Followed::Retiring(log)) => {
                let left: Vec<NodeId> = decode(stored)?;
                told.retiring.remove(&log);
                if left.contains(&self.me) {
                    told.retiring.insert(log);
                }
            }
            None => {}
        }
        Ok(())
    }

    async fn remind(&self) {
        for log in &self.known.retiring {
            self.tell(Message::RemoveLog { log: *log }).await;
        }
    }

    async fn tell(&self, message: Message) {
        let to = Address::Node(self.me, Endpoint::Node);
        let _ = self.answered.send(Event::RegisterAnswered { to, log: LogId(0), message }).await;
    }
}

pub(super) fn note(outage: &Outage, error: Option<impl ToString>) {
    let text = error.map(|error| error.to_string());
    outage.send_if_modified(|known| {
        let is_new = *known != text;
        *known = text;
        is_new
    });
}
