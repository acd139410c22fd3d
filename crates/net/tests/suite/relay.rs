//! A relay that forgets connections, as a firewall that lost its state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A forgotten connection stays open and passes nothing; new ones work.
pub(crate) struct Relay {
    pub(crate) address: String,
    forgets: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Relay {
    /// Listens; port 0 takes a free one.
    pub(crate) fn start(listen: &str, to: String) -> Self {
        let listener = std::net::TcpListener::bind(listen).expect("the address is free");
        listener.set_nonblocking(true).expect("it can be asked");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let address = listener.local_addr().expect("it listens").to_string();
        let relay = Self { address, forgets: Arc::default() };
        let all = Arc::clone(&relay.forgets);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Without a node, the relay drops the connection.
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

    pub(crate) fn forget_after(&self, but: usize) {
        let forgets = self.forgets.lock().expect("no thread panicked");
        forgets.iter().skip(but).for_each(|forgets| forgets.store(true, Ordering::SeqCst));
    }

    pub(crate) fn connections(&self) -> usize {
        self.forgets.lock().expect("no thread panicked").len()
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, forgets: Arc<AtomicBool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read) = from.read(&mut bytes).await {
        if forgets.load(Ordering::SeqCst) {
            if read == 0 {
                // The end of one side does not reach the other.
                return std::future::pending().await;
            }
        } else if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}
