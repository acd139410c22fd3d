//! Files to which a target appends parts.
//!
//! Beside the file `F`, the file `F.bound` holds the bound and the length of `F` at that bound.
//! Bytes beyond this length do not count: the next attach cuts them off. The rename of a new
//! `F.bound` commits a batch. A lock on `F` keeps other players away.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use seriatim_model::Position;

use super::place::Place;
use super::{apply_blocking, blocking};
use crate::bounds::{Checked, Session, Stored, checked, parse_stream};
use crate::{ApplyError, AttachError, Batch, Stream, Target};

/// Version of the format of `F.bound`.
const FORMAT: u32 = 1;

/// A file as a target.
#[derive(Debug)]
pub struct FileTarget {
    files: Arc<Files>,
    /// `None` before an attach, during a call, and after a failed call.
    open: Option<Open>,
}

/// The configuration of a target.
#[derive(Debug)]
struct Files {
    id: String,
    path: PathBuf,
    separator: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    files: Arc<Files>,
    file: Locked,
    session: Session,
    state: State,
}

/// A file with a lock. Dropping it unlocks the file, also while a child process still has it open.
#[derive(Debug)]
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file is the second way to unlock it.
        let _ = self.0.unlock();
    }
}

/// The contents of `F.bound`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    stored: Stored,
    /// Length of the file at the bound, in bytes.
    length: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    format: u32,
    stream: String,
    epoch: u64,
    bound: u64,
    length: u64,
}

impl FileTarget {
    /// The target `id` in the file at `path`, with `separator` behind each part. Opens nothing.
    #[must_use]
    pub fn new(id: &str, path: PathBuf, separator: &str) -> Self {
        let files = Files { id: id.into(), path, separator: separator.into() };
        Self { files: Arc::new(files), open: None }
    }

    /// Reads the bound, and checks the file. Changes nothing.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        let (files, stream) = (Arc::clone(&self.files), stream.clone());
        blocking(move || files.check(&stream)).await
    }
}

impl Target for FileTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        // Unlocks the file.
        self.open = None;
        let files = Arc::clone(&self.files);
        let session = Session { stream: stream.clone(), epoch };
        let open = blocking(move || files.attach(session, adopts)).await?;
        let bound = open.state.stored.bound;
        self.open = Some(open);
        Ok(bound)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        apply_blocking(&mut self.open, batch, Open::apply).await
    }
}

