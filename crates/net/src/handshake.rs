//! The handshake, from both sides. Every step ends with an answer, an error or the deadline.

use std::io;
use std::time::{Duration, Instant};

use seriatim_model::NodeId;
use seriatim_model::limits::Limits;
use seriatim_model::wire::WireError;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connection::{Connection, Detached};
use crate::frame::{Frame, FrameError, FrameKind, FrameTooLarge};
use crate::hello::{
    Beating, Beats, Caller, ClusterId, Greeting, Hello, Lane, Refusal, RefusalCode, VersionRange, Welcome,
};
use crate::intake::Intake;
use crate::limits::{ConnectionOptions, LINGER_FOR};
use crate::queue::Together;

/// Why a handshake failed. No message was sent.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer missed the deadline.
    #[error("the peer did not answer within {0:?}; is it a Seriatim node, and is it healthy?")]
    TimedOut(Duration),
    /// The peer closed the connection before the end.
    #[error("the peer closed the connection without a word; is it a Seriatim node?")]
    Closed,
    /// The peer sent a malformed frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer sent a frame of an unexpected kind.
    #[error("the peer sent a {0:?} frame during the handshake; upgrade the older side")]
    Unexpected(FrameKind),
    /// The contents of the peer's frame are malformed.
    #[error("the peer's greeting could not be read ({0}); upgrade the older side")]
    Malformed(#[from] WireError),
    /// The peer refused.
    #[error(transparent)]
    Refused(Refusal),
    /// The two ends belong to different clusters.
    #[error("{}", wrong_cluster(*.ours, *.theirs))]
    WrongCluster {
        /// This side's cluster.
        ours: ClusterId,
        /// The peer's cluster. A node that names none is refused, too.
        theirs: Option<ClusterId>,
    },
    /// The two ends support no common version.
    #[error("the peer speaks version {theirs}, this side {ours}; upgrade the older one")]
    VersionUnsupported {
        /// This side's versions.
        ours: VersionRange,
        /// The peer's versions.
        theirs: VersionRange,
    },
    /// The nodes' heartbeat settings conflict.
    #[error(
        "node {node} has {ours}, and node {caller} has {theirs}: one would count the other as down; \
         heartbeat_every_ms times heartbeats_missed of each node must be at least twice heartbeat_every_ms of any other"
    )]
    BeatsDiffer {
        /// This node.
        node: NodeId,
        /// This node's heartbeats.
        ours: Beats,
        /// The other node.
        caller: NodeId,
        /// The other node's heartbeats.
        theirs: Beats,
    },
    /// This side's hello is too long.
    #[error(transparent)]
    TooLarge(#[from] FrameTooLarge),
    /// Too many connections of this kind.
    #[error("{0}")]
    Full(String),
    /// The operating system reports a failure.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

fn wrong_cluster(ours: ClusterId, theirs: Option<ClusterId>) -> String {
    match theirs {
        Some(theirs) => {
            format!(
                "this side is of cluster {ours}, the peer of {theirs}; check the address and the configuration"
            )
        }
        None => format!("a node must say which cluster it belongs to; this side is of cluster {ours}"),
    }
}

impl HandshakeError {
    /// The refusal to send to the peer. `None` if the peer would not understand it.
    fn refusal(&self) -> Option<Refusal> {
        let code = match self {
            Self::TimedOut(after) => {
                let text = format!("nothing was said for {after:?}; a Seriatim client says Hello first");
                return Some(Refusal::new(RefusalCode::TimedOut, text));
            }
            Self::WrongCluster { ours, theirs } => {
                let text = match theirs {
                    Some(theirs) => format!(
                        "this node is of cluster {ours}, not {theirs}; check the address and the configuration"
                    ),
                    None => self.to_string(),
                };
                return Some(Refusal::new(RefusalCode::WrongCluster, text));
            }
            Self::VersionUnsupported { ours, theirs } => {
                let text = format!("this node speaks version {ours}, not {theirs}; upgrade the older side");
                return Some(Refusal::new(RefusalCode::VersionUnsupported, text));
            }
            Self::Frame(FrameError::BadMagic)
            | Self::Closed
            | Self::Refused(_)
            | Self::TooLarge(_)
            | Self::Io(_) => {
                return None;
            }
            Self::Frame(FrameError::UnsupportedVersion { .. }) => RefusalCode::VersionUnsupported,
            Self::Full(_) => RefusalCode::Full,
            Self::BeatsDiffer { .. } => RefusalCode::BeatsDiffer,
            Self::Frame(_) | Self::Unexpected(_) | Self::Malformed(_) => RefusalCode::Malformed,
        };
        Some(Refusal::new(code, self.to_string()))
    }
}

/// Identity of the accepting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Cluster id.
    pub cluster: ClusterId,
    /// Node number.
    pub node: NodeId,
    /// Process incarnation.
    pub incarnation: u64,
    /// Supported versions; [`VersionRange::OURS`] except in tests.
    pub versions: VersionRange,
    /// Heartbeat settings.
    pub beats: Beats,
    /// Start time. Nodes that started later must have compatible heartbeats.
    pub started: Instant,
}

