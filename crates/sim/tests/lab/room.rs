//! Remains of dead clients do not take room forever.

use std::time::Duration;

use seriatim_model::{Endpoint, LogConfig, NodeId, Order, Position, Record, SessionId, ShardId, ViewNumber};
use seriatim_protocol::parts::appending::{AppendSpec, Reply};
use seriatim_protocol::{erwin, shard};

use crate::lab::{Lab, OPERATOR};
use crate::programs::{Answer, Ask, Program};
use crate::spent::Pace;

const PACE: Pace = Pace { delay: 1_000_000, sync: 0 };
const APPENDER: u64 = 1;

const CLIENTS: u64 = 100;
const RECORD_BYTES: usize = 1000;

fn append_and_trim(lab: &mut Lab, replicas: &[NodeId], view: ViewNumber) {
    lab.told.clear();
    lab.append(APPENDER, 1, AppendSpec { sync: true, ..AppendSpec::default() });
    lab.wait(Duration::from_millis(200));
    let told = lab.told(APPENDER, 1).map(|told| &told.answer);
    let Some(&Answer::Appending(Reply::Appended { position: Some(position), .. })) = told else {
        panic!("{told:?}")
    };
    for node in replicas {
        let trim = shard::Message::Trim { request: 1, view, position };
        lab.say(OPERATOR, *node, Endpoint::Shard(ShardId(0)), lab.log(), trim.into());
    }
    lab.wait(Duration::from_millis(200));
}

#[test]
fn clients_that_died_before_they_named_their_records_take_no_room() {
    let mut lab = Lab::new(PACE);
    let entry = lab.open_log(LogConfig { order: Order::ErwinSt, ..LogConfig::default() });
    lab.start(APPENDER, Program::appender(&entry, 7));
    lab.ask(APPENDER, 0, Ask::OpenSession);
    lab.wait(Duration::from_millis(100));
    let view = entry.view.expect("it has a view");
    let replicas: Vec<NodeId> = view.shards[0].replicas.iter().map(|member| member.node).collect();
    let session = |client| SessionId::new(Position(0), 1000 + client);
    for client in 0..CLIENTS {
        for node in &replicas {
            let records = vec![Record::new(&[b'x'; RECORD_BYTES], 0)];
            let put =
                erwin::ShardMessage::Put { view: view.number, session: session(client), first: 0, records };
            lab.say(OPERATOR, *node, Endpoint::Shard(ShardId(0)), entry.id, put.into());
        }
    }
    lab.wait(Duration::from_millis(100));
    append_and_trim(&mut lab, &replicas, view.number);
    let left_behind = CLIENTS as usize * RECORD_BYTES;
    for node in &replicas {
        assert!(lab.bytes_of_records(*node) > left_behind, "the names may still come");
    }

    lab.wait(Duration::from_secs(3));
    append_and_trim(&mut lab, &replicas, view.number);
    for node in &replicas {
        let bytes = lab.bytes_of_records(*node);
        assert!(bytes < left_behind / 5, "node {node} still has {bytes} bytes");
    }

    // Every sequencing replica rejects a name that arrives this late.
    lab.received.clear();
    for member in &view.sequencers {
        let entries = vec![seriatim_protocol::parts::Content::Put { shard: ShardId(0), bytes: 0 }];
        let append =
            erwin::Message::Append { view: view.number, session: session(0), first: 0, lowest: 0, entries };
        lab.say(OPERATOR, member.node, Endpoint::Sequencer, entry.id, append.into());
    }
    lab.wait(Duration::from_millis(10));
    let expired = seriatim_protocol::Message::from(erwin::Message::Expired { session: session(0) });
    let answers = lab.received.iter().filter(|message| **message == expired).count();
    assert_eq!(answers, view.sequencers.len());
}
