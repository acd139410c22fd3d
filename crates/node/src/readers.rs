//! Passes arrivals over connections to the driver.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_host::Event;
use seriatim_model::{Peer, machine::ConnectionId};
use seriatim_net::{
    Accepted, Caller, Connection, Incoming, Lane, Receiver, Refusal, RefusalCode, Refused, Sender,
    open_message,
};
use seriatim_protocol::Message;
use tokio::sync::mpsc;

use crate::driver::Arrival;
use crate::pulse::Connected;

#[derive(Clone)]
pub(crate) struct Doors {
    pub(crate) clients: mpsc::Sender<Arrival>,
    pub(crate) nodes: mpsc::Sender<Arrival>,
    /// Connections for heartbeats.
    pub(crate) pulse: mpsc::Sender<Connected>,
}

pub(crate) async fn accept(mut incoming: Incoming, doors: Doors) {
    if let Some(refused) = incoming.take_refused() {
        tokio::spawn(tell_refused(refused, doors.clients.clone()));
    }
    let next_client = AtomicU64::new(1);
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = doors.clients.closed() => return,
        };
        let Accepted { hello, connection, .. } = accepted;
        let (peer, door) = match (hello.caller, hello.lane) {
            (Caller::Node { id, .. }, Lane::Heartbeats) => {
                let _ = doors.pulse.send(Connected(id, connection)).await;
                continue;
            }
            (Caller::Node { id, .. }, Lane::Bulk) => (Peer::Node(id), &doors.nodes),
            (Caller::Client { .. }, _) => {
                (Peer::Client(ConnectionId(next_client.fetch_add(1, Ordering::Relaxed))), &doors.clients)
            }
        };
        // If attaching fails, the connection closes and the other end connects again.
        if let Ok(Connection { receiver, sender }) = connection.attach() {
            tokio::spawn(read(peer, receiver, sender, door.clone()));
        }
    }
}

/// Reports refused connections to the driver, at the driver's pace.
async fn tell_refused(mut refused: mpsc::Receiver<Refused>, driver: mpsc::Sender<Arrival>) {
    while let Some(Refused { address, cause }) = refused.recv().await {
        let arrival = Arrival::Refused(address.ip().to_string(), cause.to_string());
        if driver.send(arrival).await.is_err() {
            return;
        }
    }
}

async fn read(peer: Peer, mut receiver: Receiver, sender: Sender, driver: mpsc::Sender<Arrival>) {
    // Only clients get answers over their connection: to a node, this node sends over its own
    // connection.
    let answers = matches!(peer, Peer::Client(_)).then(|| Arrival::Accepted(peer, sender.clone()));
    if let Some(answers) = answers
        && driver.send(answers).await.is_err()
    {
        return;
    }
    loop {
        let frames = tokio::select! {
            received = receiver.receive() => match received {
                Ok(Some(frames)) => frames,
                _ => break,
            },
            // The driver abandoned the client, and answers no further message.
            _ = sender.closed() => break,
            // An ended node answers nothing, not even pings.
            () = driver.closed() => return,
        };
        let mut events = Vec::with_capacity(frames.len());
        let mut malformed = None;
        for frame in frames {
            match open_message::<Message>(frame) {
                Ok((log, from, to, message)) => events.push(Event::Message { peer, log, from, to, message }),
                Err(cause) => malformed = Some(cause),
            }
        }
        if !events.is_empty() && driver.send(Arrival::Batch(events)).await.is_err() {
            return;
        }
        if let Some(cause) = malformed {
            let text =
                format!("a message could not be understood ({cause}); the two sides may differ in version");
            sender.refuse(&Refusal::new(RefusalCode::Malformed, text));
            break;
        }
    }
    let _ = driver.send(Arrival::Closed(peer)).await;
}
