//! Reads and writes the words of the notation; comments show the form of a word.

use std::fmt::Display;
use std::str::FromStr;

use seriatim_model::storage::{Ordered, Owned};
use seriatim_model::{
    Address, BoundIds, ConnectionId, Endpoint, Gap, IdRun, Incarnation, Member, NodeId, Placement, Position,
    Record, RecordId, RetiredShard, SessionId, ShardId, ShardMembers, View, ViewHistory, ViewNumber,
};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::parts::junk::{is_junk, junk};
use seriatim_protocol::parts::sessions::runs_of;
use seriatim_protocol::parts::{Content, Sessions};

pub(crate) type Parsed<T> = Result<T, String>;

pub(crate) struct Words(Vec<String>);

impl Words {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_owned).collect())
    }

    pub(crate) fn next(&mut self) -> Parsed<String> {
        if self.0.is_empty() { Err("a word is missing".into()) } else { Ok(self.0.remove(0)) }
    }

    /// Takes this word. Returns whether the command has it.
    pub(crate) fn has(&mut self, word: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|other| other != word);
        self.0.len() < before
    }

    /// `name=value`.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Parsed<Option<T>> {
        let of = |word: &String| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        let Some(index) = self.0.iter().position(of) else { return Ok(None) };
        let word = self.0.remove(index);
        let value = word[name.len() + 1..].parse().map_err(|_| format!("what is '{word}'?"))?;
        Ok(Some(value))
    }

    /// `name=number`, or 0.
    pub(crate) fn number(&mut self, name: &str) -> Parsed<u64> {
        Ok(self.value(name)?.unwrap_or(0))
    }

    pub(crate) fn position(&mut self, name: &str) -> Parsed<Position> {
        self.number(name).map(Position)
    }

    /// `name=1,2`; may be missing.
    pub(crate) fn shards(&mut self, name: &str) -> Parsed<Vec<ShardId>> {
        let Some(text) = self.value::<String>(name)? else { return Ok(vec![]) };
        let shard = |word: &str| word.parse().map(ShardId).map_err(|_| format!("which shard is '{word}'?"));
        text.split(',').map(shard).collect()
    }

    /// `name=1:20,3:40`; may be missing.
    pub(crate) fn pairs(&mut self, name: &str) -> Parsed<Vec<(u64, u64)>> {
        let text = self.value::<String>(name)?.unwrap_or_default();
        let pair = |word: &str| {
            let (first, second) = word.split_once(':')?;
            Some((first.parse().ok()?, second.parse().ok()?))
        };
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(|word| pair(word).ok_or(format!("what is '{word}'?"))).collect()
    }

    /// Takes the words that `read` understands.
    fn all<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut found = vec![];
        self.0.retain(|word| read(word).map(|value| found.push(value)).is_none());
        found
    }

    fn one<T>(&mut self, what: &str, read: impl Fn(&str) -> Option<T>) -> Parsed<T> {
        let found = self.0.iter().position(|word| read(word).is_some());
        let word = found.map(|index| self.0.remove(index)).ok_or(format!("{what} is missing"))?;
        Ok(read(&word).expect("just seen"))
    }

    pub(crate) fn view(&mut self) -> Parsed<ViewNumber> {
        self.one("a view", |word| word.strip_prefix('v')?.parse().ok().map(ViewNumber))
    }

    pub(crate) fn session(&mut self) -> Parsed<SessionId> {
        self.one("a session", |word| read_session(word).filter(|(_, rest)| rest.is_empty()).map(|(id, _)| id))
    }

    /// `name=a`, where `a` is a session.
    pub(crate) fn session_in(&mut self, name: &str) -> Parsed<Option<SessionId>> {
        let Some(word) = self.value::<String>(name)? else { return Ok(None) };
        Words::new(&word).session().map(Some)
    }

    pub(crate) fn records(&mut self) -> Vec<(RecordId, Record)> {
        self.all(read_record)
    }

    pub(crate) fn record(&mut self) -> Parsed<(RecordId, Record)> {
        self.one("a record", read_record)
    }

    /// Takes records (`a0`), or ids with their shards and the bytes of their records
    /// (`s1:a0[100]`).
    pub(crate) fn entries(&mut self) -> Vec<(RecordId, Content)> {
        self.all(|word| match word.strip_prefix('s') {
            None => read_record(word).map(|(id, record)| (id, Content::Record(record))),
            Some(rest) => {
                let (shard, named) = rest.split_once(':')?;
                let (name, bytes) = named.split_once('[').unwrap_or((named, "0"));
                let bytes = bytes.trim_end_matches(']').parse().ok()?;
                Some((read_id(name)?, Content::Put { shard: ShardId(shard.parse().ok()?), bytes }))
            }
        })
    }

    pub(crate) fn ids(&mut self) -> Vec<IdRun> {
        runs_of(self.all(read_id).into_iter())
    }

    /// `what=a0,a1`; may be missing.
    pub(crate) fn ids_in(&mut self, what: &str) -> Parsed<Vec<IdRun>> {
        let text = self.value::<String>(what)?.unwrap_or_default();
        let ids = text.split(',').filter(|word| !word.is_empty());
        let ids = ids.map(|word| read_id(word).ok_or(format!("which name is '{word}'?")));
        Ok(runs_of(ids.collect::<Parsed<Vec<_>>>()?.into_iter()))
    }

    /// Takes ids; `!a0` is a no-op.
    pub(crate) fn bound(&mut self) -> Vec<BoundIds> {
        marked(&self.all(read_marked))
    }

    /// Takes the first word for empty positions.
    pub(crate) fn padding(&mut self) -> Option<IdRun> {
        self.one("padding", read_empty).ok()
    }

    /// Names with their shards; `!` marks no-ops. `empty:a0` and `empty@7*5` are empty positions.
    pub(crate) fn ordered(&mut self) -> Vec<Ordered> {
        let runs = self.all(|word| {
            if let Some(ids) = read_empty(word) {
                return Some(vec![Ordered { ids, shard: ShardId::NOBODY, is_void: true }]);
            }
            let (shard, ids) = word.strip_prefix('s')?.split_once(':')?;
            let shard = ShardId(shard.parse().ok()?);
            let ids = ids.split(',').map(read_marked).collect::<Option<Vec<_>>>()?;
            let runs = marked(&ids).into_iter();
            Some(runs.map(|run| Ordered { ids: run.ids, shard, is_void: run.is_void }).collect::<Vec<_>>())
        });
        runs.into_iter().flatten().collect()
    }

    /// `owned=2*s0+1*s1`: shards of positions.
    pub(crate) fn owned(&mut self) -> Parsed<Vec<Owned>> {
        let text = self.value::<String>("owned")?.ok_or("which shards?")?;
        let wrong = || format!("what is 'owned={text}'?");
        let part = |word: &str| {
            let (count, shard) = word.split_once("*s")?;
            Some(Owned { shard: ShardId(shard.parse().ok()?), count: count.parse().ok()? })
        };
        text.split('+').filter(|word| !word.is_empty()).map(|word| part(word).ok_or_else(wrong)).collect()
    }

    pub(crate) fn stored(&mut self) -> Vec<(Position, RecordId, Record)> {
        self.all(|word| {
            let (position, record) = word.split_once(':')?;
            let position = Position(position.parse().ok()?);
            let (id, record) = if record == "junk" { junk(position) } else { read_record(record)? };
            Some((position, id, record))
        })
    }

    pub(crate) fn sessions(&mut self, ordered: Position) -> Parsed<Sessions> {
        let text = self.value::<String>("sessions")?.unwrap_or_default();
        let mut sessions = Sessions::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = || format!("what is the session '{word}'?");
            let (state, bound) = word.trim_end_matches(')').split_once('(').unwrap_or((word, ""));
            let (name, next) = state.rsplit_once(':').ok_or_else(wrong)?;
            let (session, _) = read_session(name).ok_or_else(wrong)?;
            let (next, end) = next.split_once('/').map_or((next, None), |(next, end)| (next, Some(end)));
            let (end, successor) = match end.and_then(|end| end.split_once('>')) {
                Some((end, successor)) => (Some(end), read_session(successor)),
                None => (end, None),
            };
            sessions.admit(session, next.parse().map_err(|_| wrong())?, 0, ordered);
            if let Some(end) = end {
                sessions.end(session, end.parse().map_err(|_| wrong())?);
            }
            if let Some((successor, _)) = successor {
                sessions.succeed(session, successor);
                sessions.open(successor, ordered);
            }
            for pair in bound.split('+').filter(|pair| !pair.is_empty()) {
                if let Some(number) = pair.strip_prefix('!') {
                    let ids = IdRun { session, first: number.parse().map_err(|_| wrong())?, count: 1 };
                    sessions.apply(BoundIds { ids, is_void: true }, ordered);
                    continue;
                }
                let (number, position) = pair.split_once('@').ok_or_else(wrong)?;
                let first = number.parse().map_err(|_| wrong())?;
                let position = Position(position.parse().map_err(|_| wrong())?);
                sessions.bind(IdRun { session, first, count: 1 }, position);
            }
        }
        Ok(sessions)
    }

    /// Rejects words that no reader has taken.
    pub(crate) fn end(self) -> Parsed<()> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("what is '{}'?", self.0.join(" "))) }
    }
}

