//! Accepts connections, each handshake in a separate task: a bad caller disturbs no other.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::connection::Detached;
use crate::handshake::{HandshakeError, Identity, greet};
use crate::hello::{Caller, Hello, Welcome};
use crate::limits::{
    CLIENTS_QUEUE_BYTES, ConnectionOptions, MAX_CLIENTS, MAX_HANDSHAKES, MAX_NODE_CONNECTIONS,
    MAX_WAITING_CONNECTIONS,
};
use crate::queue::Together;

/// Pause after a failed accept: without descriptors or memory, a retry at once would keep a core
/// busy.
const REST: Duration = Duration::from_millis(50);

/// Why an address cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has the port.
    #[error("port {} on {} is in use by another process; choose another", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// This process has no permission.
    #[error("no permission to listen on {0}; choose a port from 1024 up")]
    Denied(SocketAddr),
    /// The host is not an address of this machine.
    #[error("{} is not an address of this machine; choose another", .0.ip())]
    NotLocal(SocketAddr),
    /// The address is malformed, or its name is unknown.
    #[error("cannot listen on '{address}': {source}; give HOST:PORT")]
    BadAddress {
        /// The address.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// Another failure.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
}

/// Limits of a listener and of its connections.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// See [`MAX_CLIENTS`].
    pub max_clients: usize,
    /// See [`MAX_NODE_CONNECTIONS`].
    pub max_nodes: usize,
    /// See [`MAX_HANDSHAKES`].
    pub max_handshakes: usize,
    /// See [`CLIENTS_QUEUE_BYTES`], which the owner of the connections enforces.
    pub clients_queue_bytes: usize,
    /// Count of the queued bytes of all clients.
    pub clients_together: Together,
    /// Clients are accepted at once, but their connections wait until this becomes true. `None`: no
    /// wait.
    pub clients_from: Option<watch::Receiver<bool>>,
    /// Limits of each connection.
    pub connection: ConnectionOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            max_clients: MAX_CLIENTS,
            max_nodes: MAX_NODE_CONNECTIONS,
            max_handshakes: MAX_HANDSHAKES,
            clients_queue_bytes: CLIENTS_QUEUE_BYTES,
            clients_together: Together::default(),
            clients_from: None,
            connection: ConnectionOptions::default(),
        }
    }
}

/// A connection that passed its handshake.
#[derive(Debug)]
pub struct Accepted {
    /// The caller's address.
    pub address: SocketAddr,
    /// The caller's Hello.
    pub hello: Hello,
    /// The listener's answer, with the common version.
    pub welcome: Welcome,
    /// The connection.
    pub connection: Detached,
}

/// A caller that was refused.
#[derive(Debug)]
pub struct Refused {
    /// Caller address.
    pub address: SocketAddr,
    /// The cause.
    pub cause: HandshakeError,
}

/// A bound address. Callers wait in the kernel until [`Self::serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds the first possible address of `address` (`host:port`; port 0 takes a free one).
    ///
    /// # Errors
    /// The first failure, if none can be bound.
    pub async fn bind(address: &str) -> Result<Self, BindError> {
        let bad = |source| BindError::BadAddress { address: address.to_owned(), source };
        let mut first_error = None;
        for candidate in lookup_host(address).await.map_err(bad)? {
            match Self::bind_to(candidate).await {
                Ok(listener) => return Ok(listener),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or_else(|| bad(io::ErrorKind::NotFound.into())))
    }

    async fn bind_to(address: SocketAddr) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).await.and_then(|socket| Ok((socket.local_addr()?, socket)));
        match bound {
            Ok((address, socket)) => Ok(Self { socket, address }),
            Err(source) => Err(match source.kind() {
                io::ErrorKind::AddrInUse => BindError::InUse(address),
                io::ErrorKind::PermissionDenied => BindError::Denied(address),
                io::ErrorKind::AddrNotAvailable => BindError::NotLocal(address),
                _ => BindError::Io { address, source },
            }),
        }
    }

    /// Listening address, with the chosen port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts callers until the result is dropped.
    #[must_use]
    pub fn serve(self, identity: Identity, options: ListenOptions) -> Incoming {
        let (out, accepted) = mpsc::channel(MAX_WAITING_CONNECTIONS);
        let (turned_away, refused) = mpsc::channel(MAX_WAITING_CONNECTIONS);
        let door = Door {
            identity,
            options: options.connection,
            together: options.clients_together,
            clients_from: options.clients_from,
            clients: Room::new("clients", options.max_clients),
            nodes: Room::new("connections from nodes", options.max_nodes),
            out: out.clone(),
            turned_away,
        };
        tokio::spawn(async move {
            tokio::select! {
                () = accept_all(self.socket, Arc::new(door), options.max_handshakes) => {}
                () = out.closed() => {}
            }
        });
        Incoming { accepted, refused: Some(refused) }
    }
}

