//! The target that a configuration names.

use std::time::Duration;

use seriatim_model::Position;

use super::*;
use crate::bounds::Checked;
use crate::config::{Kind, TargetConfig};
use crate::{ApplyError, AttachError, Batch, Stream, Target};

/// A target of one of the kinds of this crate.
#[derive(Debug)]
pub enum AnyTarget {
    /// A SQLite database.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteTarget),
    /// A file.
    #[cfg(feature = "file")]
    File(FileTarget),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(PostgresTarget),
}

/// Calls a function of a target of any kind.
macro_rules! each {
    ($self:expr, $target:ident => $call:expr) => {
        match $self {
            #[cfg(feature = "sqlite")]
            AnyTarget::Sqlite($target) => $call,
            #[cfg(feature = "file")]
            AnyTarget::File($target) => $call,
            #[cfg(feature = "postgres")]
            AnyTarget::Postgres($target) => $call,
        }
    };
}

impl AnyTarget {
    /// The target of a configuration. It must answer a batch within `apply_within`. Opens nothing.
    ///
    /// # Errors
    /// One sentence, if this program does not contain the kind.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "only servers need the time"))]
    pub fn new(config: &TargetConfig, apply_within: Duration) -> Result<Self, String> {
        let id = &config.id;
        match &config.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite { path, statements } => {
                Ok(Self::Sqlite(SqliteTarget::new(id, path.clone(), statements.clone())))
            }
            #[cfg(feature = "file")]
            Kind::File { path, separator } => Ok(Self::File(FileTarget::new(id, path.clone(), separator))),
            #[cfg(feature = "postgres")]
            Kind::Postgres { url, statements, password } => Ok(Self::Postgres(PostgresTarget::new(
                id,
                url,
                statements.clone(),
                password.clone(),
                apply_within,
            ))),
            _ => Err(format!("target '{id}': this program does not contain targets of its kind")),
        }
    }

    /// Prepares each statement, and reads the bound. Changes nothing.
    ///
    /// # Errors
    /// One sentence: the failure, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        each!(self, target => target.check(stream).await)
    }
}

impl Target for AnyTarget {
    async fn attach(
        &mut self,
        stream: &Stream,
        epoch: u64,
        adopts: Option<Position>,
    ) -> Result<Position, AttachError> {
        each!(self, target => target.attach(stream, epoch, adopts).await)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<(), ApplyError> {
        each!(self, target => target.apply(batch).await)
    }
}
