//! A log for the tests of client machines.

use seriatim_model::{
    Incarnation, LogConfig, LogId, Member, NodeId, Placement, Position, ShardId, ShardMembers, View,
    ViewHistory, ViewNumber,
};

use super::{EndedSessions, LogEntry};

/// Sequencing replicas on nodes 1 and 2; two shards with primaries on nodes 10 and 11, and backups
/// on node 20.
pub(crate) fn view() -> View {
    let member = |node| Member { node: NodeId(node), incarnation: Incarnation(7) };
    let members = |shard| ShardMembers {
        shard: ShardId(shard),
        begins: Position::ZERO,
        replicas: vec![member(10 + shard), member(20)],
    };
    View {
        number: ViewNumber(3),
        sequencers: vec![member(1), member(2)],
        leader: NodeId(1),
        shards: vec![members(0), members(1)],
        retired: vec![],
        placement: Placement::new(vec![ShardId(0), ShardId(1)], 1),
        first: Position::ZERO,
        start: Position::ZERO,
    }
}

/// Assigned nodes: 1 and 2 for sequencing, 2 and 3 for the shard.
pub(crate) fn entry(view: Option<View>) -> LogEntry {
    LogEntry {
        id: LogId(9),
        name: "orders".into(),
        config: LogConfig::default(),
        sequencers: vec![NodeId(1), NodeId(2)],
        shards: vec![vec![NodeId(2), NodeId(3)]],
        leaving: vec![],
        version: 1,
        claimed: ViewNumber(3),
        claimant: 0,
        view,
        history: ViewHistory::default(),
        unavailable: None,
        ended: EndedSessions::default(),
        pins: vec![],
    }
}
