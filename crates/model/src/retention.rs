//! Retention limits of a log, and an index from time to position. Time is an argument, in
//! milliseconds.

use crate::limits;
use crate::numbers;
use crate::position::Position;
use crate::wire::{Decoder, Encoder, Wire, WireError, decode_number, wire_enum, wire_struct};

/// Retention limits of a log. Everything beyond one of them is trimmed. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Age of a record, in milliseconds.
    pub age_ms: Option<u64>,
    /// Bytes of records on disk, not counted per replica.
    pub bytes: Option<u64>,
    /// Number of positions.
    pub records: Option<u64>,
}

wire_struct! { Retention { age_ms, bytes, records } }

impl Retention {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the limits' ranges.
    ///
    /// # Errors
    /// The wrong limit and its range.
    pub fn check(&self) -> Result<(), String> {
        let (least, most) = (limits::RETAIN_AGE_MS.start() / 1000, limits::RETAIN_AGE_MS.end() / 86_400_000);
        if let Some(age) = self.age_ms.filter(|age| !limits::RETAIN_AGE_MS.contains(age)) {
            let seconds = age as f64 / 1000.0;
            return Err(format!("records are kept for {least} s to {most} days, not for {seconds} s"));
        }
        let (least, most) = (limits::RETAIN_BYTES.start() >> 10, limits::RETAIN_BYTES.end() >> 50);
        if let Some(bytes) = self.bytes.filter(|bytes| !limits::RETAIN_BYTES.contains(bytes)) {
            return Err(format!("a log keeps {least} KiB to {most} PiB, not {bytes} bytes"));
        }
        if let Some(records) = self.records.filter(|records| !limits::RETAIN_RECORDS.contains(records)) {
            let most = limits::RETAIN_RECORDS.end();
            return Err(format!("a log keeps 1 to {most} positions, not {records}"));
        }
        Ok(())
    }

    /// Segment length in bytes for a log of `shards` shards, so that little exceeds the byte limit.
    /// `None` without a byte limit.
    #[must_use]
    pub fn segment_bytes(&self, shards: usize) -> Option<u64> {
        let bytes = self.bytes? / (SEGMENTS_OF_A_LIMIT * shards.max(1) as u64);
        Some(bytes.max(LEAST_SEGMENT_BYTES))
    }
}

/// Fewest segments that a byte limit is divided into, over all shards.
const SEGMENTS_OF_A_LIMIT: u64 = 8;

/// Shortest segment that a byte limit causes, in bytes.
const LEAST_SEGMENT_BYTES: u64 = 4 << 10;

/// A change of one of a log's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitChange {
    /// Unchanged.
    Keep,
    /// No limit.
    Lift,
    /// This limit.
    Set(u64),
}

wire_enum! { LimitChange { 1 => Keep {}, 2 => Lift {}, 3 => Set(limit) } }

impl LimitChange {
    fn of(self, limit: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => limit,
            Self::Lift => None,
            Self::Set(limit) => Some(limit),
        }
    }
}

/// A change of a log's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionChange {
    /// Age, in milliseconds.
    pub age_ms: LimitChange,
    /// Bytes.
    pub bytes: LimitChange,
    /// Positions.
    pub records: LimitChange,
}

wire_struct! { RetentionChange { age_ms, bytes, records } }

impl RetentionChange {
    /// The limits after the change.
    #[must_use]
    pub fn applied_to(&self, before: Retention) -> Retention {
        Retention {
            age_ms: self.age_ms.of(before.age_ms),
            bytes: self.bytes.of(before.bytes),
            records: self.records.of(before.records),
        }
    }
}

/// A position that was final at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeMark {
    /// Everything below was final.
    pub position: Position,
    /// The log's own time; see [`LogClock`].
    pub time_ms: u64,
    /// Wall clock of the marking node, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Most marks in an index.
pub const MOST_MARKS: usize = 256;

/// Marks of a log's final positions, and its latest known time. The distance of two marks is a
/// small part of their age.
///
/// Invariant: positions and times increase from mark to mark, and no mark is later than `time_ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeIndex {
    marks: Vec<TimeMark>,
    time_ms: u64,
}

