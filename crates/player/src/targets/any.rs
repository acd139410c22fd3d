//! A target of any kind.

use seriatim_delivery::player::TargetIndex;
use tokio::sync::mpsc;

use crate::runner::Happening;
#[cfg(feature = "grpc")]
use crate::sessions::serve_grpc;
use crate::sessions::{Call, serve};
use crate::{Checked, Stream};

/// A target of any kind.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyTarget {
    /// A file.
    #[cfg(feature = "file")]
    File(super::FileTarget),
    /// A service with its own transactions.
    #[cfg(feature = "grpc")]
    Grpc(super::grpc::Grpc),
    /// A SQLite database.
    #[cfg(feature = "sqlite")]
    Sqlite(super::SqliteTarget),
}

impl AnyTarget {
    /// Most unanswered batches.
    pub(crate) fn unanswered(&self) -> usize {
        match self {
            #[cfg(feature = "grpc")]
            Self::Grpc(_) => super::grpc::MOST_UNANSWERED,
            _ => 1,
        }
    }

    /// Starts the task that performs the calls.
    pub(crate) fn serve(
        self,
        index: TargetIndex,
        stream: Stream,
        epoch: u64,
        calls: mpsc::UnboundedReceiver<Call>,
        happenings: mpsc::Sender<Happening>,
    ) {
        match self {
            #[cfg(feature = "file")]
            Self::File(target) => {
                tokio::spawn(serve(target, index, stream, epoch, calls, happenings));
            }
            #[cfg(feature = "grpc")]
            Self::Grpc(target) => {
                tokio::spawn(serve_grpc(target, index, stream, epoch, calls, happenings));
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(target) => {
                tokio::spawn(serve(target, index, stream, epoch, calls, happenings));
            }
        }
    }

    /// Reads the bound and verifies the settings. Changes nothing.
    ///
    /// # Errors
    /// One sentence: what failed, and what to do.
    pub async fn check(&self, stream: &Stream) -> Result<Checked, String> {
        match self {
            #[cfg(feature = "file")]
            Self::File(target) => target.check(stream).await,
            #[cfg(feature = "grpc")]
            Self::Grpc(target) => target.check().await,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(target) => target.check(stream).await,
        }
    }
}
