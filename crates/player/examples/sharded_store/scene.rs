//! The cluster, the writer and the player of the example, and what each fault does to them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::TransactionBehavior;
use seriatim_client::{AppendError, AppendOptions, Client, LogConfig, LogOptions, SessionId};
use seriatim_node::{Dev, DevOptions};
use seriatim_player::{Ending, PlayerError};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::store::{self, LOG, Shard};
use crate::{Failure, changes_of};

/// Time limit for the writer's progress, and for notices of the player.
const WITHIN: Duration = Duration::from_secs(120);

/// The shard whose disk is lost, and which is restored.
const VICTIM: usize = 1;
/// Notices that wait for [`Scene::inflict`].
const NOTICES: usize = 1024;

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The player is killed and starts again.
    KillPlayer,
    /// Another player starts beside the first one, which ends.
    SecondPlayer,
    /// The writer is killed, perhaps before an acknowledgement, and resumes its session.
    KillWriter,
    /// One of the three nodes is killed.
    LoseNode,
    /// That node starts again.
    ReturnNode,
    /// All nodes are killed at once and start again.
    KillCluster,
    /// The directory of a shard is moved away.
    LoseDisk,
    /// That directory is moved back.
    ReturnDisk,
    /// An operator copies a shard.
    CopyShard,
    /// An operator restores that shard from the copy: the later changes are gone.
    RestoreShard,
}

/// The running parts.
pub(crate) struct Scene {
    directory: PathBuf,
    address: String,
    /// None while it is down.
    cluster: Option<Dev>,
    writer: Writer,
    player: JoinHandle<Result<Ending, PlayerError>>,
    /// Reports of the players.
    notices: broadcast::Sender<String>,
}

impl Scene {
    /// Starts a cluster of three nodes, a writer and a player.
    pub(crate) async fn begin(directory: &Path) -> Result<Self, Failure> {
        for shard in store::shards(directory) {
            std::fs::create_dir(&shard.directory)?;
        }
        let cluster = start_cluster(directory, "127.0.0.1:0").await?;
        let address = cluster.address().to_string();
        Client::connect(&address).await?.create(LOG, LogConfig::default()).await?;
        let writer = Writer::start(&address).await?;
        let notices = broadcast::Sender::new(NOTICES);
        let player = tokio::spawn(play(address.clone(), directory.into(), false, notices.clone()));
        Ok(Self { directory: directory.into(), address, cluster: Some(cluster), writer, player, notices })
    }

    /// Waits for `more` acknowledged transactions. Returns the number of all.
    pub(crate) async fn written(&mut self, more: u64) -> Result<u64, Failure> {
        self.writer.wait(more).await
    }

    pub(crate) async fn inflict(&mut self, fault: Fault) -> Result<(), Failure> {
        let shard = store::shards(&self.directory).swap_remove(VICTIM);
        let (away, copy) = (self.directory.join("away"), self.directory.join("copy.db"));
        let mut notices = self.notices.subscribe();
        match fault {
            Fault::KillPlayer => {
                self.kill_player().await?;
                self.player = self.start_player(false);
            }
            Fault::SecondPlayer => {
                let second = self.start_player(false);
                match std::mem::replace(&mut self.player, second).await? {
                    Err(PlayerError::Deposed { .. }) => {}
                    ended => return Err(format!("the first player ended: {ended:?}").into()),
                }
            }
            Fault::KillWriter => self.writer.kill_and_resume().await?,
            Fault::LoseNode => self.nodes()?.kill_last(1).await,
            Fault::ReturnNode => self.nodes()?.restart_killed().await?,
            Fault::KillCluster => {
                drop(self.cluster.take());
                self.cluster = Some(start_cluster(&self.directory, &self.address).await?);
            }
            Fault::LoseDisk => {
                std::fs::rename(&shard.directory, away)?;
                hear(&mut notices, "cannot").await?;
            }
            Fault::ReturnDisk => {
                std::fs::rename(away, &shard.directory)?;
                hear(&mut notices, "attached").await?;
            }
            Fault::CopyShard => copy_shard(&shard, &copy)?,
            Fault::RestoreShard => {
                restore_shard(&shard, &copy)?;
                hear(&mut notices, "restored from an older state").await?;
            }
        }
        Ok(())
    }

    /// Ends the writer, and waits until the shards have applied the whole log. Returns the number
    /// of transactions.
    pub(crate) async fn end(mut self) -> Result<u64, Failure> {
        let transactions = self.writer.finish().await?;
        self.kill_player().await?;
        timeout(WITHIN, self.start_player(true)).await???;
        Ok(transactions)
    }

    fn nodes(&mut self) -> Result<&mut Dev, Failure> {
        self.cluster.as_mut().ok_or_else(|| "the cluster is down".into())
    }

    fn start_player(&self, until_tail: bool) -> JoinHandle<Result<Ending, PlayerError>> {
        tokio::spawn(play(self.address.clone(), self.directory.clone(), until_tail, self.notices.clone()))
    }

    /// Aborts the task of the player. A running transaction of a shard commits or not, as after a
    /// crash of the process.
    async fn kill_player(&mut self) -> Result<(), Failure> {
        self.player.abort();
        match (&mut self.player).await {
            Err(error) if error.is_cancelled() => Ok(()),
            ended => Err(format!("the player ended by itself: {ended:?}").into()),
        }
    }
}