/// Each mark is a difference from the previous one.
impl Wire for TimeIndex {
    fn encode(&self, out: &mut Encoder) {
        self.time_ms.encode(out);
        (self.marks.len() as u16).encode(out);
        let mut last = TimeMark::default();
        for mark in &self.marks {
            put_number(out, mark.position.0 - last.position.0);
            put_number(out, mark.time_ms - last.time_ms);
            // Wall clocks can go back.
            put_number(out, numbers::difference(last.wall_ms, mark.wall_ms));
            last = *mark;
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let time_ms = decode_number("TimeIndex.time_ms", input)?;
        let count = u16::decode(input)?;
        let (mut index, mut last) = (Self::default(), TimeMark::default());
        for _ in 0..count {
            let more = |last: u64, more: u64| last.checked_add(more).filter(|sum| *sum <= limits::MAX_NUMBER);
            let invalid = || WireError::Invalid("TimeIndex");
            let position = more(last.position.0, take_number(input)?).map(Position).ok_or_else(invalid)?;
            let time_ms = more(last.time_ms, take_number(input)?).ok_or_else(invalid)?;
            let wall_ms = numbers::differing(last.wall_ms, take_number(input)?);
            last = TimeMark { position, time_ms, wall_ms };
            if wall_ms > limits::MAX_NUMBER || index.marks.len() == MOST_MARKS || !index.add(last) {
                return Err(invalid());
            }
        }
        if index.time_ms > time_ms {
            return Err(WireError::Invalid("TimeIndex"));
        }
        index.time_ms = time_ms;
        Ok(index)
    }
}

fn put_number(out: &mut Encoder, number: u64) {
    numbers::put_number(number, |byte| out.put(&[byte]));
}

fn take_number(input: &mut Decoder) -> Result<u64, WireError> {
    numbers::take_number(|| u8::decode(input).ok()).ok_or(WireError::Invalid("TimeIndex"))
}

impl TimeIndex {
    /// The marks, oldest first.
    #[must_use]
    pub fn marks(&self) -> &[TimeMark] {
        &self.marks
    }

    /// The log's latest known time; 0 if none.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Raises the log's latest known time.
    pub fn reaches(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// Inserts a mark. Returns false if it contradicts others: a higher position at an earlier
    /// time, or the reverse.
    pub fn add(&mut self, mark: TimeMark) -> bool {
        self.reaches(mark.time_ms);
        let index = self.marks.partition_point(|known| known.time_ms < mark.time_ms);
        let goes_after = index == 0 || self.marks[index - 1].position < mark.position;
        let goes_before = self
            .marks
            .get(index)
            .is_none_or(|next| next.time_ms > mark.time_ms && next.position > mark.position);
        if goes_after && goes_before {
            assert!(mark.time_ms <= self.time_ms, "no mark is later than the log's time");
            self.marks.insert(index, mark);
            if self.marks.len() > MOST_MARKS {
                self.thin_out();
            }
        }
        goes_after && goes_before
    }

    /// Hash of the marks above a trim point.
    #[must_use]
    pub fn digest_above(&self, trim: Position) -> u64 {
        let below = self.marks.partition_point(|mark| mark.position <= trim);
        let mix = |sum: u64, number: u64| (sum ^ number).wrapping_mul(0x100_0000_01B3);
        let marks = self.marks[below..].iter();
        marks.fold(0xCBF2_9CE4_8422_2325, |sum, mark| mix(mix(sum, mark.position.0), mark.time_ms))
    }

    /// Adds another index's marks and time.
    pub fn merge(&mut self, other: &Self) {
        other.marks.iter().for_each(|mark| _ = self.add(*mark));
        self.reaches(other.time_ms);
    }

    /// Removes the mark whose neighbours are closest to each other, relative to its age.
    fn thin_out(&mut self) {
        let gap = |index: usize| self.marks[index + 1].time_ms - self.marks[index - 1].time_ms;
        let age = |index: usize| self.time_ms - self.marks[index].time_ms + 1;
        // gap(a) / age(a) < gap(b) / age(b), in whole numbers.
        let is_closer = |a: usize, b: usize| {
            u128::from(gap(a)) * u128::from(age(b)) < u128::from(gap(b)) * u128::from(age(a))
        };
        let inner = 1..self.marks.len() - 1;
        let superfluous = inner.reduce(|best, index| if is_closer(index, best) { index } else { best });
        self.marks.remove(superfluous.expect("there are many"));
    }

    /// Forgets marks up to a trim point, except the last of them.
    pub fn forget_below(&mut self, trim: Position) {
        let below = self.marks.partition_point(|mark| mark.position <= trim);
        self.marks.drain(..below.saturating_sub(1));
    }

    /// Forgets marks above `stable`: those positions were abandoned.
    pub fn forget_above(&mut self, stable: Position) {
        let final_ones = self.marks.partition_point(|mark| mark.position <= stable);
        self.marks.truncate(final_ones);
    }

    /// Everything below the result was final at the log's time `time_ms`. Zero if unknown.
    #[must_use]
    pub fn final_at(&self, time_ms: u64) -> Position {
        let index = self.marks.partition_point(|mark| mark.time_ms <= time_ms);
        if index == 0 { Position::ZERO } else { self.marks[index - 1].position }
    }

    /// Position from which a reader finds the records appended at `wall_ms` or later; zero if
    /// unknown. By wall clocks, everything below was final before. Slightly older records may lie
    /// above.
    #[must_use]
    pub fn position_at(&self, wall_ms: u64) -> Position {
        // If a clock was set back, the first mark past the time decides, so that no wanted record
        // lies below it.
        let index = self.marks.iter().position(|mark| mark.wall_ms > wall_ms).unwrap_or(self.marks.len());
        if index == 0 { Position::ZERO } else { self.marks[index - 1].position }
    }
}

/// A part of a shard's store, and its size on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bound above the part's positions. Once everything below it is trimmed, the part can be
    /// deleted.
    pub end: Position,
    /// Bytes of files.
    pub bytes: u64,
}

wire_struct! { Extent { end, bytes as number } }

/// A record store's room on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Bytes of all files.
    pub bytes: u64,
    /// Parts in the order of writing, from the first that is not trimmed. Until its deletion, later
    /// trimmed parts stay.
    pub extents: Vec<Extent>,
}

