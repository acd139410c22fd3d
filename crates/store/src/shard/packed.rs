//! Encoding of binding log entries. Entries written together are a batch. Each entry encodes only
//! its difference from the prediction that earlier entries give.
//!
//! ```text
//! batch    crc (4) · length of the entries · entries       the checksum covers all that follows it
//! ```
//!
//! Numbers and differences are those of [`super::numbers`]. The predictions:
//!
//! - Positions follow those of the last entry of the same kind, or skip as many as the last skip
//!   (other shards' stripes).
//! - Numbers of a session continue. A recent session is encoded by its place in a table.
//! - Records follow the last entry's, with the same count and length; or they are the next ones of
//!   the session's last stretch.
//!
//! So a run after stripes takes one byte if its records are as long as the previous ones, and about
//! four otherwise. After a failed write or an opening, the next batch starts with [`ANEW`], which
//! resets the predictions.

use std::collections::BTreeMap;

use bytes::Bytes;
use seriatim_model::storage::Owned;
use seriatim_model::wire::{Wire, encode_one};
use seriatim_model::{IdRun, Position, SessionId, ShardId, TimeIndex, ViewNumber};

use super::binding::{Binding, Bound, OrderPart};
use super::index::IndexRun;
use super::numbers::{Input, put_difference, put_number};
use super::runs::Stretch;
use super::segment::Written;
use crate::format::u32_at;

/// Size of the session table. An evicted session is encoded with its whole id.
const MAX_SESSIONS: usize = 1024;

const CRC_BYTES: usize = 4;

/// A `Bind`, with 2 bits for its positions and 3 for its place.
const BIND: u8 = 0x80;
/// A `Put`, with 2 bits for its ids and 3 for its place.
const PUT: u8 = 0x40;
/// Resets the predictions.
const ANEW: u8 = 0;
/// Other kinds of entries, in the low 4 bits. The next 2 bits are for the positions.
const STABLE: u8 = 1;
const REMEMBER: u8 = 2;
const REMEMBER_LACKING: u8 = 3;
const ORDER: u8 = 4;
const NAME: u8 = 5;
const MAP: u8 = 6;
const DISCARD: u8 = 7;
const REFER: u8 = 8;
const HELD: u8 = 9;
const TIMES: u8 = 10;
const ALL_TIMES: u8 = 11;

/// How positions relate to the last entry's: they continue; skip as many as the last skip; skip
/// another number; in another view.
const GOES_ON: u8 = 0;
const STEPS_ON: u8 = 1;
const STEPS: u8 = 2;
const OF_VIEW: u8 = 3;

/// How ids relate to earlier ones: the last session continues; a recent one continues; a recent one
/// elsewhere; a new session.
const SAME_SESSION: u8 = 0;
const KNOWN_SESSION: u8 = 1;
const ELSEWHERE_IN_SESSION: u8 = 2;
const NEW_SESSION: u8 = 3;

/// Places besides those of [`Stretch::put_after`]: none; the next part of the session's last
/// stretch; one record of that.
const NOWHERE: u8 = 0;
const NEXT_PART: u8 = 6;
const NEXT_RECORD: u8 = 7;

/// Flags of a part of an order: the part belongs to this shard; its ids are void.
const HERE: u8 = 1;
const VOID: u8 = 2;
/// Flag of another shard's part: it has one position.
const ALONE: u8 = 2;
/// Shard numbers from this one on do not fit into the first byte.
const FAR_SHARD: u32 = 63;

#[derive(Clone, Copy, Debug, Default)]
struct Track {
    view: u64,
    next: u64,
    /// Number of positions in the last skip.
    step: u64,
}

/// Kinds of entries whose positions are predicted separately.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Runs,
    Orders,
    Ids,
    Maps,
}

#[derive(Clone, Copy, Debug)]
enum Numbers {
    Put,
    Given,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    session: SessionId,
    /// Predicted numbers as [`Numbers::Put`] and as [`Numbers::Given`].
    next: [u64; 2],
    /// Bytes of the last records given positions.
    place: IndexRun,
}

#[derive(Debug, Default)]
struct Sessions {
    seen: Vec<Seen>,
    places: BTreeMap<SessionId, usize>,
    last: usize,
    oldest: usize,
}

