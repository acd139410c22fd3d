//! The kinds of targets, one file and one feature each.

#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use sqlite::SqliteTarget;

#[cfg(test)]
mod suite;

/// Runs a function that blocks on a thread of the runtime's pool. Dropping the future does not end
/// the function.
#[cfg(any(feature = "sqlite", feature = "file"))]
async fn blocking<R: Send + 'static>(function: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(function).await {
        Ok(result) => result,
        Err(failure) => std::panic::resume_unwind(failure.into_panic()),
    }
}