wire_struct! { StoreUse { bytes as number, extents } }

impl StoreUse {
    /// Bytes of the parts with positions from `trim` on.
    #[must_use]
    pub fn kept_bytes(&self, trim: Position) -> u64 {
        let kept = self.extents.iter().filter(|extent| extent.end > trim);
        kept.fold(0, |sum, extent| sum.saturating_add(extent.bytes))
    }

    /// Bytes of trimmed parts that stay because an earlier part is needed.
    #[must_use]
    pub fn held_bytes(&self, trim: Position) -> u64 {
        let behind = self.extents.iter().skip_while(|extent| extent.end <= trim);
        behind.filter(|extent| extent.end <= trim).fold(0, |sum, extent| sum.saturating_add(extent.bytes))
    }
}

/// Most parts in a store's report.
pub const MOST_EXTENTS: usize = 4096;

/// Steady time of a log, kept by the node that applies its limits.
///
/// It advances by the monotonic clock or the wall clock, whichever advances less, and by up to a
/// tenth more while the wall clock is ahead. It never goes back. So at most 11/10 of the true time
/// passes, even if a clock is wrong or another node takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogClock {
    time_ms: u64,
    /// The two clocks at the last step, in milliseconds.
    steady_ms: u64,
    wall_ms: u64,
    /// Unused tenths of a millisecond of the extra advance.
    tenths: u64,
}

/// The log's clock advances by at most 1/10 of the elapsed time more, until it has caught up.
pub const CATCHES_UP: u64 = 10;

impl LogClock {
    /// Resumes from the log's latest known time.
    #[must_use]
    pub fn from(time_ms: u64, steady_ms: u64, wall_ms: u64) -> Self {
        Self { time_ms, steady_ms, wall_ms, tenths: 0 }
    }

    /// The time of the log.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Advances to the clocks' times. Returns the log's time.
    pub fn goes_on(&mut self, steady_ms: u64, wall_ms: u64) -> u64 {
        let passed = steady_ms.saturating_sub(self.steady_ms).min(wall_ms.saturating_sub(self.wall_ms));
        (self.steady_ms, self.wall_ms) = (steady_ms, wall_ms);
        self.time_ms = self.time_ms.saturating_add(passed).min(limits::MAX_NUMBER);
        self.tenths += passed;
        let allowed = self.tenths / CATCHES_UP;
        self.tenths %= CATCHES_UP;
        self.time_ms += wall_ms.min(limits::MAX_NUMBER).saturating_sub(self.time_ms).min(allowed);
        self.time_ms
    }
}

/// Position up to which a log is trimmed, at most `stable`, and the limit that decides it. `now_ms`
/// is the log's time.
#[must_use]
pub fn trims_to(
    limits: &Retention,
    stable: Position,
    times: &TimeIndex,
    now_ms: u64,
    shards: &[&[Extent]],
) -> (Position, Limit) {
    let by_records = limits.records.map(|most| (Position(stable.0.saturating_sub(most)), Limit::Records));
    let by_age = limits.age_ms.and_then(|age| Some((times.final_at(now_ms.checked_sub(age)?), Limit::Age)));
    let by_bytes = limits.bytes.map(|most| (keeps_bytes(most, shards), Limit::Bytes));
    let farthest = [by_records, by_age, by_bytes].into_iter().flatten().max_by_key(|(position, _)| *position);
    let (position, limit) = farthest.unwrap_or((Position::ZERO, Limit::Records));
    (position.min(stable), limit)
}