/// Accepted connections. Dropping it stops the listening; taken connections live on.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<Accepted>,
    refused: Option<mpsc::Receiver<Refused>>,
}

impl Incoming {
    /// Callers that are refused from now on; `None` at further calls. While the channel is full,
    /// reports are dropped. Callers that left or said nothing are not reported.
    pub fn take_refused(&mut self) -> Option<mpsc::Receiver<Refused>> {
        self.refused.take()
    }

    /// Waits for the next connection. Cancel safe.
    pub async fn next(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The accepting task ended with its runtime: no caller will come.
            None => std::future::pending().await,
        }
    }
}

async fn accept_all(socket: TcpListener, door: Arc<Door>, max_handshakes: usize) {
    // Dropping a sender ends its handshake.
    let mut handshakes: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let (stream, address) = accept(&socket).await;
        handshakes.retain(|handshake| !handshake.is_closed());
        // End the oldest handshake: a greeting takes no time, and silent callers must not keep
        // others out.
        if handshakes.len() >= max_handshakes {
            handshakes.pop_front();
        }
        let (handshake, given_up) = oneshot::channel();
        handshakes.push_back(handshake);
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            tokio::select! {
                // `admit` has sent the reason to the caller.
                outcome = door.admit(stream, address) => {
                    outcome.err().into_iter().for_each(|cause| door.tell(address, cause));
                }
                _ = given_up => {}
            }
        });
    }
}

async fn accept(socket: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            // This caller left before its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(REST).await,
        }
    }
}

struct Door {
    identity: Identity,
    options: ConnectionOptions,
    together: Together,
    clients_from: Option<watch::Receiver<bool>>,
    clients: Room,
    nodes: Room,
    out: mpsc::Sender<Accepted>,
    turned_away: mpsc::Sender<Refused>,
}

impl Door {
    /// Reports a refused caller, unless it left or said nothing.
    fn tell(&self, address: SocketAddr, cause: HandshakeError) {
        if !matches!(cause, HandshakeError::Closed | HandshakeError::TimedOut(_) | HandshakeError::Io(_)) {
            // If the channel is full, some reports of very many suffice.
            let _ = self.turned_away.try_send(Refused { address, cause });
        }
    }

    async fn admit(&self, stream: TcpStream, address: SocketAddr) -> Result<(), HandshakeError> {
        let mut guest = greet(stream, &self.identity, &self.options).await?;
        let (room, opens) = match guest.hello().caller {
            Caller::Client { .. } => {
                guest.count_with(self.together.clone());
                (&self.clients, self.clients_from.clone())
            }
            Caller::Node { .. } => (&self.nodes, None),
        };
        match room.enter() {
            Ok(place) => {
                let (hello, welcome, connection) = guest.welcome(Some(place)).await?;
                if let Some(mut opens) = opens
                    && opens.wait_for(|is_open| *is_open).await.is_err()
                {
                    return Err(HandshakeError::Closed);
                }
                // Fails if the listener is gone; then this connection closes, too.
                let _ = self.out.send(Accepted { address, hello, welcome, connection }).await;
                Ok(())
            }
            Err(error) => {
                guest.refuse(&error).await;
                Err(error)
            }
        }
    }
}

/// Places for connections of one kind. Closing a connection's socket frees its place.
struct Room {
    places: Arc<Semaphore>,
    size: usize,
    whose: &'static str,
}

impl Room {
    fn new(whose: &'static str, size: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(size)), size, whose }
    }

    fn enter(&self) -> Result<OwnedSemaphorePermit, HandshakeError> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let (size, whose) = (self.size, self.whose);
            HandshakeError::Full(format!(
                "all {size} places for {whose} are taken; connect to another node or try later"
            ))
        })
    }
}