/// Difference between the random numbers of a client's successive sessions.
const NEXT_SESSION: u64 = 0x9E37_79B9_7F4A_7C15;

/// Splits a word after its session: `a`, `a'` or `a@5`.
fn read_session(word: &str) -> Option<(SessionId, &str)> {
    let letter = word.bytes().next().filter(|letter| (b'a'..=b'h').contains(letter))?;
    let rest = word[1..].trim_start_matches('\'');
    let later = (word.len() - 1 - rest.len()) as u64;
    let random = u64::from(letter - b'a' + 1).wrapping_add(later.wrapping_mul(NEXT_SESSION));
    let Some(rest) = rest.strip_prefix('@') else {
        return Some((SessionId::new(Position(0), random), rest));
    };
    let (tail, rest) = rest.split_once(':').unwrap_or((rest, ""));
    Some((SessionId::new(Position(tail.parse().ok()?), random), rest))
}

/// `a0`, `a0=text` or `a0[100]`.
fn read_record(word: &str) -> Option<(RecordId, Record)> {
    let name_end = word.find(['=', '[']).unwrap_or(word.len());
    let (name, contents) = word.split_at(name_end);
    let (session, number) = read_session(name)?;
    let id = RecordId { session, number: number.parse().ok()? };
    let payload = match contents.strip_prefix('=') {
        Some(text) => text.to_owned(),
        None if contents.is_empty() => name.to_owned(),
        None => "x".repeat(contents.trim_matches(['[', ']']).parse().ok()?),
    };
    Some((id, Record::new(payload.as_bytes(), 0)))
}

