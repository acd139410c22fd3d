//! Logs to which a target copies the entries.
//!
//! Each part is an append with the next number of one session, which all runs of the player
//! continue. So a number is always the same record, from any run, and the log stores it once. The
//! control log keeps the bound with the number that follows it. A run repeats the appends since the
//! last such record.

use std::time::Duration;

use seriatim_client::{
    Append, AppendError, Client, ClientOptions, ControlError, Log, LogEntry, LogOptions, Record,
};
use seriatim_model::record::{Header, ORIGIN_HEADER_KIND};
use seriatim_model::{Order, Position, SessionId};

use super::not_attached;
use crate::bounds::{Checked, Session, Stored};
use crate::kept::{Bookmark, BoundRecord, Keeper};
use crate::{ApplyError, AttachError, Batch, Message, Stream, Target};

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A log that receives copies.
#[derive(Clone, Debug)]
pub struct Copied {
    id: String,
    server: String,
    log: String,
    apply_within: Duration,
}

/// A log as a target.
#[derive(Debug)]
pub(crate) struct LogTarget {
    copied: Copied,
    keeper: Keeper,
    client: Option<Client>,
    /// The session that the log has forgotten.
    forgotten: Option<SessionId>,
    /// `None` before an attach, during a call, and after a failed call.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    log: Log,
    session: SessionId,
    /// Number of the next append.
    number: u64,
    stored: Stored,
}

/// Why a log cannot receive copies.
enum Unfit {
    /// Its ordering, or its absence. Waiting does not help.
    Unusable(String),
    /// Its cluster does not respond.
    Broken(String),
}

impl From<Unfit> for AttachError {
    fn from(why: Unfit) -> Self {
        match why {
            Unfit::Unusable(reason) => Self::Unusable { reason },
            Unfit::Broken(reason) => Self::Broken { reason },
        }
    }
}

impl Copied {
    /// The log of this name in the cluster of `server`, as the target `id`. An append may take
    /// `apply_within`. Connects to nothing.
    #[must_use]
    pub fn new(id: &str, server: &str, log: &str, apply_within: Duration) -> Self {
        Self { id: id.into(), server: server.into(), log: log.into(), apply_within }
    }

    /// Looks the log up.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self) -> Result<Checked, String> {
        let client = self.connect().await?;
        match self.look_up(&client).await {
            Ok(_) => Ok(Checked::Kept),
            Err(Unfit::Unusable(reason) | Unfit::Broken(reason)) => Err(reason),
        }
    }

    /// Checks the ordering before the player starts. A cluster that does not respond is no mistake.
    pub(crate) async fn check_start(&self) -> Result<(), String> {
        let Ok(client) = self.connect().await else { return Ok(()) };
        match self.look_up(&client).await {
            Err(Unfit::Unusable(reason)) => Err(reason),
            Ok(_) | Err(Unfit::Broken(_)) => Ok(()),
        }
    }

    pub(crate) fn target(self, keeper: Keeper) -> LogTarget {
        LogTarget { copied: self, keeper, client: None, forgotten: None, open: None }
    }

    async fn connect(&self) -> Result<Client, String> {
        let options = ClientOptions::default()
            .with_deadline(self.apply_within)
            .with_name(format!("player {}", self.id));
        let server = &self.server;
        match tokio::time::timeout(CONNECT_WITHIN, Client::connect_with(server, options)).await {
            Ok(connected) => connected.map_err(|cause| format!("cannot connect to {server}: {cause}")),
            Err(_) => Err(format!("{server} does not answer within {} s", CONNECT_WITHIN.as_secs())),
        }
    }

    /// The log's entry, if its sessions continue in later runs.
    async fn look_up(&self, client: &Client) -> Result<LogEntry, Unfit> {
        let entry = client.lookup(&self.log).await.map_err(|cause| match cause {
            ControlError::NoSuchLog { .. } => Unfit::Unusable(cause.to_string()),
            cause => Unfit::Broken(cause.to_string()),
        })?;
        let order = entry.config.order;
        if order.properties().continues_sessions {
            return Ok(entry);
        }
        Err(Unfit::Unusable(format!(
            "the log '{}' has the ordering {order}, whose sessions do not continue in a later run, so a copied \
             entry could be there twice; copy to a log with --order {}",
            self.log,
            Order::names_where(|order| order.continues_sessions)
        )))
    }
}

impl LogTarget {
    /// The client, connected once.
    async fn client(&mut self) -> Result<Client, AttachError> {
        if self.client.is_none() {
            let connected = self.copied.connect().await;
            self.client = Some(connected.map_err(|reason| AttachError::Broken { reason })?);
        }
        Ok(self.client.clone().expect("it is connected"))
    }

    /// The recorded session, and the number of its next append.
    fn recorded(&self, bookmark: &Bookmark, entry: &LogEntry) -> Result<(SessionId, u64), AttachError> {
        let log = &self.copied.log;
        let unusable = |why: &str| AttachError::Unusable {
            reason: format!(
                "{why}: find the last copied entry in '{log}' by its header of type {ORIGIN_HEADER_KIND}, then use \
                 'adopt' with the position behind it"
            ),
        };
        let Ok(session) = bookmark.session.parse() else {
            return Err(unusable("the control log names a session that is none"));
        };
        if bookmark.log != entry.id.0 {
            return Err(unusable(&format!("the log '{log}' is another one than this target has copied to")));
        }
        if self.forgotten == Some(session) {
            return Err(unusable(&format!("the log '{log}' has forgotten the session of this target")));
        }
        Ok((session, bookmark.number))
    }

