//! A crowd of clients that waits for a view.

use std::collections::BTreeMap;
use std::time::Duration;

use seriatim_model::{Address, ConnectionId, Time, ViewNumber};
use seriatim_protocol::control::message::NEWS;
use seriatim_protocol::control::{LogEntry, Message, NodeAddress};
use seriatim_protocol::parts::Lookup;

use crate::scenarios::with_view;
use crate::talk::{NODES, Register, creation, itself};

const CLIENTS: u64 = 200;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Clients of all nodes that wait for a view of one log, and ask as the machines do.
pub(crate) struct Crowd {
    clients: BTreeMap<Address, Lookup>,
    pub(crate) asked: u64,
}

impl Crowd {
    pub(crate) fn gather(register: &mut dyn Register) -> (Self, LogEntry) {
        for node in NODES {
            let address = format!("node-{node}:1");
            register.ask(node, itself(node), Message::Join { node: NodeAddress { node, address } });
        }
        hear(register, |message| matches!(message, Message::Cluster { nodes } if nodes.len() == NODES.len()));
        register.ask(NODES[0], itself(NODES[0]), creation(7, "orders"));
        let Message::Done { log, .. } = hear(register, |message| matches!(message, Message::Done { .. }))
        else {
            panic!("it is created")
        };
        register.ask(NODES[0], itself(NODES[0]), Message::Get { log });
        let Message::Current { entry } = hear(register, |message| matches!(message, Message::Current { .. }))
        else {
            panic!("it was created")
        };
        let now = time(register);
        let client = |number: u64| {
            let node = NODES[(number % NODES.len() as u64) as usize];
            let mut lookup = Lookup::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            lookup.ask(now);
            (Address::Client(ConnectionId(node.0.into()), number), lookup)
        };
        (Self { clients: (0..CLIENTS).map(client).collect(), asked: 0 }, entry)
    }

    pub(crate) fn wait(&mut self, register: &mut dyn Register, wait: Duration) {
        let end = time(register) + wait;
        while time(register) < end {
            let now = time(register);
            for (address, lookup) in &mut self.clients {
                if lookup.comes_due(now, true) {
                    let Address::Client(connection, _) = *address else { unreachable!("they are clients") };
                    let through = NODES[connection.0 as usize - 1];
                    let lookup = Message::Lookup { request: NEWS, name: "orders".into() };
                    register.ask(through, *address, lookup);
                    self.asked += 1;
                }
            }
            let next = self.clients.values().filter_map(Lookup::deadline).min();
            let until = next.unwrap_or(end).min(end).since(Time::ZERO);
            while let Some((to, message)) = register.hear(until) {
                if matches!(to, Address::Client(..)) {
                    assert!(view_in(&message).is_none(), "nothing changed: {message:?}");
                }
            }
        }
    }

    /// Registers a view. Returns the time until the last client hears of it without asking.
    pub(crate) fn is_told(&self, register: &mut dyn Register, entry: &LogEntry, view: u64) -> Duration {
        let began = register.now();
        let entry = with_view(entry.clone(), view);
        register.ask(NODES[0], itself(NODES[0]), Message::CompareAndSet { entry });
        let mut waiting: Vec<Address> = self.clients.keys().copied().collect();
        while !waiting.is_empty() {
            let heard = register.hear(began + TIMEOUT);
            let (to, message) = heard.unwrap_or_else(|| panic!("{} are not told", waiting.len()));
            if view_in(&message) == Some(ViewNumber(view)) {
                waiting.retain(|client| *client != to);
            }
        }
        register.now() - began
    }
}

fn time(register: &dyn Register) -> Time {
    Time::ZERO + register.now()
}

fn hear(register: &mut dyn Register, fits: impl Fn(&Message) -> bool) -> Message {
    let end = register.now() + TIMEOUT;
    loop {
        let (_, message) = register.hear(end).expect("it is said in time");
        if fits(&message) {
            return message;
        }
    }
}

fn view_in(message: &Message) -> Option<ViewNumber> {
    match message {
        Message::Found { entry, .. } => entry.view.as_ref().map(|view| view.number),
        _ => None,
    }
}