fn read_id(word: &str) -> Option<RecordId> {
    let (session, number) = read_session(word)?;
    Some(RecordId { session, number: number.parse().ok()? })
}

/// `a0`, or `!a0` for a no-op.
fn read_marked(word: &str) -> Option<(RecordId, bool)> {
    let name = word.strip_prefix('!');
    Some((read_id(name.unwrap_or(word))?, name.is_some()))
}

/// Empty positions: `empty:a0,a1`, or `empty@7*5` for five from position 7 on, without names.
pub(crate) fn empty(ids: IdRun) -> String {
    match is_junk(RecordId { session: ids.session, number: ids.first }) {
        true => format!("empty@{}*{}", ids.first, ids.count),
        false => format!(
            "empty:{}",
            list(&ids.ids().collect::<Vec<_>>(), ",", |name| id(name.session, name.number))
        ),
    }
}

pub(crate) fn read_empty(word: &str) -> Option<IdRun> {
    if let Some((first, count)) = word.strip_prefix("empty@").and_then(|padding| padding.split_once('*')) {
        let (id, _) = junk(Position(first.parse().ok()?));
        return Some(IdRun { session: id.session, first: id.number, count: count.parse().ok()? });
    }
    let ids = word.strip_prefix("empty:")?.split(',').map(read_id).collect::<Option<Vec<_>>>()?;
    let [ids] = runs_of(ids.into_iter())[..] else { return None };
    Some(ids)
}

