use bytes::Bytes;
use seriatim_client::LogConfig;

use super::super::cluster::{Cluster, wait};
use super::super::suite::{Fixture, attach, batch, entries, message, passes_without_copies, stream};
use super::*;
use crate::control::{Event, Holder, RulesRecord};

const WITHIN: Duration = Duration::from_secs(20);

/// A cluster with the log `copy`.
struct Copies(Cluster);

impl Copies {
    async fn start(config: LogConfig) -> Self {
        let cluster = Cluster::start().await;
        cluster.create("copy", config).await;
        Self(cluster)
    }

    fn copied(&self) -> Copied {
        Copied::new("mirror", &self.0.address, "copy", WITHIN)
    }

    /// The target of a player that starts now.
    async fn starts(&self) -> LogTarget {
        self.copied().target(self.0.keeper("mirror").await)
    }

    async fn texts(&self) -> Vec<String> {
        let records = self.0.records("copy").await;
        records.iter().map(|record| String::from_utf8(record.payload().to_vec()).unwrap()).collect()
    }
}

impl Fixture for Copies {
    type Target = LogTarget;

    fn target(&self) -> LogTarget {
        wait(self.starts())
    }

    async fn effects(&self) -> Vec<String> {
        self.texts().await
    }
}

fn reason(attached: Result<Position, AttachError>) -> String {
    match attached {
        Err(AttachError::Unusable { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_passes_the_tests_of_targets() {
    passes_without_copies(&Copies::start(LogConfig::default()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_has_the_time_the_key_and_the_origin_of_its_entry() {
    let copies = Copies::start(LogConfig::default()).await;
    let mut target = copies.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let mut two = message(7, &["a", "b"]);
    two.key = Some(Bytes::from_static(b"k"));
    let whole = Batch { after: Position(0), upto: Position(9), messages: vec![message(3, &["x"]), two] };
    assert_eq!(target.apply(&whole).await, Ok(()));
    let records = copies.0.records("copy").await;
    let found: Vec<_> = records
        .iter()
        .map(|record| {
            let header = record.headers().remove(0);
            assert_eq!(header.kind, 2);
            let origin = String::from_utf8(header.value.to_vec()).unwrap();
            (record.payload(), record.key(), record.appended_ms(), origin)
        })
        .collect();
    let key = Some(Bytes::from_static(b"k"));
    let expected = [
        (Bytes::from("x"), None, 1_700_000_000_003, "7/billing/3".to_owned()),
        (Bytes::from("a"), key.clone(), 1_700_000_000_007, "7/billing/7".to_owned()),
        (Bytes::from("b"), key, 1_700_000_000_007, "7/billing/7".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_since_the_last_record_of_the_bound_are_stored_once() {
    let copies = Copies::start(LogConfig::default()).await;
    let mut first = copies.starts().await;
    assert_eq!(attach(&mut first, 1).await, Ok(Position(0)));
    assert_eq!(first.apply(&batch(0, 3, [0, 2])).await, Ok(()));
    // What a player knows that starts now; the earlier one continues as a zombie.
    let mut second = copies.starts().await;
    assert_eq!(first.apply(&batch(3, 300, 3..300)).await, Ok(()));
    assert_eq!(attach(&mut second, 2).await, Ok(Position(3)));
    assert_eq!(second.apply(&batch(3, 200, 3..200)).await, Ok(()));
    assert_eq!(first.apply(&batch(300, 310, 300..310)).await, Ok(()));
    assert_eq!(second.apply(&batch(200, 320, 200..320)).await, Ok(()));
    assert_eq!(copies.texts().await, entries([0, 2].into_iter().chain(3..320)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_is_too_large_takes_no_number() {
    let copies = Copies::start(LogConfig { max_record_bytes: 1024, ..LogConfig::default() }).await;
    let mut target = copies.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    let large = "x".repeat(1025);
    // The first part fits. The message is a unit.
    let messages = vec![message(1, &["entry 1"]), message(4, &["fits", &large]), message(5, &["entry 5"])];
    let rejected = target.apply(&Batch { after: Position(0), upto: Position(9), messages }).await;
    let Err(ApplyError::Rejected { position, reason }) = rejected else { panic!("{rejected:?}") };
    assert_eq!(position, Position(4));
    assert!(reason.starts_with("the record has 1025 bytes, more than the 1024"), "{reason}");
    assert_eq!(attach(&mut target, 1).await, Ok(Position(4)));
    assert_eq!(target.apply(&batch(4, 5, [])).await, Ok(()));
    // A player that starts now knows the skipped position.
    let mut later = copies.starts().await;
    assert_eq!(attach(&mut later, 2).await, Ok(Position(5)));
    assert_eq!(later.apply(&batch(5, 7, [5, 6])).await, Ok(()));
    assert_eq!(copies.texts().await, entries([1, 5, 6]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_log_whose_sessions_continue_receives_copies() {
    let copies = Copies::start(LogConfig::default()).await;
    assert_eq!(copies.copied().check().await, Ok(Checked::Kept));
    assert!(copies.texts().await.is_empty());
    for order in Order::ALL {
        let name = format!("of-{order}");
        copies.0.client.create(&name, LogConfig { order, ..LogConfig::default() }).await.unwrap();
        let copied = Copied::new("mirror", &copies.0.address, &name, WITHIN);
        if order.properties().continues_sessions {
            assert_eq!(copied.check().await, Ok(Checked::Kept));
            continue;
        }
        let expected = format!(
            "the log '{name}' has the ordering {order}, whose sessions do not continue in a later run, so a copied \
             entry could be there twice; copy to a log with --order erwin-bb"
        );
        assert_eq!(copied.check().await, Err(expected.clone()));
        assert_eq!(copied.check_start().await, Err(expected.clone()));
        let mut target = copied.target(copies.0.keeper("mirror").await);
        assert_eq!(reason(attach(&mut target, 1).await), expected);
    }
    let missing = Copied::new("mirror", &copies.0.address, "missing", WITHIN);
    assert!(missing.check_start().await.unwrap_err().starts_with("there is no log 'missing'; create it"));
    let nowhere = Copied::new("mirror", "127.0.0.1:1", "copy", WITHIN);
    assert!(nowhere.check().await.unwrap_err().starts_with("cannot connect to 127.0.0.1:1: "));
    assert_eq!(nowhere.check_start().await, Ok(()), "the player starts, and retries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_session_stops_the_target_until_an_operator_gives_a_bound() {
    let copies = Copies::start(LogConfig { session_idle_positions: 1, ..LogConfig::default() }).await;
    let mut target = copies.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(target.apply(&batch(0, 2, [0, 1])).await, Ok(()));
    // Sessions of other clients displace it.
    let log = copies.0.client.log("copy").await.unwrap();
    let mut others = 0;
    let mut bound = 2;
    while target.apply(&batch(bound, bound + 1, [bound])).await.is_ok() {
        bound += 1;
        for _ in 0..1000 {
            log.append("of another client", seriatim_client::AppendOptions::sync()).await.unwrap();
            others += 1;
        }
        assert!(others < 100_000, "the log forgets no session");
    }
    let said = reason(attach(&mut target, 1).await);
    assert!(said.starts_with("the log 'copy' has forgotten the session of this target: find"), "{said}");
    assert!(said.ends_with("header of type 2, then use 'adopt' with the position behind it"), "{said}");
    let adopted = target.attach(&stream(7), 1, Some(Position(bound))).await;
    assert_eq!(adopted, Ok(Position(bound)));
    assert_eq!(target.apply(&batch(bound, bound + 1, [bound])).await, Ok(()));
    let copied: Vec<_> = copies.texts().await.into_iter().filter(|text| text.starts_with("entry")).collect();
    assert_eq!(copied, entries(0..=bound));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_log_with_the_name_of_the_copy_stops_the_target() {
    let copies = Copies::start(LogConfig::default()).await;
    let mut target = copies.starts().await;
    assert_eq!(attach(&mut target, 1).await, Ok(Position(0)));
    assert_eq!(target.apply(&batch(0, 2, [0, 1])).await, Ok(()));
    copies.0.client.delete("copy").await.unwrap();
    assert!(matches!(target.apply(&batch(2, 3, [2])).await, Err(ApplyError::Broken { .. })));
    assert!(reason(attach(&mut target, 1).await).starts_with("there is no log 'copy'"));
    copies.0.create("copy", LogConfig::default()).await;
    let said = reason(attach(&mut target, 1).await);
    assert!(said.starts_with("the log 'copy' is another one than this target has copied to: "), "{said}");
    assert_eq!(target.attach(&stream(7), 1, Some(Position(1))).await, Ok(Position(1)));
    assert_eq!(target.apply(&batch(1, 3, [1, 2])).await, Ok(()));
    assert_eq!(copies.texts().await, entries([1, 2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_player_that_is_deposed_opens_no_session() {
    let copies = Copies::start(LogConfig::default()).await;
    let mut paused = copies.starts().await;
    let claim = Event::Claim { holder: Holder::own(), base: 0, rules: RulesRecord::default() };
    let claimed = copies.0.control.append(&claim).await.unwrap();
    let fenced = Err(AttachError::Fenced { epoch: claimed.0 + 1 });
    assert_eq!(attach(&mut paused, 1).await, fenced);
    assert!(matches!(paused.apply(&batch(0, 1, [0])).await, Err(ApplyError::Broken { .. })));
    // The later player does not know the session of the paused one.
    let mut later = copies.starts().await;
    assert_eq!(attach(&mut later, claimed.0 + 1).await, Ok(Position(0)));
    assert_eq!(later.apply(&batch(0, 1, [0])).await, Ok(()));
    assert_eq!(copies.texts().await, entries([0]));
}
