//! Progress of an append in a file, so that a later run continues an interrupted one.
//!
//! The file names the session before the first record is submitted, and the number of the first
//! record without an acknowledgement. It may be older than the acknowledgements: records that the
//! next run submits again under the same numbers are stored once.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use seriatim_client::{Log, SessionId};

use crate::output::{Failure, Outcome};

/// Interval between writes of the file.
const SAVE_EVERY: Duration = Duration::from_millis(500);

/// A prefix of an input, with a checksum that identifies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Prefix {
    pub(super) records: u64,
    pub(super) bytes: u64,
    checksum: u32,
}

impl Prefix {
    /// Adds a record with its delimiter.
    pub(super) fn add(&mut self, raw: &[u8]) {
        self.records += 1;
        self.bytes += raw.len() as u64;
        self.checksum = crc32c::crc32c_append(self.checksum, raw);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    log: String,
    /// A deleted log's name may belong to another log.
    log_id: u64,
    session: String,
    /// Number, in the session, of the first record behind `done`.
    number: u64,
    done: Prefix,
    /// Records of `done` that are not in the log, from 1.
    left_out: Vec<u64>,
}

pub(super) struct Progress {
    path: PathBuf,
    saved: Saved,
    /// Content of the last write of this run.
    written: Option<Saved>,
    saved_at: Instant,
}

pub(super) struct Earlier {
    path: PathBuf,
    saved: Option<Saved>,
}

impl Earlier {
    pub(super) fn load(path: &Path) -> Result<Self, Failure> {
        let failed = |cause: String| Failure::new(format!("{}: {cause}", path.display()));
        let saved = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|cause| failed(format!("not what an interrupted append left: {cause}")))?,
            Err(cause) if cause.kind() == ErrorKind::NotFound => None,
            Err(cause) => return Err(failed(cause.to_string())),
        };
        Ok(Self { path: path.to_owned(), saved })
    }

    /// The session to continue, and the number of its next record.
    pub(super) fn session(&self) -> Result<Option<(SessionId, u64)>, Failure> {
        let Some(saved) = &self.saved else { return Ok(None) };
        let session = saved.session.parse().map_err(|_| {
            Failure::new(format!("{}: '{}' is not a session id", self.path.display(), saved.session))
        })?;
        Ok(Some((session, saved.number)))
    }

    /// Continues or begins once the log is open. Saves the session before the first append.
    pub(super) async fn begin(self, log: &Log) -> Result<Progress, Failure> {
        let (name, id) = (log.name().to_owned(), log.entry().id.0);
        if let Some(saved) =
            self.saved.as_ref().filter(|saved| (saved.log.as_str(), saved.log_id) != (&*name, id))
        {
            return Err(Failure::new(format!(
                "{} belongs to another log named '{}': remove the file to append the whole input to this log",
                self.path.display(),
                saved.log
            )));
        }
        let Some((session, number)) = log.session().await else {
            return Err(Failure::new(format!(
                "the log '{name}' opens no session at present, or has forgotten the session in {}",
                self.path.display()
            )));
        };
        let (done, left_out) = self.saved.map_or_else(Default::default, |saved| (saved.done, saved.left_out));
        let saved = Saved { log: name, log_id: id, session: session.to_string(), number, done, left_out };
        let mut progress = Progress { path: self.path, saved, written: None, saved_at: Instant::now() };
        progress.write().map_err(|cause| {
            let path = progress.path.display();
            Failure::new(format!(
                "{path}: {cause}; this run appended no record: name a file that can be written"
            ))
        })?;
        Ok(progress)
    }
}

impl Progress {
    pub(super) fn done(&self) -> Prefix {
        self.saved.done
    }

    /// Records that are not in the log, from 1.
    pub(super) fn left_out(&self) -> &[u64] {
        &self.saved.left_out
    }

    pub(super) fn acknowledged(&mut self, upto: Prefix) -> Outcome {
        self.pass(upto);
        if self.saved_at.elapsed() >= SAVE_EVERY { self.save() } else { Ok(()) }
    }

    /// The next record never will be in the log under its number.
    pub(super) fn leaves_out(&mut self, upto: Prefix) {
        self.pass(upto);
        self.saved.left_out.push(upto.records);
    }

    fn pass(&mut self, upto: Prefix) {
        assert_eq!(self.saved.done.records + 1, upto.records, "records are acknowledged in their order");
        self.saved.done = upto;
        self.saved.number += 1;
    }

    /// Writes the file if it is out of date.
    pub(super) fn save(&mut self) -> Outcome {
        if self.written.as_ref() == Some(&self.saved) {
            return Ok(());
        }
        self.write().map_err(|cause| {
            Failure::new(format!(
                "{}: {cause}; the log has acknowledged records that this file does not list",
                self.path.display()
            ))
        })
    }

    /// Replaces the file atomically.
    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_string(&self.saved)?;
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        // Before the directory is synced, a power cut leaves the old file or none.
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        (self.written, self.saved_at) = (Some(self.saved.clone()), Instant::now());
        Ok(())
    }
}
