//! What arrives over connections, on its way to the driver.

use std::sync::atomic::{AtomicU64, Ordering};

use seriatim_host::Event;
use seriatim_model::{Peer, machine::ConnectionId};
use seriatim_net::{Accepted, Caller, Incoming, Lane, Receiver, Refusal, RefusalCode, Sender, open_message};
use seriatim_protocol::Message;
use tokio::sync::mpsc;

use crate::driver::{Arrival, lane_of};

/// Where the driver takes what arrives: what is urgent before everything else.
#[derive(Clone)]
pub(crate) struct Inboxes {
    pub(crate) usual: mpsc::Sender<Arrival>,
    pub(crate) urgent: mpsc::Sender<Arrival>,
}

/// Accepts connections until the driver is gone.
pub(crate) async fn accept(mut incoming: Incoming, inboxes: Inboxes) {
    let next_client = AtomicU64::new(1);
    loop {
        let accepted = tokio::select! {
            accepted = incoming.next() => accepted,
            () = inboxes.usual.closed() => return,
        };
        let Accepted { hello, connection, .. } = accepted;
        let peer = match hello.caller {
            Caller::Node { id, .. } => Peer::Node(id),
            Caller::Client { .. } => Peer::Client(ConnectionId(next_client.fetch_add(1, Ordering::Relaxed))),
        };
        tokio::spawn(read(peer, connection.receiver, connection.sender, inboxes.clone()));
    }
}

/// Passes on what arrives over one connection, until it ends.
async fn read(peer: Peer, mut receiver: Receiver, sender: Sender, inboxes: Inboxes) {
    // Nothing is sent to a node over a connection that it made.
    let answers = matches!(peer, Peer::Client(_)).then(|| Arrival::Accepted(peer, sender.clone()));
    if let Some(answers) = answers
        && inboxes.usual.send(answers).await.is_err()
    {
        return;
    }
    let mut lane = Lane::Bulk;
    loop {
        let frames = tokio::select! {
            received = receiver.receive() => match received {
                Ok(Some(frames)) => frames,
                _ => break,
            },
            // A node that is gone answers nobody, not even pings.
            () = inboxes.usual.closed() => return,
        };
        let mut events = Vec::with_capacity(frames.len());
        let mut urgent = vec![];
        let mut malformed = None;
        for frame in frames {
            match open_message::<Message>(frame) {
                Ok((log, from, to, message)) => {
                    let events = if lane_of(&message) == Lane::Urgent { &mut urgent } else { &mut events };
                    events.push(Event::Message { peer, log, from, to, message });
                }
                Err(cause) => malformed = Some(cause),
            }
        }
        if !urgent.is_empty() {
            lane = Lane::Urgent;
        }
        for (inbox, events) in [(&inboxes.urgent, urgent), (&inboxes.usual, events)] {
            if !events.is_empty() && inbox.send(Arrival::Batch(events)).await.is_err() {
                return;
            }
        }
        if let Some(cause) = malformed {
            let text =
                format!("a message could not be understood ({cause}); the two sides may differ in version");
            sender.refuse(&Refusal::new(RefusalCode::Malformed, text));
            break;
        }
    }
    let inbox = if lane == Lane::Urgent { inboxes.urgent } else { inboxes.usual };
    let _ = inbox.send(Arrival::Closed(peer, lane)).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seriatim_model::{Endpoint, LogId, NodeId, Record, SessionId, ViewNumber};
    use seriatim_net::{
        ClusterId, Hello, Identity, LinkEvent, Links, ListenOptions, Listener, VersionRange, message_frame,
    };
    use seriatim_protocol::control::Heartbeat;
    use seriatim_protocol::{control, shard};

    use super::*;

    const CLUSTER: ClusterId = ClusterId(1);
    const HERE: NodeId = NodeId(1);
    const THERE: NodeId = NodeId(2);

    /// Sends a message as the driver does.
    fn send(links: &mut Links, address: &str, message: impl Into<Message>) {
        let message = message.into();
        let frames = message_frame(LogId(1), Endpoint::Node, Endpoint::Node, &message).unwrap();
        links.send(HERE, lane_of(&message), Some(address), frames);
    }

    #[tokio::test]
    async fn a_heartbeat_does_not_wait_for_what_a_busy_node_has_not_taken_yet() {
        let listener = Listener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.address().to_string();
        let identity =
            Identity { cluster: CLUSTER, node: HERE, incarnation: 1, versions: VersionRange::OURS };
        let incoming = listener.serve(identity, ListenOptions::default());
        // The driver takes nothing of what is usual.
        let (usual, _not_taken) = mpsc::channel(2);
        let (urgent, mut taken) = mpsc::channel(2);
        tokio::spawn(accept(incoming, Inboxes { usual: usual.clone(), urgent }));

        let (events, mut links_events) = mpsc::channel(16);
        let hello = Hello::node(CLUSTER, THERE, 1, "127.0.0.1:1");
        let mut links = Links::new(hello, Default::default(), events);
        let record = Record::new(&[0; 1 << 20], 0);
        let (view, session) = (ViewNumber(1), SessionId(1));
        for first in 0..32 {
            let records = vec![record.clone()];
            send(&mut links, &address, shard::Message::Submit { view, session, lowest: 0, first, records });
        }
        let arrives = async {
            while usual.capacity() > 0 {
                if let Ok(LinkEvent::Dialled(node, lane, outcome)) = links_events.try_recv() {
                    links.dialled(node, lane, outcome);
                }
                tokio::task::yield_now().await;
            }
            let beat = Heartbeat { life: 1, count: 1, heard_life: 0, heard_count: 0 };
            send(&mut links, &address, control::Message::Heartbeat(beat));
            let Some(LinkEvent::Dialled(node, lane, outcome)) = links_events.recv().await else {
                panic!("a connection for heartbeats is made");
            };
            links.dialled(node, lane, outcome);
            taken.recv().await
        };
        let arrived = tokio::time::timeout(Duration::from_secs(10), arrives).await.unwrap();
        let Some(Arrival::Batch(events)) = arrived else { panic!("a heartbeat arrives") };
        assert!(matches!(
            events[..],
            [Event::Message { message: Message::Control(control::Message::Heartbeat(_)), .. }]
        ));
        // Nor does the news that the other node is gone.
        drop(links);
        let closed = tokio::time::timeout(Duration::from_secs(10), taken.recv()).await.unwrap();
        assert!(matches!(closed, Some(Arrival::Closed(Peer::Node(THERE), Lane::Urgent))));
    }
}
