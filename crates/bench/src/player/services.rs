//! Targets in memory, over gRPC.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use seriatim_player::targets::AnyTarget;
use seriatim_player::targets::grpc::Grpc;
use seriatim_target::{ApplyError, AttachError, Batch, ServeError, Session, Stored, Target, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::samples::Samples;
use super::transactions::name_of;
use crate::terminal::{Failure, Outcome};

/// A running service, which ends when its sender is dropped.
struct Running {
    _until: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

/// A service and its data, which outlive a stop.
pub(super) struct Service {
    address: SocketAddr,
    target: InMemory,
    running: Option<Running>,
}

#[derive(Clone)]
struct InMemory {
    number: usize,
    stored: Arc<Mutex<Option<Stored>>>,
    samples: Arc<Samples>,
}

impl Service {
    pub(super) async fn start(number: usize, samples: &Arc<Samples>) -> Result<Self, Failure> {
        let target = InMemory { number, stored: Arc::default(), samples: samples.clone() };
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { address, target, running: None };
        service.resume().await?;
        Ok(service)
    }

    /// The player's settings for this service.
    pub(super) fn target(&self) -> Result<AnyTarget, Failure> {
        let url = format!("http://{}", self.address);
        Ok(AnyTarget::Grpc(Grpc::new(&url, &name_of(self.target.number))?))
    }

    /// Ends the service, with its connections.
    pub(super) async fn stop(&mut self) -> Outcome {
        let Some(Running { _until, served }) = self.running.take() else { return Ok(()) };
        drop(_until);
        Ok(served.await??)
    }

    /// Serves at the address of the last time.
    pub(super) async fn resume(&mut self) -> Outcome {
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        let (_until, ended) = oneshot::channel::<()>();
        let serving = serve(listener, self.target.clone(), async { drop(ended.await) });
        self.running = Some(Running { _until, served: tokio::spawn(serving) });
        Ok(())
    }
}

impl Target for InMemory {
    async fn attach(&self, session: &Session, adopts: Option<u64>) -> Result<u64, AttachError> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let attached = Stored::attach(stored.clone(), session, adopts)?;
        let bound = attached.bound;
        *stored = Some(attached);
        Ok(bound)
    }

    async fn apply(&self, session: &Session, batch: &Batch) -> Result<(), ApplyError> {
        let now = Instant::now();
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        let applied = Stored::apply(stored.clone(), session, batch)?;
        let messages = batch.messages.iter().map(|message| (message.position, &message.parts[0][..]));
        self.samples.arrived(self.number, messages, now);
        *stored = Some(applied);
        Ok(())
    }
}
