//! What arrives over connections, on its way to the driver.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_host::Event;
use seriatim_model::{Peer, machine::ConnectionId};
use seriatim_net::{Accepted, Caller, Incoming, Receiver, Refusal, RefusalCode, Sender, open_message};
use seriatim_protocol::Message;
use tokio::sync::mpsc;

use crate::driver::Arrival;

/// Accepts connections until the driver is gone.
pub(crate) async fn accept(mut incoming: Incoming, inbox: mpsc::Sender<Arrival>) {
    let next_client = AtomicU64::new(1);
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = inbox.closed() => return,
        };
        let Accepted { hello, connection, .. } = accepted;
        let peer = match hello.caller {
            Caller::Node { id, .. } => Peer::Node(id),
            Caller::Client { .. } => Peer::Client(ConnectionId(next_client.fetch_add(1, Ordering::Relaxed))),
        };
        let sender = connection.sender;
        if inbox.send(Arrival::Accepted(peer, sender.clone())).await.is_err() {
            return;
        }
        tokio::spawn(read(peer, connection.receiver, sender, inbox.clone()));
    }
}

/// Passes on what arrives over one connection, until it ends.
async fn read(peer: Peer, mut receiver: Receiver, sender: Sender, inbox: mpsc::Sender<Arrival>) {
    loop {
        let frames = tokio::select! {
            received = receiver.receive() => match received {
                Ok(Some(frames)) => frames,
                _ => break,
            },
            // A node that is gone answers nobody, not even pings.
            () = inbox.closed() => return,
        };
        let mut events = Vec::with_capacity(frames.len());
        let mut malformed = None;
        for frame in frames {
            match open_message::<Message>(frame) {
                Ok((log, from, to, message)) => events.push(Event::Message { peer, log, from, to, message }),
                Err(cause) => malformed = Some(cause),
            }
        }
        if inbox.send(Arrival::Batch(events)).await.is_err() {
            return;
        }
        if let Some(cause) = malformed {
            let text =
                format!("a message could not be understood ({cause}); the two sides may differ in version");
            sender.refuse(&Refusal::new(RefusalCode::Malformed, text));
            break;
        }
    }
    let _ = inbox.send(Arrival::Closed(peer)).await;
}
