//! A relay that forgets connections, as a firewall does that lost its state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Passes connections on to a node. A connection that the relay forgot stays open and passes
/// nothing; new ones work.
pub(crate) struct Relay {
    pub(crate) address: String,
    /// The switch of each connection, in the order in which they were made.
    forgets: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Relay {
    /// Begins to listen, on a free port if that of `listen` is 0.
    pub(crate) fn start(listen: &str, to: String) -> Self {
        let listener = std::net::TcpListener::bind(listen).expect("the address is free");
        listener.set_nonblocking(true).expect("it can be asked");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let address = listener.local_addr().expect("it listens").to_string();
        let relay = Self { address, forgets: Arc::default() };
        let all = Arc::clone(&relay.forgets);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A node that is not there yet refuses the connection, and so does the relay.
                let Ok(node) = TcpStream::connect(&to).await else { continue };
                let forgets = Arc::new(AtomicBool::new(false));
                all.lock().expect("no thread panicked").push(Arc::clone(&forgets));
                let (from_client, to_client) = client.into_split();
                let (from_node, to_node) = node.into_split();
                tokio::spawn(pass(from_client, to_node, Arc::clone(&forgets)));
                tokio::spawn(pass(from_node, to_client, forgets));
            }
        });
        relay
    }

    /// Forgets the connections that stand, but for the first `but`.
    pub(crate) fn forget_after(&self, but: usize) {
        let forgets = self.forgets.lock().expect("no thread panicked");
        forgets.iter().skip(but).for_each(|forgets| forgets.store(true, Ordering::SeqCst));
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.forgets.lock().expect("no thread panicked").len()
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, forgets: Arc<AtomicBool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read) = from.read(&mut bytes).await {
        if forgets.load(Ordering::SeqCst) {
            if read == 0 {
                // The end of one side does not arrive at the other.
                return std::future::pending().await;
            }
        } else if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}
