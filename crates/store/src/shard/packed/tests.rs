//! Entries survive encoding and take few bytes.

use proptest::prelude::*;
use seriatim_model::storage::{HardState, MissingRange};
use seriatim_model::{Incarnation, LogConfig, TimeIndex, TimeMark, ViewHistory};

use super::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0u64..200, 2 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()]
}

fn run() -> impl Strategy<Value = IndexRun> {
    let sizes = (prop_oneof![1u16..5, any::<u16>()], prop_oneof![0u16..4, any::<u16>()], any::<bool>());
    let place = (prop_oneof![0u32..3, any::<u32>()], prop_oneof![0u32..500, any::<u32>()]);
    (place, prop_oneof![0u32..400, any::<u32>()], sizes).prop_map(
        |((segment, offset), bytes, (count, skip, is_whole))| match is_whole {
            true => IndexRun { segment, offset, bytes, skip: 0, count, frames: count },
            false => IndexRun { segment, offset, bytes, skip, count, frames: skip.saturating_add(count) },
        },
    )
}

fn ids() -> impl Strategy<Value = IdRun> {
    (0u128..4, number(), number()).prop_map(|(session, first, count)| IdRun {
        session: SessionId(session),
        first,
        count,
    })
}

fn owned() -> impl Strategy<Value = Owned> {
    let shard = prop_oneof![4 => 0u32..4, 1 => 60u32..66, 1 => any::<u32>()];
    (shard, number()).prop_map(|(shard, count)| Owned { shard: ShardId(shard), count })
}

fn part() -> impl Strategy<Value = OrderPart> {
    let here = (ids(), any::<bool>(), prop::option::of(run())).prop_map(|(mut ids, is_void, place)| {
        // The run has as many records as ids.
        ids.count = place.map_or(ids.count, |run| run.count.into());
        OrderPart::Here(Bound { ids, is_void, place })
    });
    prop_oneof![here, owned().prop_map(OrderPart::Elsewhere)]
}

fn memory() -> HardState {
    HardState {
        incarnation: Incarnation(7),
        config: LogConfig::default(),
        claim: ViewNumber(3),
        view: None,
        history: ViewHistory::default(),
    }
}

/// Its numbers have a bound, as in messages.
fn missing_range() -> impl Strategy<Value = MissingRange> {
    let position = || number().prop_map(|number| Position(number).min(Position::MAX));
    (position(), position()).prop_map(|(from, end)| MissingRange { from, end })
}

fn times() -> impl Strategy<Value = TimeIndex> {
    let mark = (0u64..1 << 50, 0u64..1 << 50, 0u64..1 << 50);
    let mark = mark.prop_map(|(position, time_ms, wall_ms)| TimeMark {
        position: Position(position),
        time_ms,
        wall_ms,
    });
    prop::collection::vec(mark, 0..5).prop_map(|marks| {
        let mut times = TimeIndex::default();
        marks.into_iter().for_each(|mark| _ = times.add(mark));
        times
    })
}

fn binding() -> impl Strategy<Value = Binding> {
    let version = || (prop_oneof![0u64..3, any::<u64>()].prop_map(ViewNumber), number().prop_map(Position));
    prop_oneof![
        (version(), run()).prop_map(|((view, first), run)| Binding::bind(
            view,
            first,
            run.segment,
            Written { count: run.count, offset: run.offset, bytes: run.bytes }
        )),
        (ids(), run()).prop_map(|(ids, run)| Binding::put(
            ids.session,
            ids.first,
            run.segment,
            Written { count: run.count, offset: run.offset, bytes: run.bytes }
        )),
        (version(), run()).prop_map(|((view, first), run)| Binding::Refer { view, first, run }),
        number().prop_map(|position| Binding::Stable(Position(position))),
        Just(Binding::Remember(memory())),
        prop::option::of(missing_range())
            .prop_map(|missing| Binding::RememberMissing { memory: memory(), missing }),
        (version(), prop::collection::vec(part(), 0..6)).prop_map(|((view, first), parts)| Binding::Order {
            view,
            first,
            parts
        }),
        (version(), ids(), any::<bool>()).prop_map(|((view, first), ids, is_void)| Binding::Ids {
            view,
            first,
            ids,
            is_void
        }),
        (version(), prop::collection::vec(owned(), 0..6)).prop_map(|((view, first), owned)| Binding::Map {
            view,
            first,
            owned
        }),
        ids().prop_map(Binding::Discard),
        (times(), any::<bool>()).prop_map(|(times, whole)| Binding::Times { times, whole }),
        (ids(), run()).prop_map(|(ids, run)| Binding::Held { session: ids.session, first: ids.first, run }),
    ]
}