/// A retention limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Age.
    Age,
    /// Bytes.
    Bytes,
    /// Positions.
    Records,
}

/// The lowest end of a part above which at most `most` bytes remain.
///
/// An early part with high positions may delay the deletion of later parts. It counts by its own
/// end, and causes no further trim. The kept bytes plus the parts that end at the result exceed the
/// limit, so nothing is trimmed too early.
fn keeps_bytes(most: u64, shards: &[&[Extent]]) -> Position {
    let mut parts: Vec<Extent> = shards.concat();
    parts.sort_unstable_by_key(|part| part.end);
    let mut rest = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    let mut position = Position::ZERO;
    for part in parts {
        // Parts with the same end as a trimmed part are trimmed with it.
        if rest <= most && part.end > position {
            break;
        }
        rest = rest.saturating_sub(part.bytes);
        position = part.end;
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{decode_one, encode_one};

    fn mark(position: u64, time_ms: u64) -> TimeMark {
        TimeMark { position: Position(position), time_ms, wall_ms: time_ms }
    }

    fn index(marks: &[(u64, u64)]) -> TimeIndex {
        let mut index = TimeIndex::default();
        marks.iter().for_each(|(position, time)| _ = index.add(mark(*position, *time)));
        index
    }

    #[test]
    fn a_clock_that_jumps_by_an_hour_and_back_makes_nothing_an_hour_older() {
        const HOUR: u64 = 3_600_000;
        let mut clock = LogClock::from(10 * HOUR, 0, 10 * HOUR);
        let wall = |now: u64| 10 * HOUR + now + if (5_000..20_000).contains(&now) { HOUR } else { 0 };
        for now in (0..60_000).step_by(250) {
            let time = clock.goes_on(now, wall(now));
            assert!(time - 10 * HOUR <= now * 11 / 10, "after {now} ms");
        }
        assert!(clock.time_ms() - 10 * HOUR >= 59_000, "it does not stand still either");
        let before = clock.time_ms();
        assert_eq!(clock.goes_on(60_000, 0), before, "nor does it go back");
        assert_eq!(clock.goes_on(60_000 + HOUR, 10), before + 10, "nor by a jump of the other clock");
    }

    #[test]
    fn a_clock_that_is_behind_catches_up_however_often_it_is_looked_at() {
        let mut clock = LogClock::from(1_000_000, 0, 1_000_100);
        let caught_up = (0..=1100u64).map(|now| clock.goes_on(now, 1_000_100 + now)).last();
        assert_eq!(caught_up, Some(1_001_200));
    }

    #[test]
    fn marks_that_contradict_others_are_not_believed() {
        let index = index(&[(5, 50), (9, 90), (3, 60), (20, 70), (7, 70), (9, 95), (8, 90)]);
        assert_eq!(index.marks(), [mark(5, 50), mark(7, 70), mark(9, 90)]);
        assert_eq!(index.time_ms(), 95);
    }

    #[test]
    fn of_older_marks_fewer_are_kept_and_none_is_far_from_the_next() {
        let mut index = TimeIndex::default();
        (1..200_000).for_each(|second| assert!(index.add(mark(second, second * 1000))));
        assert_eq!(index.marks().len(), MOST_MARKS);
        for pair in index.marks().windows(2) {
            let age = index.time_ms() - pair[0].time_ms;
            assert!(pair[1].time_ms - pair[0].time_ms <= 2_000 + age / 8, "{pair:?}");
        }
        index.forget_below(Position(150_000));
        assert!(
            index.marks()[0].position <= Position(150_000) && index.marks()[1].position > Position(150_000)
        );
        index.forget_above(Position(160_000));
        assert!(index.marks().last().unwrap().position <= Position(160_000));
    }

    #[test]
    fn an_index_comes_back_and_nonsense_is_refused() {
        let mut index = index(&[(5, 50), (7, 70), (300, 90_000)]);
        index.add(TimeMark { wall_ms: 3, ..mark(301, 90_001) });
        index.reaches(100_000);
        let written = encode_one(&index);
        assert!(written.len() < 40, "{}", written.len());
        assert_eq!(decode_one::<TimeIndex>(written.clone()).unwrap(), index);
        for bit in 0..written.len() * 8 {
            let mut bytes = written.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = decode_one::<TimeIndex>(bytes.into()) {
                assert!(found.marks.windows(2).all(|pair| pair[0].position < pair[1].position));
                assert!(found.marks.iter().all(|mark| mark.time_ms <= found.time_ms));
            }
        }
        assert_ne!(index.digest_above(Position(6)), index.digest_above(Position(7)));
        assert_eq!(index.digest_above(Position(5)), index.digest_above(Position(6)));
    }

    #[test]
    fn nothing_that_is_asked_for_lies_below_the_answer() {
        let mut index = index(&[(10, 100), (20, 200), (30, 300)]);
        let at = |index: &TimeIndex, time| index.position_at(time).0;
        assert_eq!([at(&index, 99), at(&index, 100), at(&index, 250), at(&index, 999)], [0, 10, 20, 30]);
        // A clock was ahead for a while: the wanted records may be older.
        index.add(TimeMark { wall_ms: 900, ..mark(40, 400) });
        index.add(mark(50, 500));
        assert_eq!([at(&index, 450), at(&index, 600), at(&index, 900)], [30, 30, 50]);
    }

    #[test]
    fn limits_trim_no_more_than_they_have_to() {
        let times = index(&[(10, 100), (20, 200), (30, 300)]);
        let extent = |end, bytes| Extent { end: Position(end), bytes };
        let (one, two) = ([extent(9, 50), extent(6, 50), extent(25, 50)], [extent(12, 50), extent(40, 50)]);
        let trims = |limits: Retention| trims_to(&limits, Position(33), &times, 400, &[&one, &two]).0.0;
        let none = Retention::default();
        assert_eq!(trims(none), 0);
        assert_eq!([200, 201, 500].map(|age| trims(Retention { age_ms: Some(age), ..none })), [20, 10, 0]);
        assert_eq!([5, 33, 90].map(|most| trims(Retention { records: Some(most), ..none })), [28, 0, 0]);
        let bytes = [250, 249, 200, 150, 149, 49].map(|most| trims(Retention { bytes: Some(most), ..none }));
        assert_eq!(bytes, [0, 6, 6, 9, 12, 33]);
        assert_eq!(trims(Retention { records: Some(5), age_ms: Some(200), ..none }), 28);
    }

    #[test]
    fn a_record_that_got_its_position_late_takes_nothing_with_it() {
        // The first part was written first and ends last: all files stay, and later parts are
        // trimmed one by one.
        let late: Vec<Extent> =
            [900, 100, 200, 300].map(|end| Extent { end: Position(end), bytes: 50 }).to_vec();
        let trims = |most| keeps_bytes(most, &[&late]).0;
        assert_eq!([200, 199, 149, 99, 49].map(trims), [0, 100, 200, 300, 900]);
        let usage = StoreUse { bytes: 210, extents: late };
        assert_eq!([100, 300, 900].map(|trim| usage.kept_bytes(Position(trim))), [150, 50, 0]);
        assert_eq!([100, 300, 900].map(|trim| usage.held_bytes(Position(trim))), [50, 150, 0]);
    }

    #[test]
    fn what_is_kept_and_the_part_that_went_last_are_more_than_a_limit() {
        let mut seed = 1u64;
        let mut below = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for _ in 0..2000 {
            let shards: Vec<Vec<Extent>> = (0..=below(3))
                .map(|_| {
                    (0..below(30)).map(|_| Extent { end: Position(below(60)), bytes: below(90) }).collect()
                })
                .collect();
            let shards: Vec<&[Extent]> = shards.iter().map(Vec::as_slice).collect();
            let most = below(2000);
            let trim = keeps_bytes(most, &shards);
            let above = |is_kept: &dyn Fn(Position) -> bool| {
                let parts = shards.iter().flat_map(|parts| parts.iter());
                parts.filter(|part| is_kept(part.end)).map(|part| part.bytes).sum::<u64>()
            };
            assert!(above(&|end| end > trim) <= most);
            assert!(trim == Position::ZERO || above(&|end| end >= trim) > most || above(&|_| true) <= most);
        }
    }

    #[test]
    fn limits_that_nobody_can_mean_are_refused_in_words() {
        let none = Retention::default();
        let refusals = [
            Retention { age_ms: Some(0), ..none },
            Retention { bytes: Some(10), ..none },
            Retention { records: Some(0), ..none },
        ]
        .map(|limits| limits.check().unwrap_err());
        assert!(refusals[0].contains("not for 0 s") && refusals[1].contains("not 10 bytes"), "{refusals:?}");
        assert!(refusals[2].contains("not 0"), "{refusals:?}");
        assert_eq!(none.check(), Ok(()));
    }
}