fn marked(ids: &[(RecordId, bool)]) -> Vec<BoundIds> {
    let same = ids.chunk_by(|(_, a), (_, b)| a == b);
    let runs = same.flat_map(|part| {
        let runs = runs_of(part.iter().map(|(id, _)| *id)).into_iter();
        runs.map(|ids| BoundIds { ids, is_void: part[0].1 })
    });
    runs.collect()
}

pub(crate) fn session(id: SessionId) -> String {
    let random = id.0 as u64;
    let name = (0..9).find_map(|later: u64| {
        let letter = random.wrapping_sub(later.wrapping_mul(NEXT_SESSION));
        let letter = (1..=8).contains(&letter).then(|| char::from(b'a' + letter as u8 - 1))?;
        Some(format!("{letter}{}", "'".repeat(later as usize)))
    });
    let name = name.unwrap_or_else(|| format!("session-{random:x}"));
    if id.opened_at() == Position(0) { name } else { format!("{name}@{}", id.opened_at()) }
}

pub(crate) fn id(session_id: SessionId, number: u64) -> String {
    if is_junk(RecordId { session: session_id, number }) {
        return "junk".into();
    }
    let name = session(session_id);
    if name.contains('@') { format!("{name}:{number}") } else { format!("{name}{number}") }
}

pub(crate) fn record(session: SessionId, number: u64, record: &Record) -> String {
    let (name, payload) = (id(session, number), record.payload());
    match String::from_utf8_lossy(&payload) {
        _ if record.is_no_op() => name,
        text if text == name => name,
        text if text.len() > 20 => format!("{name}[{}]", text.len()),
        text => format!("{name}={text}"),
    }
}

/// `seq1`, `shard0.4`, `client1`, `node1`; a controller or register without a number is on node 1.
pub(crate) fn address(address: Address) -> String {
    match address {
        Address::Node(NodeId(1), Endpoint::Register) => "register".into(),
        Address::Node(NodeId(1), Endpoint::Controller) => "controller".into(),
        Address::Node(node, Endpoint::Register) => format!("register{node}"),
        Address::Node(node, Endpoint::Controller) => format!("controller{node}"),
        Address::Node(node, Endpoint::Sequencer) => format!("seq{node}"),
        Address::Node(node, Endpoint::Shard(shard)) => format!("shard{shard}.{node}"),
        Address::Node(node, Endpoint::Node) => format!("node{node}"),
        Address::Node(node, Endpoint::Client(client)) => format!("client{client}-on-node{node}"),
        Address::Client(connection, _) => format!("client{}", connection.0),
    }
}

/// An address with its incarnation: `seq1#2`.
pub(crate) fn read_address(word: &str) -> Parsed<(Address, Incarnation)> {
    let (name, incarnation) = word.split_once('#').unwrap_or((word, "1"));
    let wrong = |_| format!("who is '{word}'?");
    let incarnation = Incarnation(incarnation.parse().map_err(wrong)?);
    let digits = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (kind, number) = name.split_at(digits);
    let (shard, node) = number.split_once('.').unwrap_or(("", number));
    let number: u32 = if node.is_empty() { 1 } else { node.parse().map_err(wrong)? };
    let endpoint = match kind {
        "register" => Endpoint::Register,
        "controller" => Endpoint::Controller,
        "seq" => Endpoint::Sequencer,
        "shard" => Endpoint::Shard(ShardId(shard.parse().map_err(wrong)?)),
        "node" => Endpoint::Node,
        "client" => return Ok((Address::Client(ConnectionId(number.into()), 0), incarnation)),
        _ => return Err(format!("who is '{word}'?")),
    };
    Ok((Address::Node(NodeId(number), endpoint), incarnation))
}

pub(crate) fn list<T>(
    items: impl IntoIterator<Item = T>,
    with: &str,
    show: impl FnMut(T) -> String,
) -> String {
    items.into_iter().map(show).collect::<Vec<_>>().join(with)
}

pub(crate) fn owned(owned: &[Owned]) -> String {
    list(owned, "+", |owned| format!("{}*s{}", owned.count, owned.shard))
}