fn read(mut bytes: &[u8]) -> Option<Vec<Binding>> {
    let (mut expected, mut found) = (Expected::default(), vec![]);
    while !bytes.is_empty() {
        let len = expected.take_batch(bytes, &mut found)?;
        bytes = &bytes[len..];
    }
    Some(found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn entries_come_back(batches in prop::collection::vec(prop::collection::vec(binding(), 0..6), 0..6)) {
        let (mut expected, mut bytes) = (Expected::default(), vec![]);
        for batch in &batches {
            bytes.extend_from_slice(&expected.batch(batch));
        }
        prop_assert_eq!(read(&bytes).unwrap(), batches.concat());
        // This batch is lost; the next one must not refer to it.
        expected.batch(&batches.concat());
        expected = Expected::default();
        bytes.extend_from_slice(&expected.batch(&batches.concat()));
        prop_assert_eq!(read(&bytes).unwrap(), [batches.concat(), batches.concat()].concat());
    }

    #[test]
    fn what_is_no_entry_is_refused(body in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut out = vec![0; CRC_BYTES];
        put_number(&mut out, body.len() as u64);
        out.extend_from_slice(&body);
        let crc = crc32c::crc32c(&out[CRC_BYTES..]);
        out[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        let _ = read(&out);
    }
}

#[test]
fn every_bit_of_a_batch_counts() {
    let bindings: Vec<_> = (0..20).map(|n| Binding::Stable(Position(n * n))).collect();
    let batch = Expected::default().batch(&bindings);
    assert_eq!(read(&batch).unwrap(), bindings);
    for bit in 0..batch.len() * 8 {
        let mut bytes = batch.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Expected::default().take_batch(&bytes, &mut vec![]), None, "bit {bit}");
    }
    for len in 0..batch.len() {
        assert_eq!(Expected::default().take_batch(&batch[..len], &mut vec![]), None, "{len} bytes");
    }
    assert_eq!(Expected::default().take_batch(&[0; 100], &mut vec![]), None);
}

#[test]
fn more_sessions_than_are_remembered_come_back() {
    let entry = |n: u64| {
        let written = Written { count: 1, offset: n as u32 * 100, bytes: 100 };
        Binding::put(SessionId((n % 1500).into()), n / 1500, 1, written)
    };
    let bindings: Vec<_> = (0..4000).map(entry).collect();
    let mut expected = Expected::default();
    let bytes: Vec<u8> = bindings.chunks(7).flat_map(|chunk| expected.batch(chunk)).collect();
    assert_eq!(read(&bytes).unwrap(), bindings);
}

/// Most bytes of a batch, once predictions are established.
fn bytes_of(batches: impl Iterator<Item = Vec<Binding>>) -> usize {
    let mut expected = Expected::default();
    let lengths: Vec<_> = batches.map(|batch| expected.batch(&batch).len()).collect();
    lengths[2..].iter().copied().max().unwrap()
}

/// `count` runs of 4 records in stripes of 4 on two shards; each run has `lengths` bytes.
fn striped(count: u64, lengths: impl Fn(u64) -> u32 + Copy) -> impl Iterator<Item = Vec<Binding>> {
    let mut offset = 64;
    let mut next = 0;
    let mut run = move || {
        let written = Written { count: 4, offset, bytes: lengths(next) };
        offset += written.bytes;
        next += 1;
        Binding::bind(ViewNumber(7), Position((next - 1) * 8), 3, written)
    };
    (0..100).map(move |_| (0..count).map(|_| run()).collect())
}

#[test]
fn runs_that_follow_stripes_take_a_byte_and_others_at_most_eight() {
    let framing = CRC_BYTES + 1;
    assert_eq!(bytes_of(striped(1, |_| 400)), framing + 1);
    assert_eq!(bytes_of(striped(100, |_| 400)), framing + 100);
    let varied = |n: u64| 300 + (n * 37 % 200) as u32;
    assert!(bytes_of(striped(100, varied)) <= framing + 1 + 100 * 4);
    // Neither positions nor lengths are predictable.
    let alone = (0..100u64).map(|n| {
        let written = Written { count: 1, offset: 64 + n as u32 * 150, bytes: 150 };
        vec![Binding::bind(ViewNumber(7), Position(n * n % 50 + n * 10), 3, written)]
    });
    assert!(bytes_of(alone) <= 8);
}

#[test]
fn names_that_are_put_and_given_positions_take_a_few_bytes() {
    // Four clients alternate on two shards; each record is put and ordered alone.
    let written = |n: u64| Written { count: 1, offset: 64 + n as u32 * 150, bytes: 150 };
    let name = |n: u64| (SessionId(0xabcd + u128::from(n % 4)), n / 4);
    let put = |n| Binding::put(name(n).0, name(n).1, 1, written(n));
    assert!(bytes_of((0..100).map(|n| vec![put(n)])) <= 24);
    let order = |n: u64| {
        let (session, first) = name(n);
        let place = Some(IndexRun::new(1, written(n)));
        let here = Bound { ids: IdRun { session, first, count: 1 }, is_void: false, place };
        let elsewhere = OrderPart::Elsewhere(Owned { shard: ShardId(1), count: 1 });
        let parts = vec![OrderPart::Here(here), elsewhere];
        Binding::Order { view: ViewNumber(3), first: Position(n * 2), parts }
    };
    let bytes = |n: u64, of: &dyn Fn(u64) -> Binding| {
        bytes_of((0..100).map(|batch| (batch * n..batch * n + n).map(of).collect()))
    };
    assert!(bytes(100, &put) <= 100 * 2 + 6, "{}", bytes(100, &put));
    assert!(bytes(100, &order) <= 100 * 5 + 6, "{}", bytes(100, &order));
}
