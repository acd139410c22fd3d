//! The target that a configuration names.

use std::time::Duration;

use super::*;
use crate::Stream;
use crate::bounds::Checked;
#[cfg(feature = "http")]
use crate::config::Contract;
use crate::config::{Kind, TargetConfig};
use crate::kept::Keeper;
use crate::sessions::{Caller, Place};

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
    /// A receiver of HTTP requests that stores its bound.
    #[cfg(feature = "http")]
    Http(HttpTarget),
    /// Another log.
    Log(Copied),
    /// A receiver of HTTP requests that keeps no bound.
    #[cfg(feature = "http")]
    Keyed(http::Keyed),
    /// A service with its own transactions.
    #[cfg(feature = "grpc")]
    Grpc(grpc::Grpc),
}

impl AnyTarget {
    /// The target of a configuration. It must answer a batch within `apply_within`. Opens nothing.
    ///
    /// # Errors
    /// One sentence, if this program does not contain the kind.
    pub fn new(config: &TargetConfig, apply_within: Duration) -> Result<Self, String> {
        let id = &config.id;
        match &config.kind {
            #[cfg(feature = "sqlite")]
            Kind::Sqlite { path, setup, statements } => {
                Ok(Self::Sqlite(SqliteTarget::new(id, path.clone(), setup.clone(), statements.clone())))
            }
            #[cfg(feature = "file")]
            Kind::File { path, separator } => Ok(Self::File(FileTarget::new(id, path.clone(), separator))),
            #[cfg(feature = "postgres")]
            Kind::Postgres { url, statements, password, ca_file } => Ok(Self::Postgres(PostgresTarget::new(
                id,
                url,
                statements.clone(),
                password.clone(),
                ca_file.clone(),
                apply_within,
            ))),
            #[cfg(feature = "http")]
            Kind::Http { url, contract, token, ca_file } => {
                let place = http::Place::new(url, token.clone(), ca_file.clone(), apply_within);
                let place = place.map_err(|error| format!("target '{id}': {error}"))?;
                Ok(match contract {
                    Contract::Bound => Self::Http(HttpTarget::new(id, place)),
                    Contract::Key { content_type } => {
                        Self::Keyed(http::Keyed::new(place, content_type.clone()))
                    }
                })
            }
            Kind::Log { server, log } => Ok(Self::Log(Copied::new(id, server, log, apply_within))),
            #[cfg(feature = "grpc")]
            Kind::Grpc { url } => match grpc::Grpc::new(url, id) {
                Ok(target) => Ok(Self::Grpc(target)),
                Err(error) => Err(format!("target '{id}': {error}")),
            },
            #[allow(unreachable_patterns, reason = "this program may contain all kinds")]
            _ => Err(format!("target '{id}': this program does not contain targets of its kind")),
        }
    }

    /// Prepares each statement, and reads the bound. Changes nothing.
    ///
    /// # Errors
    /// One sentence: the failure, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(target) => target.check(stream).await,
            #[cfg(feature = "file")]
            Self::File(target) => target.check(stream).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(target) => target.check(stream).await,
            #[cfg(feature = "http")]
            Self::Http(target) => target.check(stream).await,
            #[cfg(feature = "http")]
            Self::Keyed(target) => target.check().await,
            Self::Log(target) => target.check().await,
            #[cfg(feature = "grpc")]
            Self::Grpc(target) => target.check().await,
        }
    }

    /// Finds a mistake with which the player does not start.
    pub(crate) async fn check_start(&self) -> Result<(), String> {
        match self {
            Self::Log(target) => target.check_start().await,
            _ => Ok(()),
        }
    }

    /// Whether messages may be delivered more than once.
    pub(crate) fn is_at_least_once(&self) -> bool {
        match self {
            #[cfg(feature = "http")]
            Self::Keyed(_) => true,
            _ => false,
        }
    }

    /// Most unanswered batches. With two, a target begins the next one at once.
    pub(crate) fn unanswered(&self) -> usize {
        match self {
            #[cfg(feature = "grpc")]
            Self::Grpc(_) => grpc::MOST_UNANSWERED,
            _ => 2,
        }
    }

    /// Starts the task that performs the calls. `keeper` records the bound of a target that cannot
    /// store it.
    pub(crate) fn serve(self, place: Place, keeper: Keeper) -> Caller {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(target) => Caller::queued(target, place),
            #[cfg(feature = "file")]
            Self::File(target) => Caller::queued(target, place),
            #[cfg(feature = "postgres")]
            Self::Postgres(target) => Caller::queued(target, place),
            #[cfg(feature = "http")]
            Self::Http(target) => Caller::queued(target, place),
            #[cfg(feature = "http")]
            Self::Keyed(target) => Caller::queued(target.target(keeper), place),
            Self::Log(target) => Caller::queued(target.target(keeper), place),
            #[cfg(feature = "grpc")]
            Self::Grpc(target) => Caller::grpc(target, place),
        }
    }
}