impl Sessions {
    fn add(&mut self, session: SessionId) {
        let new = Seen { session, next: [0; 2], place: IndexRun::default() };
        if self.seen.len() < MAX_SESSIONS {
            self.last = self.seen.len();
            self.seen.push(new);
        } else {
            self.last = self.oldest;
            self.oldest = (self.oldest + 1) % MAX_SESSIONS;
            self.places.remove(&self.seen[self.last].session);
            self.seen[self.last] = new;
        }
        self.places.insert(session, self.last);
    }

    fn last(&mut self) -> Option<&mut Seen> {
        self.seen.get_mut(self.last)
    }
}

/// The predictions: equal for writer and reader.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// Whether a batch was written that resets the reader.
    is_begun: bool,
    tracks: [Track; 4],
    /// Position after the last encoded entry's positions.
    end: u64,
    place: IndexRun,
    sessions: Sessions,
}

impl Expected {
    pub(super) fn batch(&mut self, bindings: &[Binding]) -> Bytes {
        let mut body = vec![];
        if !self.is_begun {
            self.is_begun = true;
            body.push(ANEW);
        }
        for binding in bindings {
            self.put_binding(&mut body, binding);
        }
        let mut out = vec![0; CRC_BYTES];
        put_number(&mut out, body.len() as u64);
        out.extend_from_slice(&body);
        let crc = crc32c::crc32c(&out[CRC_BYTES..]);
        out[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        out.into()
    }

    fn put_binding(&mut self, out: &mut Vec<u8>, binding: &Binding) {
        let kind = out.len();
        out.push(0);
        out[kind] = match binding {
            Binding::Bind { view, first, count, segment, offset, bytes } => {
                let written = Written { count: *count, offset: *offset, bytes: *bytes };
                let positions = self.put_positions(out, Kind::Runs, *view, *first, (*count).into());
                BIND | positions | self.put_place(out, IndexRun::new(*segment, written)) << 2
            }
            Binding::Put { session, first, count, segment, offset, bytes } => {
                let written = Written { count: *count, offset: *offset, bytes: *bytes };
                let ids = IdRun { session: *session, first: *first, count: (*count).into() };
                let names = self.put_ids(out, Numbers::Put, ids);
                PUT | names | self.put_place(out, IndexRun::new(*segment, written)) << 2
            }
            Binding::Stable(position) if position.0 == self.end => STABLE,
            Binding::Stable(position) => {
                put_difference(out, self.end, position.0);
                STABLE | STEPS << 4
            }
            Binding::Remember(memory) => {
                put_encoded(out, memory);
                REMEMBER
            }
            Binding::RememberMissing { memory, missing } => {
                put_encoded(out, memory);
                put_encoded(out, missing);
                REMEMBER_LACKING
            }
            Binding::Order { view, first, parts } => {
                let count = parts.iter().fold(0, |count: u64, part| count.wrapping_add(part.count()));
                let positions = self.put_positions(out, Kind::Orders, *view, *first, count);
                put_number(out, parts.len() as u64);
                parts.iter().for_each(|part| self.put_part(out, part));
                ORDER | positions << 4
            }
            Binding::Ids { view, first, ids, is_void } => {
                let positions = self.put_positions(out, Kind::Ids, *view, *first, ids.count);
                let at = out.len();
                out.push(0);
                out[at] = void_bit(*is_void) | self.put_ids(out, Numbers::Given, *ids) << 2;
                put_number(out, ids.count);
                NAME | positions << 4
            }
            Binding::Map { view, first, owned } => {
                let count = owned.iter().fold(0, |count: u64, part| count.wrapping_add(part.count));
                let positions = self.put_positions(out, Kind::Maps, *view, *first, count);
                put_number(out, owned.len() as u64);
                owned.iter().for_each(|part| put_owned(out, *part));
                MAP | positions << 4
            }
            Binding::Discard(ids) => put_discard(out, *ids),
            Binding::Held { session, first, run } => {
                let ids = IdRun { session: *session, first: *first, count: run.count.into() };
                self.put_held(out, ids, *run);
                HELD
            }
            Binding::Times { times, whole } => put_times(out, times, *whole),
            Binding::Refer { view, first, run } => {
                let positions = self.put_positions(out, Kind::Runs, *view, *first, run.count.into());
                let at = out.len();
                out.push(0);
                out[at] = self.put_place(out, *run);
                REFER | positions << 4
            }
        };
    }

    fn put_held(&mut self, out: &mut Vec<u8>, ids: IdRun, run: IndexRun) {
        let at = out.len();
        out.push(0);
        out[at] = self.put_ids(out, Numbers::Put, ids) | self.put_place(out, run) << 2;
    }

    fn put_part(&mut self, out: &mut Vec<u8>, part: &OrderPart) {
        let Bound { ids, is_void, place } = match part {
            OrderPart::Elsewhere(owned) => return put_owned(out, *owned),
            OrderPart::Here(bound) => bound,
        };
        let at = out.len();
        out.push(0);
        let names = self.put_ids(out, Numbers::Given, *ids);
        let place = match place {
            None => {
                put_number(out, ids.count);
                NOWHERE
            }
            Some(run) => {
                let seen = self.sessions.last().expect("a session was just told");
                let place = match is_next_part(seen.place, *run) {
                    true if run.count == 1 => NEXT_RECORD,
                    true => {
                        put_number(out, run.count.into());
                        NEXT_PART
                    }
                    false => self.put_place(out, *run),
                };
                self.note_place(*run);
                place
            }
        };
        out[at] = HERE | void_bit(*is_void) | names << 2 | place << 4;
    }

    fn put_positions(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        view: ViewNumber,
        first: Position,
        count: u64,
    ) -> u8 {
        let track = &mut self.tracks[kind as usize];
        let step = first.0.wrapping_sub(track.next);
        let how = match step {
            _ if track.view != view.0 => {
                put_difference(out, track.view, view.0);
                put_difference(out, track.next, first.0);
                OF_VIEW
            }
            0 => GOES_ON,
            _ if step == track.step => STEPS_ON,
            _ => {
                put_difference(out, track.next, first.0);
                STEPS
            }
        };
        self.note_positions(kind, view.0, first.0, count);
        how
    }

    fn put_ids(&mut self, out: &mut Vec<u8>, numbers: Numbers, ids: IdRun) -> u8 {
        let place = match self.sessions.seen.get(self.sessions.last) {
            Some(seen) if seen.session == ids.session => Some(self.sessions.last),
            _ => self.sessions.places.get(&ids.session).copied(),
        };
        let how = match place {
            None => {
                out.extend_from_slice(&ids.session.0.to_le_bytes());
                put_number(out, ids.first);
                self.sessions.add(ids.session);
                NEW_SESSION
            }
            Some(place) => {
                let next = self.sessions.seen[place].next[numbers as usize];
                let is_last = place == self.sessions.last;
                self.sessions.last = place;
                if is_last && next == ids.first {
                    SAME_SESSION
                } else {
                    put_number(out, place as u64);
                    if next == ids.first {
                        KNOWN_SESSION
                    } else {
                        put_difference(out, next, ids.first);
                        ELSEWHERE_IN_SESSION
                    }
                }
            }
        };
        self.note_numbers(numbers, ids);
        how
    }

    fn put_place(&mut self, out: &mut Vec<u8>, run: IndexRun) -> u8 {
        let how = run.put_after(self.place, out);
        self.place = run;
        how
    }
}

/// Updates after each entry, in writer and reader.
impl Expected {
    fn note_positions(&mut self, kind: Kind, view: u64, first: u64, count: u64) {
        let track = &mut self.tracks[kind as usize];
        let step = first.wrapping_sub(track.next);
        let step = if view == track.view && step == 0 { track.step } else { step };
        self.end = first.wrapping_add(count);
        *track = Track { view, next: self.end, step };
    }