    /// Opens a session that no earlier run has used.
    async fn fresh(&self, client: &Client, stored: Stored) -> Result<Open, AttachError> {
        let log = self.open(client, LogOptions::default()).await?;
        let (session, number) = log.session().await.ok_or_else(|| AttachError::Broken {
            reason: format!("the log '{}' opens no session", self.copied.log),
        })?;
        Ok(Open { log, session, number, stored })
    }

    async fn open(&self, client: &Client, options: LogOptions) -> Result<Log, AttachError> {
        let opened = client.log_with(&self.copied.log, options).await;
        opened.map_err(|cause| AttachError::Broken { reason: cause.to_string() })
    }

    /// Appends the records up to the first that does not fit, and returns the rejection of that
    /// record.
    async fn append(&mut self, open: &mut Open, batch: &Batch) -> Result<Option<ApplyError>, ApplyError> {
        let mut appends: Vec<(u64, Append)> = vec![];
        let mut rejection = None;
        for message in &batch.messages {
            let records = records(&open.stored.stream, message);
            // A record that the log refuses must not take a number.
            if let Some(cause) = records.iter().find_map(|record| open.log.check(record).err()) {
                rejection =
                    Some(ApplyError::Rejected { position: message.position, reason: cause.to_string() });
                break;
            }
            for record in records {
                let submitted = open.log.submit(record).await;
                appends.push((open.number, submitted.map_err(|cause| self.failed(&cause))?));
                open.number += 1;
            }
        }
        for (number, append) in appends {
            match append.await {
                Ok(receipt) if (receipt.id.session, receipt.id.number) == (open.session, number) => {}
                Ok(_) => return Err(self.failed(&AppendError::SessionExpired(open.session))),
                // A run before this one has received the acknowledgement.
                Err(AppendError::AppendedBefore) => {}
                Err(cause) => return Err(self.failed(&cause)),
            }
        }
        Ok(rejection)
    }

    fn failed(&mut self, cause: &AppendError) -> ApplyError {
        if let AppendError::SessionExpired(session) = cause {
            self.forgotten = Some(*session);
        }
        // The handle would repeat its appends as long as the client lives.
        self.client = None;
        ApplyError::Broken { reason: cause.to_string() }
    }
}

impl Target for LogTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        self.open = None;
        let client = self.client().await?;
        let entry = self.copied.look_up(&client).await?;
        let session = Session { stream: stream.clone(), epoch };
        let mut stored = self.keeper.attach(&session, adopts)?;
        let bookmark = self.keeper.bookmark().filter(|_| self.keeper.is_of(stream));
        let recorded = match bookmark.map(|bookmark| self.recorded(bookmark, &entry)) {
            None => None,
            Some(Ok(recorded)) => Some(recorded),
            // The operator's bound replaces the recorded one.
            Some(Err(why)) => {
                stored.bound = adopts.ok_or(why)?;
                None
            }
        };
        let bound = stored.bound;
        let open = match recorded {
            Some((session, number)) => {
                let log = self.open(&client, LogOptions::resume(session, number)).await?;
                Open { log, session, number, stored }
            }
            None => self.fresh(&client, stored).await?,
        };
        self.keeper.begin(open.record(&self.keeper)).await?;
        self.open = Some(open);
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        let mut open = self.open.take().ok_or_else(not_attached)?;
        if open.stored.bound != batch.after {
            return Err(ApplyError::Moved { applied: open.stored.bound });
        }
        let rejection = self.append(&mut open, batch).await?;
        open.stored.bound = match &rejection {
            Some(ApplyError::Rejected { position, .. }) => *position,
            _ => batch.upto,
        };
        self.keeper.keep(open.record(&self.keeper)).await?;
        if let Some(rejection) = rejection {
            return Err(rejection);
        }
        self.open = Some(open);
        Ok(())
    }
}

impl Open {
    fn record(&self, keeper: &Keeper) -> BoundRecord {
        let log = self.log.entry().id.0;
        let bookmark = Bookmark { log, session: self.session.to_string(), number: self.number };
        BoundRecord { bookmark: Some(bookmark), ..keeper.record(&self.stored) }
    }
}

/// A record for each part, with the time of the entry.
fn records(stream: &Stream, message: &Message) -> Vec<Record> {
    let origin = format!("{stream}/{}", message.position);
    let header = Header { kind: ORIGIN_HEADER_KIND, value: origin.into() };
    let record = |part: &bytes::Bytes| {
        let record = Record::from(part.clone()).with_time_ms(message.appended_ms);
        let record = record.with_headers(vec![header.clone()]);
        match &message.key {
            Some(key) => record.with_key(key.clone()),
            None => record,
        }
    };
    message.parts.iter().map(record).collect()
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