impl Files {
    fn check(&self, stream: &Stream) -> Result<Checked, String> {
        let state = self.read()?;
        match OpenOptions::new().append(true).open(&self.path) {
            Ok(file) => {
                if let Some(state) = &state {
                    self.check_length(&file, state)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound && state.is_none() => {
                let directory = self.directory();
                if !directory.is_dir() {
                    return Err(format!("the directory {} does not exist; create it", directory.display()));
                }
            }
            Err(error) => return Err(self.failed("open", &error)),
        }
        let creates = self.beside("bound").display().to_string();
        checked(state.map(|state| state.stored), stream, &self.id, creates)
    }

    fn attach(self: Arc<Self>, session: Session, adopts: Option<Position>) -> Result<Open, AttachError> {
        let broken = |reason| AttachError::Broken { reason };
        let file = self.lock().map_err(broken)?;
        let state = self.read().map_err(broken)?;
        if let Some(state) = &state {
            self.check_length(&file.0, state).map_err(broken)?;
        }
        let length = match &state {
            Some(state) => state.length,
            None => file.0.metadata().map_err(|error| broken(self.failed("read", &error)))?.len(),
        };
        let stored = session.attach(state.map(|state| state.stored), adopts)?;
        file.0.set_len(length).map_err(|error| broken(self.failed("cut", &error)))?;
        file.0.sync_all().map_err(|error| broken(self.failed("sync", &error)))?;
        let state = State { stored, length };
        self.write(&state).map_err(broken)?;
        Ok(Open { files: self, file, session, state })
    }

    /// Opens and locks the file. A file without a bound is created if it does not exist.
    fn lock(&self) -> Result<Locked, String> {
        let is_new = !self.beside("bound").exists();
        let file = OpenOptions::new()
            .append(true)
            .create(is_new)
            .open(&self.path)
            .map_err(|error| self.failed("open", &error))?;
        match file.try_lock() {
            Ok(()) => {
                self.check_place(&file)?;
                Ok(Locked(file))
            }
            Err(TryLockError::WouldBlock) => {
                let path = self.path.display();
                Err(format!(
                    "another process has locked {path}; end that player (`fuser {path}` shows its process)"
                ))
            }
            Err(TryLockError::Error(error)) => Err(self.failed("lock", &error)),
        }
    }

    /// Checks that the path still leads to the open file.
    fn check_place(&self, file: &File) -> Result<(), String> {
        let metadata = file.metadata().map_err(|error| self.failed("read", &error))?;
        Place::of(&metadata).check(&self.path)
    }

    fn check_length(&self, file: &File, state: &State) -> Result<(), String> {
        let length = file.metadata().map_err(|error| self.failed("read", &error))?.len();
        if length >= state.length {
            return Ok(());
        }
        Err(format!(
            "{path} has {length} bytes, but {} at bound {}: another program shortened or replaced it; \
             restore it together with {bound} from one copy",
            state.length,
            state.stored.bound,
            path = self.path.display(),
            bound = self.beside("bound").display()
        ))
    }

    fn read(&self) -> Result<Option<State>, String> {
        let path = self.beside("bound");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let sidecar: Option<Sidecar> = serde_json::from_str(&text).ok();
        let state = sidecar.filter(|sidecar| sidecar.format == FORMAT).and_then(|sidecar| {
            let stream = parse_stream(&sidecar.stream)?;
            let stored = Stored { stream, epoch: sidecar.epoch, bound: Position(sidecar.bound) };
            Some(State { stored, length: sidecar.length })
        });
        let path = path.display();
        state.map(Some).ok_or_else(|| {
            format!("{path} is damaged, or a newer player wrote it; restore it together with the file")
        })
    }

    /// Replaces `F.bound` atomically and durably.
    fn write(&self, state: &State) -> Result<(), String> {
        let State { stored, length } = state;
        let sidecar = Sidecar {
            format: FORMAT,
            stream: stored.stream.to_string(),
            epoch: stored.epoch,
            bound: stored.bound.0,
            length: *length,
        };
        let (path, new) = (self.beside("bound"), self.beside("bound.new"));
        let replace = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            serde_json::to_writer(&mut file, &sidecar)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(self.directory())?.sync_all()
        };
        replace().map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// The file's path with a further ending.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }

    fn directory(&self) -> &Path {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.unwrap_or(Path::new("."))
    }

    fn failed(&self, what: &str, error: &io::Error) -> String {
        format!("cannot {what} {}: {error}", self.path.display())
    }
}

impl Open {
    fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        self.session.admit(Some(&self.state.stored), batch.after)?;
        self.append(batch).map_err(|reason| ApplyError::Broken { reason })
    }

    fn append(&mut self, batch: &Batch) -> Result<(), String> {
        self.files.check_place(&self.file.0)?;
        self.files.check_length(&self.file.0, &self.state)?;
        let mut bytes = Vec::new();
        for part in batch.messages.iter().flat_map(|message| &message.parts) {
            bytes.extend_from_slice(part);
            bytes.extend_from_slice(&self.files.separator);
        }
        let mut state = self.state.clone();
        state.stored.bound = batch.upto;
        state.length += bytes.len() as u64;
        if !bytes.is_empty() {
            // A foreign writer's bytes beyond the length would otherwise become part of the file.
            self.file.0.set_len(self.state.length).map_err(|error| self.files.failed("cut", &error))?;
            self.file.0.write_all(&bytes).map_err(|error| self.files.failed("append to", &error))?;
            self.file.0.sync_data().map_err(|error| self.files.failed("sync", &error))?;
        }
        self.files.write(&state)?;
        self.state = state;
        Ok(())
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
