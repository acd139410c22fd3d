//! Other logs, created and deleted. After a confirmed deletion a log is permanently gone from every
//! node.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use seriatim_model::{LogConfig, LogId, ShardId};
use seriatim_protocol::{Message, control};

use super::cluster::Cluster;
use super::frames::open;
use super::scene::{Happening, Scene};

/// Wait before a request is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// First request number, distinct from the founder's other requests.
const FIRST_REQUEST: u64 = 1 << 50;

#[derive(Clone, Copy, Debug, Default)]
struct Fleeting {
    /// Its id, once its creation is confirmed.
    log: Option<LogId>,
    is_unwanted: bool,
    /// Whether its deletion is confirmed.
    is_gone: bool,
}

/// Logs that a run creates and later deletes, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet(BTreeMap<u64, Fleeting>);

impl Fleet {
    pub(super) fn schedule(cluster: &mut Cluster) {
        for (number, (comes, goes)) in cluster.scene.plan.fleeting.clone().into_iter().enumerate() {
            let number = number as u64;
            cluster.scene.schedule(cluster.scene.began + comes, Happening::LogComes(number));
            cluster.scene.schedule(cluster.scene.began + goes, Happening::LogGoes(number));
        }
    }

    /// Repeats the request until the log exists.
    pub(super) fn log_comes(&mut self, cluster: &mut Cluster, number: u64) {
        let Some(message) = self.comes(number, &cluster.scene.plan.config) else { return };
        cluster.ask_register(message);
        cluster.scene.schedule(cluster.scene.now + AGAIN_AFTER, Happening::LogComes(number));
    }

    /// Repeats the request, once the log exists, until its deletion is confirmed.
    pub(super) fn log_goes(&mut self, cluster: &mut Cluster, number: u64) {
        let Some(message) = self.goes(number) else { return };
        message.into_iter().for_each(|message| cluster.ask_register(message));
        cluster.scene.schedule(cluster.scene.now + AGAIN_AFTER, Happening::LogGoes(number));
    }

    pub(super) fn hears(&mut self, scene: &mut Scene, bytes: &Bytes) {
        let (.., message) = open(bytes.clone()).expect("what was encoded is decoded");
        let Message::Control(control::Message::Done { request, log }) = message else { return };
        scene.coverage.deletions += u64::from(self.confirmed(request, log));
    }

    pub(super) fn look_at_register(&self, cluster: &mut Cluster) {
        let back = self.gone().find(|log| cluster.entries().any(|entry| entry.id == *log));
        if let Some(log) = back {
            cluster.scene.note_problem(format!("log {log} was deleted, and the register knows it again"));
            cluster.scene.is_over = true;
        }
    }

    pub(super) fn remains(&self, cluster: &Cluster) -> Vec<String> {
        let mut remains: Vec<String> = self.unwanted().collect();
        for log in self.gone() {
            let directory = format!("logs/{:016x}/", log.0);
            for (id, node) in cluster.truth().nodes {
                let has_role = node.sequencer(log).is_some()
                    || (0..cluster.scene.plan.config.shards)
                        .any(|shard| node.replica(log, ShardId(shard)).is_some());
                let files = node.disk.files().into_iter().filter(|file| file.starts_with(&directory)).count();
                if has_role || files > 0 {
                    remains.push(format!("node {id} has {files} files of log {log}, role {has_role}"));
                }
            }
        }
        remains
    }

    /// The request to create a log. `None` once it exists.
    fn comes(&mut self, number: u64, config: &LogConfig) -> Option<control::Message> {
        if self.0.entry(number).or_default().log.is_some() {
            return None;
        }
        let (request, name) = (FIRST_REQUEST + 2 * number, name_of(number));
        Some(control::Message::Create { request, name, config: config.clone() })
    }

    /// Marks a log for deletion. `None` once it is deleted; otherwise the request to send, if the
    /// log exists.
    fn goes(&mut self, number: u64) -> Option<Option<control::Message>> {
        let fleeting = self.0.entry(number).or_default();
        fleeting.is_unwanted = true;
        let delete = |log| {
            let (request, name) = (FIRST_REQUEST + 2 * number + 1, name_of(number));
            control::Message::Delete { request, name, log }
        };
        (!fleeting.is_gone).then(|| fleeting.log.map(delete))
    }

    /// Takes an answer of the register. Returns whether it newly confirms a deletion.
    fn confirmed(&mut self, request: u64, log: LogId) -> bool {
        let question = request.checked_sub(FIRST_REQUEST);
        let known = question.and_then(|question| Some((question, self.0.get_mut(&(question / 2))?)));
        match known {
            Some((question, fleeting)) if question % 2 == 0 => fleeting.log = Some(log),
            Some((_, fleeting)) => return !std::mem::replace(&mut fleeting.is_gone, true),
            None => {}
        }
        false
    }

    fn gone(&self) -> impl Iterator<Item = LogId> {
        self.0.values().filter(|fleeting| fleeting.is_gone).filter_map(|fleeting| fleeting.log)
    }

    fn unwanted(&self) -> impl Iterator<Item = String> {
        let unwanted = self.0.iter().filter(|(_, fleeting)| fleeting.is_unwanted && !fleeting.is_gone);
        unwanted.map(|(number, fleeting)| format!("{} is not deleted: {fleeting:?}", name_of(*number)))
    }
}

fn name_of(number: u64) -> String {
    format!("fleeting-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_asked_for_until_it_is_there_and_told_to_go_until_it_is_gone() {
        let (mut fleet, config) = (Fleet::default(), LogConfig::default());
        let request = |message: Option<control::Message>| match message {
            Some(control::Message::Create { request, .. } | control::Message::Delete { request, .. }) => {
                request
            }
            other => panic!("{other:?}"),
        };
        let create = request(fleet.comes(3, &config));
        assert_eq!(request(fleet.comes(3, &config)), create, "it is not confirmed");
        assert_eq!(fleet.goes(3).map(|message| message.is_none()), Some(true), "it is not there yet");
        assert!(!fleet.confirmed(create, LogId(9)));
        assert!(fleet.comes(3, &config).is_none());
        let delete = request(fleet.goes(3).flatten());
        assert_eq!((fleet.unwanted().count(), fleet.gone().count()), (1, 0));
        assert!(fleet.confirmed(delete, LogId(9)) && !fleet.confirmed(delete, LogId(9)), "it counts once");
        assert!(fleet.goes(3).is_none());
        assert_eq!(fleet.gone().collect::<Vec<_>>(), [LogId(9)]);
        assert!(!fleet.confirmed(1, LogId(7)), "that was another question of the founder");
    }
}
