//! Accepting connections: each handshake in a task of its own, so that a bad caller disturbs
//! nobody.

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

/// How long accepting rests when the process is out of file descriptors or memory: asking again at
/// once would keep a core busy with failing.
const REST: Duration = Duration::from_millis(50);

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process has it.
    #[error("port {} on {} is in use by another process; choose another", .0.port(), .0.ip())]
    InUse(SocketAddr),
    /// This process may not.
    #[error("no permission to listen on {0}; choose a port from 1024 up")]
    Denied(SocketAddr),
    /// It is not an address of this machine.
    #[error("{} is not an address of this machine; choose another", .0.ip())]
    NotLocal(SocketAddr),
    /// It is no address at all, or its name is not known.
    #[error("cannot listen on '{address}': {source}; give HOST:PORT")]
    BadAddress {
        /// The address that was given.
        address: String,
        /// The fault in it.
        source: io::Error,
    },
    /// The operating system reports another failure.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// Where.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The bounds of a listener, and of the connections that it accepts.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// See [`MAX_CLIENTS`].
    pub max_clients: usize,
    /// See [`MAX_NODE_CONNECTIONS`].
    pub max_nodes: usize,
    /// See [`MAX_HANDSHAKES`].
    pub max_handshakes: usize,
    /// See [`CLIENTS_QUEUE_BYTES`]. Counted here, and kept by the one that sends to the clients.
    pub clients_queue_bytes: usize,
    /// The bytes that wait for all clients.
    pub clients_together: Together,
    /// Clients are welcome at once, and their connections are given to the node when this becomes
    /// true: until then they wait, as for a slow answer. `None`: at once.
    pub clients_from: Option<watch::Receiver<bool>>,
    /// The bounds of each connection.
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
    /// Where the caller is.
    pub address: SocketAddr,
    /// The caller's Hello.
    pub hello: Hello,
    /// The listener's answer; the version in it is the one that both speak.
    pub welcome: Welcome,
    /// The connection to it.
    pub connection: Detached,
}

/// A caller that was refused.
#[derive(Debug)]
pub struct Refused {
    /// Where it is.
    pub address: SocketAddr,
    /// Why it was.
    pub cause: HandshakeError,
}

/// A bound address. Callers wait in the kernel until [`Self::serve`].
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address` (`host:port`; port 0 takes a free one). If the name has several addresses,
    /// the first that works.
    ///
    /// # Errors
    /// If none works: what is wrong with the first, and what to do.
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

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts and greets callers, from now until the result is dropped.
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

/// The connections that were accepted. Dropping it stops listening; connections that were taken
/// from it live on.
#[derive(Debug)]
pub struct Incoming {
    accepted: mpsc::Receiver<Accepted>,
    refused: Option<mpsc::Receiver<Refused>>,
}

impl Incoming {
    /// The callers that are refused from now on, for the first that asks. One that nobody takes in
    /// time is dropped; one that leaves without a word, or says nothing, is not among them.
    pub fn take_refused(&mut self) -> Option<mpsc::Receiver<Refused>> {
        self.refused.take()
    }

    /// Waits for the next one. Cancel safe.
    pub async fn next(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The accepting task ends before this only with its runtime: nobody will come any more.
            None => std::future::pending().await,
        }
    }
}

async fn accept_all(socket: TcpListener, door: Arc<Door>, max_handshakes: usize) {
    // Each is given up when its sender goes.
    let mut handshakes: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let (stream, address) = accept(&socket).await;
        handshakes.retain(|handshake| !handshake.is_closed());
        // A crowd that says nothing must not keep out those who do: a greeting takes no time.
        if handshakes.len() >= max_handshakes {
            handshakes.pop_front();
        }
        let (handshake, given_up) = oneshot::channel();
        handshakes.push_back(handshake);
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            tokio::select! {
                // The caller has been told what went wrong, and nothing here depends on it.
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
            // This one caller left before its turn.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(REST).await,
        }
    }
}

/// Decides who comes in.
struct Door {
    identity: Identity,
    options: ConnectionOptions,
    /// The bytes that wait for all clients.
    together: Together,
    /// See [`ListenOptions::clients_from`].
    clients_from: Option<watch::Receiver<bool>>,
    clients: Room,
    nodes: Room,
    out: mpsc::Sender<Accepted>,
    turned_away: mpsc::Sender<Refused>,
}

impl Door {
    /// Says who was refused, unless that is nobody's business: one that left, or said nothing, was
    /// only looking.
    fn tell(&self, address: SocketAddr, cause: HandshakeError) {
        if !matches!(cause, HandshakeError::Closed | HandshakeError::TimedOut(_) | HandshakeError::Io(_)) {
            // Of very many, some suffice.
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
                // It fails if nobody takes connections any more; then this one closes, too.
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

/// A bounded number of places. A place is free again when the connection's socket is closed.
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