    fn note_numbers(&mut self, numbers: Numbers, ids: IdRun) {
        if let Some(seen) = self.sessions.last() {
            seen.next[numbers as usize] = ids.first.wrapping_add(ids.count);
        }
    }

    fn note_place(&mut self, run: IndexRun) {
        if let Some(seen) = self.sessions.last() {
            seen.place = run;
        }
    }
}

/// Decoding. `None` for malformed bytes; the loader checks plausibility.
impl Expected {
    /// Decodes the first batch of `bytes`, if valid, and returns its length.
    pub(super) fn take_batch(&mut self, bytes: &[u8], out: &mut Vec<Binding>) -> Option<usize> {
        let mut input = Input::new(bytes.get(CRC_BYTES..)?);
        let len = usize::try_from(input.number()?).ok()?;
        let start = bytes.len() - input.remaining();
        let end = start.checked_add(len).filter(|end| *end <= bytes.len())?;
        if crc32c::crc32c(&bytes[CRC_BYTES..end]) != u32_at(bytes, 0) {
            return None;
        }
        let mut input = Input::new(&bytes[start..end]);
        while input.remaining() > 0 {
            out.extend(self.take_binding(&mut input)?);
        }
        Some(end)
    }

    /// Decodes the next entry. `Some(None)` if it only resets the predictions.
    fn take_binding(&mut self, input: &mut Input<'_>) -> Option<Option<Binding>> {
        let kind = input.byte()?;
        if kind & BIND != 0 {
            let (view, first) = self.take_positions(input, Kind::Runs, kind & 3)?;
            let run = self.take_place(input, kind >> 2 & 7)?;
            self.note_positions(Kind::Runs, view.0, first.0, run.count.into());
            return Some(Some(Binding::bind(view, first, run.segment, run.whole()?)));
        }
        if kind & PUT != 0 {
            let (session, first) = self.take_ids(input, Numbers::Put, kind & 3)?;
            let run = self.take_place(input, kind >> 2 & 7)?;
            self.note_numbers(Numbers::Put, IdRun { session, first, count: run.count.into() });
            return Some(Some(Binding::put(session, first, run.segment, run.whole()?)));
        }
        let positions = kind >> 4;
        Some(Some(match kind & 15 {
            ANEW => {
                *self = Self::default();
                return Some(None);
            }
            STABLE if positions == GOES_ON => Binding::Stable(Position(self.end)),
            STABLE => Binding::Stable(Position(input.difference(self.end)?)),
            REMEMBER => Binding::Remember(input.encoded()?),
            REMEMBER_LACKING => {
                Binding::RememberMissing { memory: input.encoded()?, missing: input.encoded()? }
            }
            ORDER => {
                let (view, first) = self.take_positions(input, Kind::Orders, positions)?;
                let (parts, count) = self.take_parts(input)?;
                self.note_positions(Kind::Orders, view.0, first.0, count);
                Binding::Order { view, first, parts }
            }
            NAME => {
                let (view, first) = self.take_positions(input, Kind::Ids, positions)?;
                let how = input.byte()?;
                let (session, number) = self.take_ids(input, Numbers::Given, how >> 2)?;
                let ids = IdRun { session, first: number, count: input.number()? };
                self.note_numbers(Numbers::Given, ids);
                self.note_positions(Kind::Ids, view.0, first.0, ids.count);
                Binding::Ids { view, first, ids, is_void: how & VOID != 0 }
            }
            MAP => {
                let (view, first) = self.take_positions(input, Kind::Maps, positions)?;
                let (owned, count) = take_map(input)?;
                self.note_positions(Kind::Maps, view.0, first.0, count);
                Binding::Map { view, first, owned }
            }
            DISCARD => {
                let session = input.session()?;
                Binding::Discard(IdRun { session, first: input.number()?, count: input.number()? })
            }
            HELD => {
                let how = input.byte()?;
                let (session, first) = self.take_ids(input, Numbers::Put, how & 3)?;
                let run = self.take_place(input, how >> 2)?;
                self.note_numbers(Numbers::Put, IdRun { session, first, count: run.count.into() });
                Binding::Held { session, first, run }
            }
            TIMES => Binding::Times { times: input.encoded()?, whole: false },
            ALL_TIMES => Binding::Times { times: input.encoded()?, whole: true },
            REFER => {
                let (view, first) = self.take_positions(input, Kind::Runs, positions)?;
                let how = input.byte()?;
                let run = self.take_place(input, how)?;
                self.note_positions(Kind::Runs, view.0, first.0, run.count.into());
                Binding::Refer { view, first, run }
            }
            _ => return None,
        }))
    }

