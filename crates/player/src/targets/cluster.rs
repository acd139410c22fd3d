//! A cluster with a control log, for the tests of targets whose bound it keeps.

use std::time::Duration;

use seriatim_client::{
    Client, Event as LogEvent, LogConfig, Order, Position, StoredRecord, SubscribeOptions,
};
use seriatim_node::{Dev, DevOptions};
use tempfile::TempDir;

use crate::control::{ControlLog, Event, Holder};
use crate::kept::Keeper;
use crate::starting::History;

pub(super) struct Cluster {
    _dev: Dev,
    _directory: TempDir,
    pub(super) address: String,
    pub(super) client: Client,
    pub(super) control: ControlLog,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let dev = Dev::start(DevOptions::new(directory.path(), "127.0.0.1:0")).await.unwrap();
        let address = dev.address().to_string();
        let client = Client::connect(&address).await.unwrap();
        let control = ControlLog::create(&client, "billing").await.unwrap();
        Self { _dev: dev, _directory: directory, address, client, control }
    }

    pub(super) async fn create(&self, log: &str, config: LogConfig) {
        self.client.create(log, LogConfig { order: Order::ErwinBb, ..config }).await.unwrap();
    }

    /// The keeper of the target `id` with the present contents of the control log, for a player
    /// that starts now.
    pub(super) async fn keeper(&self, id: &str) -> Keeper {
        let asked = self.control.append(&Event::Hello { from: Holder::own() }).await.unwrap();
        let history = History::of(self.control.history(Position::ZERO, asked).await.unwrap());
        Keeper::new(self.control.clone(), id, &history.bounds, asked.next())
    }

    /// The records of a log.
    pub(super) async fn records(&self, log: &str) -> Vec<StoredRecord> {
        let log = self.client.log(log).await.unwrap();
        let tail = log.check_tail().await.unwrap();
        let options = SubscribeOptions::default().until(tail);
        let mut subscription = log.subscribe(Position::ZERO, options).await.unwrap();
        let mut records = vec![];
        while let Some(event) = subscription.next().await {
            if let LogEvent::Deliver { record, .. } = event.unwrap() {
                records.push(record);
            }
        }
        records
    }
}

/// Waits for a future beside the runtime's other work, from a function that is not async.
pub(super) fn wait<R>(work: impl Future<Output = R>) -> R {
    let handle = tokio::runtime::Handle::current();
    let work = async { tokio::time::timeout(Duration::from_secs(60), work).await };
    tokio::task::block_in_place(|| handle.block_on(work)).expect("it takes too long")
}