/// `1`, or `1#2` for the second incarnation.
pub(crate) fn member(member: &Member) -> String {
    match member.incarnation {
        Incarnation(1) => member.node.to_string(),
        Incarnation(incarnation) => format!("{}#{incarnation}", member.node),
    }
}

fn numbers(shards: &[ShardId]) -> String {
    list(shards, ",", ToString::to_string)
}

pub(crate) fn read_member(word: &str) -> Parsed<Member> {
    let (node, incarnation) = word.split_once('#').unwrap_or((word, "1"));
    let wrong = |_| format!("who is '{word}'?");
    let (node, incarnation) = (node.parse().map_err(wrong)?, incarnation.parse().map_err(wrong)?);
    Ok(Member { node: NodeId(node), incarnation: Incarnation(incarnation) })
}

/// The replicas of each shard; `@5` if it joined at position 5, `-` if it left.
pub(crate) fn shards(shards: &[ShardMembers]) -> String {
    let of = |shard| {
        let Some(members) = shards.iter().find(|members| members.shard == shard) else {
            return "-".to_owned();
        };
        let begins =
            if members.begins > Position::ZERO { format!("@{}", members.begins) } else { String::new() };
        list(&members.replicas, "+", member) + &begins
    };
    let end = shards.last().map_or(0, |members| members.shard.0 + 1);
    (0..end).map(|shard| of(ShardId(shard))).collect::<Vec<_>>().join(",")
}

pub(crate) fn view(view: &View) -> String {
    let sequencers =
        list(&view.sequencers, ",", |named| member(named) + if named.node == view.leader { "*" } else { "" });
    let (number, shards) = (view.number, shards(&view.shards));
    let all: Vec<ShardId> = view.shards.iter().map(|members| members.shard).collect();
    let open = if view.open_shards() == all {
        String::new()
    } else {
        format!(" open={}", numbers(view.open_shards()))
    };
    let others = |of: &RetiredShard| {
        let others = of.nodes().skip(of.members().replicas.len());
        others.map(|node| format!("+{node}")).collect::<String>()
    };
    let retired =
        list(&view.retired, ",", |of| format!("{}@{}/v{}{}", of.shard, of.until, of.last.number, others(of)));
    let retired = unless(String::new(), "retired", retired);
    format!(
        "v{number} sequencers={sequencers} shards={shards}{open}{retired} first={} start={}",
        view.first, view.start
    )
}

/// A view in words. Missing words have the values of the log's creation.
pub(crate) fn read_view(words: &mut Words, entry: &LogEntry) -> Parsed<View> {
    let number = words.view()?;
    let default = list(&entry.sequencers, ",", ToString::to_string);
    let sequencers = words.value::<String>("sequencers")?.unwrap_or(default);
    let default = list(&entry.shards, ",", |nodes| list(nodes, "+", ToString::to_string));
    let shards = words.value::<String>("shards")?.unwrap_or(default);
    let leader = sequencers.split(',').find(|word| word.ends_with('*'));
    let leader = leader.or(sequencers.split(',').next()).unwrap_or_default().trim_end_matches('*');
    let members = |text: &str, by: char| -> Parsed<Vec<Member>> {
        text.split(by).map(|word| read_member(word.trim_end_matches('*'))).collect()
    };
    let shard = |(shard, text): (u32, &str)| {
        let (text, begins) = text.split_once('@').unwrap_or((text, "0"));
        let begins = Position(begins.parse().map_err(|_| format!("where does '{text}' join?"))?);
        Ok(ShardMembers { shard: ShardId(shard), begins, replicas: members(text, '+')? })
    };
    let present = (0..).zip(shards.split(',')).filter(|(_, text)| *text != "-");
    let shards: Vec<ShardMembers> = present.map(shard).collect::<Parsed<_>>()?;
    let first = words.position("first")?;
    let from_start = shards.iter().filter(|members| members.begins == Position::ZERO);
    let placement = Placement::new(from_start.map(|of| of.shard).collect(), entry.config.stripe);
    let retired = read_retired(words, entry)?;
    let open = words.shards("open")?;
    let all: Vec<ShardId> = shards.iter().map(|of| of.shard).collect();
    let open = if open.is_empty() { all } else { open };
    Ok(View {
        number,
        leader: read_member(leader)?.node,
        sequencers: members(&sequencers, ',')?,
        retired,
        placement: if open == placement.latest() { placement } else { placement.then(first, open) },
        shards,
        first,
        start: words.position("start")?,
    })
}