    fn take_parts(&mut self, input: &mut Input<'_>) -> Option<(Vec<OrderPart>, u64)> {
        let (mut parts, mut count) = (vec![], 0u64);
        for _ in 0..input.number()? {
            let how = input.byte()?;
            let part = match how & HERE {
                0 => OrderPart::Elsewhere(take_owned(input, how)?),
                _ => OrderPart::Here(self.take_bound(input, how)?),
            };
            count = count.wrapping_add(part.count());
            parts.push(part);
        }
        Some((parts, count))
    }

    fn take_bound(&mut self, input: &mut Input<'_>, how: u8) -> Option<Bound> {
        let (session, first) = self.take_ids(input, Numbers::Given, how >> 2 & 3)?;
        let place = match how >> 4 & 7 {
            NOWHERE => None,
            NEXT_PART => Some(next_part(self.sessions.last()?.place, input.small()?)?),
            NEXT_RECORD => Some(next_part(self.sessions.last()?.place, 1)?),
            how => Some(self.take_place(input, how)?),
        };
        let count = match place {
            None => input.number()?,
            Some(run) => run.count.into(),
        };
        let ids = IdRun { session, first, count };
        self.note_numbers(Numbers::Given, ids);
        if let Some(run) = place {
            self.note_place(run);
        }
        Some(Bound { ids, is_void: how & VOID != 0, place })
    }

