//! The kinds of targets, one file and one feature each.

mod any;
#[cfg(test)]
mod cluster;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
mod log;
#[cfg(feature = "postgres")]
mod password;
#[cfg(any(feature = "sqlite", feature = "file"))]
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "http", feature = "postgres"))]
mod secret;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(test)]
pub(crate) mod suite;
#[cfg(any(feature = "http", feature = "postgres"))]
mod tls;

pub use any::AnyTarget;
#[cfg(feature = "file")]
pub use file::FileTarget;
#[cfg(feature = "http")]
pub use http::HttpTarget;
pub use log::Copied;
#[cfg(feature = "postgres")]
pub use postgres::PostgresTarget;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteTarget;

use crate::ApplyError;
#[cfg(any(feature = "sqlite", feature = "file"))]
use crate::Batch;

/// Runs a function that blocks on a thread of the runtime's pool. Dropping the future does not end
/// the function.
#[cfg(any(feature = "sqlite", feature = "file"))]
async fn blocking<R: Send + 'static>(function: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(function).await {
        Ok(result) => result,
        Err(failure) => std::panic::resume_unwind(failure.into_panic()),
    }
}

/// Applies a batch with the attached session in `slot`. Only a successful call keeps the session.
#[cfg(any(feature = "sqlite", feature = "file"))]
async fn apply_blocking<S: Send + 'static>(
    slot: &mut Option<S>,
    batch: &Batch,
    apply: impl FnOnce(&mut S, &Batch) -> Result<(), ApplyError> + Send + 'static,
) -> Result<(), ApplyError> {
    let mut session = slot.take().ok_or_else(not_attached)?;
    let batch = batch.clone();
    let (session, applied) = blocking(move || {
        let applied = apply(&mut session, &batch);
        (session, applied)
    })
    .await;
    if applied.is_ok() {
        *slot = Some(session);
    }
    applied
}

fn not_attached() -> ApplyError {
    ApplyError::Broken { reason: "the target is not attached".into() }
}