/// `0@3+5`: retired shard 0 has positions below 3, and node 5 must also keep a copy.
fn read_retired(words: &mut Words, entry: &LogEntry) -> Parsed<Vec<RetiredShard>> {
    let Some(text) = words.value::<String>("retired")? else { return Ok(vec![]) };
    let of = |text: &str| {
        let (shard, until) = text.split_once('@')?;
        let (shard, view) = (ShardId(shard.parse().ok()?), entry.view.clone()?);
        let known = view.retired(shard).map(|retired| retired.last.clone());
        let last = known.unwrap_or(View { retired: vec![], ..view });
        last.shard(shard)?;
        let (until, others) = until.split_once('+').unwrap_or((until, ""));
        let mut retired = RetiredShard::new(shard, last, Position(until.parse().ok()?));
        for node in others.split('+').filter(|node| !node.is_empty()) {
            retired.add_copy(NodeId(node.parse().ok()?));
        }
        Some(retired)
    };
    let retired = text.split(',').map(of).collect::<Option<Vec<_>>>();
    retired.ok_or_else(|| format!("who is retired in '{text}'?"))
}

/// `0@3..5`: positions that shard 0 lost.
pub(crate) fn read_gap(text: &str) -> Parsed<Gap> {
    let wrong = || format!("'{text}' is no gap");
    let (shard, range) = text.split_once('@').ok_or_else(wrong)?;
    let (from, end) = range.split_once("..").ok_or_else(wrong)?;
    let shard = ShardId(shard.parse().map_err(|_| wrong())?);
    let position = |text: &str| text.parse().map(Position).map_err(|_| wrong());
    Ok(Gap { shard, from: position(from)?, end: position(end)? })
}

pub(crate) fn history(history: &ViewHistory) -> String {
    let steps = history.steps().iter().map(|(view, first)| format!("v{view}@{first}"));
    let gaps = history.gaps().iter().map(|gap| format!("lost{}@{}..{}", gap.shard, gap.from, gap.end));
    list(steps.chain(gaps), ",", |word| word)
}

/// For each session: its next number, `/` its end, `>` its successor, and remembered positions; `!`
/// marks no-ops. Then the floor.
pub(crate) fn sessions(sessions: &Sessions) -> String {
    let ids = (0..8).map(|letter| SessionId::new(Position(0), letter + 1));
    let known = ids.filter_map(|id| Some((id, sessions.next(id)?)));
    let known: Vec<String> = known
        .map(|(id, next)| {
            let bound = (0..next).filter_map(|number| {
                let is_void = !sessions.voids(IdRun { session: id, first: number, count: 1 }).is_empty();
                let position = sessions.position(id, number).map(|position| format!("{number}@{position}"));
                if is_void { Some(format!("!{number}")) } else { position }
            });
            let bound = list(bound, "+", |word| word);
            let end = sessions.end_of(id).map(|end| format!("/{end}")).unwrap_or_default();
            let successor =
                sessions.successor_of(id).map(|id| format!(">{}", session(id))).unwrap_or_default();
            format!(
                "{}:{next}{end}{successor}{}",
                session(id),
                if bound.is_empty() { bound } else { format!("({bound})") }
            )
        })
        .collect();
    let others = sessions.len() - known.len();
    let others = (others > 0).then(|| format!("{others}-more"));
    let floor =
        Some(sessions.floor()).filter(|floor| *floor > Position::ZERO).map(|floor| format!("floor@{floor}"));
    list(known.into_iter().chain(others).chain(floor), ",", |word| word)
}

/// ` name=value`; empty if the value is `usual`.
pub(crate) fn unless<T: PartialEq + Display>(usual: T, name: &str, value: T) -> String {
    if value == usual { String::new() } else { format!(" {name}={value}") }
}