impl Identity {
    /// Identity of a node that starts now.
    #[must_use]
    pub fn new(cluster: ClusterId, node: NodeId, incarnation: u64, limits: &Limits) -> Self {
        let (versions, beats, started) = (VersionRange::OURS, Beats::of(limits), Instant::now());
        Self { cluster, node, incarnation, versions, beats, started }
    }
}

/// Sends `hello` to the node at the other end, and waits for the answer.
///
/// # Errors
/// See [`HandshakeError`]; the stream is closed.
pub async fn initiate(
    stream: TcpStream,
    hello: &Hello,
    options: &ConnectionOptions,
) -> Result<(Welcome, Connection), HandshakeError> {
    within(options.handshake_for, async {
        let mut stranger = Stranger::new(stream)?;
        stranger.say(hello).await?;
        let welcome: Welcome = stranger.greeting().await?;
        check_welcome(hello, &welcome)?;
        Ok((welcome, stranger.admit(options)))
    })
    .await
}

fn check_welcome(hello: &Hello, welcome: &Welcome) -> Result<(), HandshakeError> {
    if let Some(ours) = hello.cluster.filter(|ours| *ours != welcome.cluster) {
        return Err(HandshakeError::WrongCluster { ours, theirs: Some(welcome.cluster) });
    }
    let theirs = VersionRange { min: welcome.version, max: welcome.version };
    if hello.versions.common(theirs).is_none() {
        return Err(HandshakeError::VersionUnsupported { ours: hello.versions, theirs });
    }
    Ok(())
}

/// Reads and checks a caller's hello. A refused caller receives the reason.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn greet(
    stream: TcpStream,
    identity: &Identity,
    options: &ConnectionOptions,
) -> Result<Guest, HandshakeError> {
    let mut stranger = Stranger::new(stream)?;
    let outcome = within(options.handshake_for, async {
        let hello: Hello = stranger.greeting().await?;
        let version = check_hello(identity, &hello)?;
        Ok((hello, version))
    })
    .await;
    match outcome {
        Ok((hello, version)) => {
            Ok(Guest { stranger, hello, version, identity: *identity, options: options.clone() })
        }
        Err(error) => {
            stranger.turn_away(&error).await;
            Err(error)
        }
    }
}

fn check_hello(identity: &Identity, hello: &Hello) -> Result<u16, HandshakeError> {
    let (ours, theirs) = (identity.versions, hello.versions);
    let version = ours.common(theirs).ok_or(HandshakeError::VersionUnsupported { ours, theirs })?;
    let anywhere = matches!(hello.caller, Caller::Client { .. }) && hello.cluster.is_none();
    if !anywhere && hello.cluster != Some(identity.cluster) {
        return Err(HandshakeError::WrongCluster { ours: identity.cluster, theirs: hello.cluster });
    }
    check_beats(identity, hello)?;
    Ok(version)
}