/// Waits for a notice about the victim's shard.
async fn hear(notices: &mut broadcast::Receiver<String>, text: &str) -> Result<(), Failure> {
    let shard = store::id(VICTIM);
    let heard = async {
        loop {
            let notice = notices.recv().await?;
            if notice.contains(&shard) && notice.contains(text) {
                return Ok(());
            }
        }
    };
    timeout(WITHIN, heard).await.map_err(|_| format!("no player reported '{text}' of {shard}"))?
}

/// Copies a shard.
pub(crate) fn copy_shard(shard: &Shard, copy: &Path) -> Result<(), Failure> {
    shard.open()?.execute("vacuum into ?1", [copy.to_str()])?;
    Ok(())
}

/// Replaces the content of a shard, bound included, with the content of the copy.
pub(crate) fn restore_shard(shard: &Shard, copy: &Path) -> Result<(), Failure> {
    let mut shard = shard.open()?;
    shard.execute("attach ?1 as copy", [copy.to_str()])?;
    let restore = shard.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in ["pairs", "history", "seriatim_bounds"] {
        restore.execute(&format!("delete from main.{table}"), [])?;
        let insert = format!("insert into main.{table} select * from copy.{table} order by rowid");
        restore.execute(&insert, [])?;
    }
    restore.commit()?;
    Ok(())
}

async fn start_cluster(directory: &Path, address: &str) -> Result<Dev, Failure> {
    Ok(Dev::start(DevOptions::new(directory.join("cluster"), address)).await?)
}

/// Plays until the task is aborted, which loses all that the player has in memory. With
/// `until_tail`, until the shards have applied the log.
async fn play(
    address: String,
    directory: PathBuf,
    until_tail: bool,
    notices: broadcast::Sender<String>,
) -> Result<Ending, PlayerError> {
    let client = Client::connect(&address).await.expect("the cluster answers");
    let settings = store::player(&directory, until_tail).expect("the statements are valid");
    let mut observer = |text: &str, is_problem: bool| {
        if is_problem {
            println!("  {text}");
        }
        // Most notices have no receiver.
        let _ = notices.send(text.to_owned());
    };
    seriatim_player::run(&client, settings, None, |_| {}, &mut observer, std::future::pending()).await
}

/// A program that appends transactions in one session, until it is stopped.
struct Writer {
    address: String,
    /// What a program stores before its first append: the session, and the number of that append.
    session: (SessionId, u64),
    /// Number of acknowledged transactions.
    acknowledged: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), Failure>>,
}

impl Writer {
    async fn start(address: &str) -> Result<Self, Failure> {
        let log = Client::connect(address).await?.log(LOG).await?;
        let session = log.session().await.ok_or("the log opened no session")?;
        let (acknowledged, stop) = (watch::Sender::new(0), watch::Sender::new(false));
        let task = tokio::spawn(write(address.into(), session, acknowledged.clone(), stop.subscribe()));
        Ok(Self { address: address.into(), session, acknowledged, stop, task })
    }

    /// Aborts the task, and starts another one at the first transaction without acknowledgement.
    async fn kill_and_resume(&mut self) -> Result<(), Failure> {
        self.task.abort();
        match (&mut self.task).await {
            Err(error) if error.is_cancelled() => {}
            ended => return Err(format!("the writer ended by itself: {ended:?}").into()),
        }
        let (acknowledged, stop) = (self.acknowledged.clone(), self.stop.subscribe());
        self.task = tokio::spawn(write(self.address.clone(), self.session, acknowledged, stop));
        Ok(())
    }

    async fn wait(&mut self, more: u64) -> Result<u64, Failure> {
        let mut acknowledged = self.acknowledged.subscribe();
        let goal = *acknowledged.borrow() + more;
        tokio::select! {
            biased;
            ended = &mut self.task => Err(format!("the writer ended by itself: {ended:?}").into()),
            reached = timeout(WITHIN, acknowledged.wait_for(|number| *number >= goal)) => Ok(*reached??),
        }
    }

    async fn finish(&mut self) -> Result<u64, Failure> {
        self.stop.send_replace(true);
        timeout(WITHIN, &mut self.task).await???;
        Ok(*self.acknowledged.borrow())
    }
}

/// Appends the transactions that no earlier run has acknowledged. The log stores
/// each once, also if an earlier run appended it and was killed before the acknowledgement.
async fn write(
    address: String,
    (session, first): (SessionId, u64),
    acknowledged: watch::Sender<u64>,
    stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let client = Client::connect(&address).await?;
    let resumed_at = |number: u64| client.log_with(LOG, LogOptions::resume(session, first + number));
    let mut number = *acknowledged.borrow();
    let mut log = resumed_at(number).await?;
    while !*stop.borrow() {
        let record = store::record(number, &changes_of(number))?;
        match log.append(record, AppendOptions::default()).await {
            Ok(_) | Err(AppendError::AppendedBefore) => number += 1,
            // As after a kill: the record is in the log or not, and the resumed session knows.
            Err(AppendError::NotAppended | AppendError::DeadlineExceeded { .. }) => {
                log = resumed_at(number).await?;
            }
            Err(error) => return Err(error.into()),
        }
        acknowledged.send_replace(number);
    }
    Ok(())
}