    fn take_positions(
        &mut self,
        input: &mut Input<'_>,
        kind: Kind,
        how: u8,
    ) -> Option<(ViewNumber, Position)> {
        let Track { mut view, next, step } = self.tracks[kind as usize];
        let first = match how {
            GOES_ON => next,
            STEPS_ON => next.wrapping_add(step),
            STEPS => input.difference(next)?,
            OF_VIEW => {
                view = input.difference(view)?;
                input.difference(next)?
            }
            _ => return None,
        };
        Some((ViewNumber(view), Position(first)))
    }

    fn take_ids(&mut self, input: &mut Input<'_>, numbers: Numbers, how: u8) -> Option<(SessionId, u64)> {
        if how == NEW_SESSION {
            let session = input.session()?;
            self.sessions.add(session);
            return Some((session, input.number()?));
        }
        if how != SAME_SESSION {
            self.sessions.last = usize::try_from(input.number()?).ok()?;
        }
        let seen = *self.sessions.last()?;
        let next = seen.next[numbers as usize];
        match how {
            SAME_SESSION | KNOWN_SESSION => Some((seen.session, next)),
            ELSEWHERE_IN_SESSION => Some((seen.session, input.difference(next)?)),
            _ => None,
        }
    }

    fn take_place(&mut self, input: &mut Input<'_>, how: u8) -> Option<IndexRun> {
        self.place = IndexRun::take_after(self.place, how, input)?;
        Some(self.place)
    }
}

fn is_next_part(last: IndexRun, run: IndexRun) -> bool {
    next_part(last, run.count) == Some(run)
}

fn next_part(last: IndexRun, count: u16) -> Option<IndexRun> {
    Some(IndexRun { skip: last.skip.checked_add(last.count)?, count, ..last })
}

fn void_bit(is_void: bool) -> u8 {
    if is_void { VOID } else { 0 }
}

fn put_owned(out: &mut Vec<u8>, Owned { shard, count }: Owned) {
    let alone = if count == 1 { ALONE } else { 0 };
    out.push((shard.0.min(FAR_SHARD) as u8) << 2 | alone);
    if shard.0 >= FAR_SHARD {
        put_number(out, shard.0.into());
    }
    if count != 1 {
        put_number(out, count);
    }
}

fn take_owned(input: &mut Input<'_>, how: u8) -> Option<Owned> {
    let shard = match u32::from(how >> 2) {
        FAR_SHARD => u32::try_from(input.number()?).ok()?,
        near => near,
    };
    let count = if how & ALONE != 0 { 1 } else { input.number()? };
    Some(Owned { shard: ShardId(shard), count })
}

fn take_map(input: &mut Input<'_>) -> Option<(Vec<Owned>, u64)> {
    let (mut map, mut count) = (vec![], 0u64);
    for _ in 0..input.number()? {
        let how = input.byte()?;
        let owned = take_owned(input, how)?;
        count = count.wrapping_add(owned.count);
        map.push(owned);
    }
    Some((map, count))
}

fn put_times(out: &mut Vec<u8>, times: &TimeIndex, whole: bool) -> u8 {
    put_encoded(out, times);
    if whole { ALL_TIMES } else { TIMES }
}

fn put_discard(out: &mut Vec<u8>, ids: IdRun) -> u8 {
    put_ids(out, ids);
    DISCARD
}

fn put_ids(out: &mut Vec<u8>, ids: IdRun) {
    out.extend_from_slice(&ids.session.0.to_le_bytes());
    put_number(out, ids.first);
    put_number(out, ids.count);
}

fn put_encoded<T: Wire>(out: &mut Vec<u8>, value: &T) {
    let bytes = encode_one(value);
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests;