/// Refuses a node that started later with conflicting heartbeats: its settings are the changed
/// ones, and this node may be needed. A node that started earlier may connect; it refuses this one.
fn check_beats(identity: &Identity, hello: &Hello) -> Result<(), HandshakeError> {
    let (Caller::Node { id, .. }, Lane::Heartbeats) = (&hello.caller, hello.lane) else { return Ok(()) };
    let Some(Beating { beats: theirs, up_ms }) = hello.beats else { return Ok(()) };
    let (node, ours) = (identity.node, identity.beats);
    if ours.bears(theirs) || Duration::from_millis(up_ms) > identity.started.elapsed() {
        return Ok(());
    }
    Err(HandshakeError::BeatsDiffer { node, ours, caller: *id, theirs })
}

/// A caller that waits for the answer to its hello.
#[derive(Debug)]
pub struct Guest {
    stranger: Stranger,
    hello: Hello,
    version: u16,
    identity: Identity,
    options: ConnectionOptions,
}

impl Guest {
    pub(crate) fn count_with(&mut self, together: Together) {
        self.options.together = Some(together);
    }

    /// The caller's hello.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Accepts the caller. `keep`, its place among the connections, lives as long as the socket.
    ///
    /// # Errors
    /// If the answer could not be written.
    pub async fn welcome(
        mut self,
        keep: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Result<(Hello, Welcome, Detached), HandshakeError> {
        let welcome = Welcome {
            version: self.version,
            cluster: self.identity.cluster,
            node: self.identity.node,
            node_incarnation: self.identity.incarnation,
        };
        within(self.options.handshake_for, self.stranger.say(&welcome)).await?;
        let connection = self.stranger.detach(self.options, keep)?;
        Ok((self.hello, welcome, connection))
    }

    /// Refuses the caller, with the reason.
    pub async fn refuse(mut self, error: &HandshakeError) {
        self.stranger.turn_away(error).await;
    }
}

#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    intake: Intake,
}

impl Stranger {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, intake: Intake::for_stranger() })
    }

    fn admit(mut self, options: &ConnectionOptions) -> Connection {
        self.intake.admit();
        Connection::start(self.stream, self.intake, options, None)
    }

    fn detach(
        mut self,
        options: ConnectionOptions,
        keep: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> io::Result<Detached> {
        self.intake.admit();
        Detached::new(self.stream, self.intake, options, keep)
    }

    async fn greeting<G: Greeting>(&mut self) -> Result<G, HandshakeError> {
        let frame = self.frame().await?;
        match frame.kind {
            kind if kind == G::KIND => Ok(G::read(frame.body)?),
            FrameKind::Refusal => Err(HandshakeError::Refused(Refusal::read(frame.body)?)),
            kind => Err(HandshakeError::Unexpected(kind)),
        }
    }

    async fn frame(&mut self) -> Result<Frame, HandshakeError> {
        loop {
            if let Some(frame) = self.intake.next_frame()? {
                return Ok(frame);
            }
            if self.intake.read(&mut self.stream).await? == 0 {
                self.intake.finish()?;
                return Err(HandshakeError::Closed);
            }
        }
    }

    async fn say<G: Greeting>(&mut self, greeting: &G) -> Result<(), HandshakeError> {
        Ok(self.stream.write_all(&greeting.chunks()?.concat()).await?)
    }

    /// Sends the refusal, and gives the peer a moment to read it.
    async fn turn_away(&mut self, error: &HandshakeError) {
        let Some(refusal) = error.refusal() else { return };
        let told = timeout(LINGER_FOR, async {
            self.say(&refusal).await?;
            self.stream.shutdown().await?;
            tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await?;
            Ok::<_, HandshakeError>(())
        });
        let _ = told.await;
    }
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    timeout(limit, step).await.unwrap_or(Err(HandshakeError::TimedOut(limit)))
}
