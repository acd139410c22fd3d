//! Reads and writes messages of logs ordered by cuts.

use seriatim_model::{IdRun, Incarnation, Position, SessionId, ShardId};
use seriatim_protocol::cuts::message::{Course, Cut, End, Place};
use seriatim_protocol::cuts::window::{Lender, NextWindow, Share, Window};
use seriatim_protocol::cuts::{Rest, ShardMessage, Submitted};
use seriatim_protocol::{Message, cuts};

use crate::effects::{following, ids, ordered};
use crate::messages;
use crate::words::{self, Parsed, Words, list, session, unless};

/// ` a0,a1/0 b3/2`: names, and the lowest number that their client waits for.
fn submitted(names: &[Submitted]) -> String {
    names.iter().map(|names| format!("{}/{}", run(names.ids), names.lowest)).collect()
}

/// ` a0,a1`, or ` empty@3*2` for padding.
fn run(of: IdRun) -> String {
    if of.session == SessionId::NOBODY {
        return format!(" {}", words::empty(of));
    }
    format!(" {}", ids(&[of]).trim_start().replace(' ', ","))
}

/// `w0@0*4/1:s0*10@0,s1*10@0+s2*7`: number, base, cuts and groups; quota and first index of each
/// shard that keeps one; quotas of lenders.
fn window(of: &Window) -> String {
    let share = |share: &Share| format!("s{}*{}@{}", share.shard, share.quota, share.index);
    let shares = list(&of.shares, ",", share);
    format!("w{}@{}*{}/{}:{shares}{}", of.number, of.base, of.cuts, of.groups, lenders(&of.lenders))
}

fn lenders(lenders: &[Lender]) -> String {
    let lenders = list(lenders, ",", |lender| format!("s{}*{}", lender.shard, lender.quota));
    if lenders.is_empty() { lenders } else { format!("+{lenders}") }
}

/// `s0*10,s1*10`.
fn read_quotas(text: &str) -> Parsed<Vec<(ShardId, u32)>> {
    let quota = |text: &str| {
        let (shard, quota) = text.trim_start_matches('s').split_once('*')?;
        Some((ShardId(shard.parse().ok()?), quota.parse().ok()?))
    };
    let quotas = text.split(',').filter(|text| !text.is_empty()).map(quota);
    quotas.collect::<Option<Vec<_>>>().ok_or_else(|| format!("which quotas are '{text}'?"))
}

/// Splits `text` into the part before the lenders' quotas, and the quotas.
fn read_lenders(text: &str) -> Parsed<(&str, Vec<Lender>)> {
    let (before, lenders) = text.split_once('+').unwrap_or((text, ""));
    let lenders = read_quotas(lenders)?.into_iter().map(|(shard, quota)| Lender { shard, quota });
    Ok((before, lenders.collect()))
}

/// `4:s0*10,s1*10+s2*7`: cuts, quotas, and quotas of lenders.
fn next_window(of: &NextWindow) -> String {
    let keepers = list(&of.keepers, ",", |(shard, quota)| format!("s{shard}*{quota}"));
    format!("{}:{keepers}{}", of.cuts, lenders(&of.lenders))
}

fn read_next_window(word: &str) -> Parsed<NextWindow> {
    let wrong = || format!("which window is '{word}'?");
    let (cuts, keepers) = word.split_once(':').ok_or_else(wrong)?;
    let (keepers, lenders) = read_lenders(keepers)?;
    Ok(NextWindow { cuts: cuts.parse().map_err(|_| wrong())?, keepers: read_quotas(keepers)?, lenders })
}

fn read_window(word: &str) -> Parsed<Window> {
    let wrong = || format!("which window is '{word}'?");
    let parts = |text: &str| -> Option<Vec<u64>> {
        text.split(['@', '*', '/']).map(|part| part.trim_start_matches(['w', 's']).parse().ok()).collect()
    };
    let (window, shares) = word.split_once(':').ok_or_else(wrong)?;
    let (shares, lenders) = read_lenders(shares)?;
    let share = |text: &str| match parts(text)?[..] {
        [shard, quota, index] => Some(Share { shard: ShardId(shard as u32), quota: quota as u32, index }),
        _ => None,
    };
    let shares = shares.split(',').map(share).collect::<Option<Vec<_>>>().ok_or_else(wrong)?;
    match parts(window).ok_or_else(wrong)?[..] {
        [number, base, cuts, groups] => {
            let (number, cuts, groups) = (number as u32, cuts as u32, groups as u32);
            Ok(Window { number, base: Position(base), cuts, groups, shares, lenders })
        }
        _ => Err(wrong()),
    }
}

/// ` course=0.1 next=4:s0*10`; empty without a course.
fn course(course: Option<&Course>) -> String {
    let Some(Course { window: of, made, next }) = course else { return String::new() };
    let next = next.as_ref().map(|next| format!(" next={}", next_window(next))).unwrap_or_default();
    format!(" course={of}.{made}{next}")
}

fn cut(cut: &Cut) -> String {
    let lengths = list(&cut.lengths, ",", |(shard, length)| format!("{shard}:{length}"));
    let names: String = cut
        .names
        .iter()
        .map(|(shard, names)| match *shard {
            ShardId::NOBODY => format!(" {}/{}", words::empty(names.ids), names.lowest),
            shard => format!(" s{shard}:{}", submitted(&[*names]).trim_start()),
        })
        .collect();
    let end = |end: &End| {
        let (of, successor) = (session(end.session), session(end.successor));
        format!(" {of}->{successor}@{}/s{}", end.at, end.shard)
    };
    let ends: String = cut.ends.iter().map(end).collect();
    format!("from={} lengths={lengths}{}{names}{ends}", cut.from, course(cut.course.as_ref()))
}

pub(crate) fn sequencing(message: &cuts::Message) -> String {
    use cuts::Message::*;
    match message {
        Cut { view, bound, cut: of } => format!("cut v{view} {} bound={bound}", cut(of)),
        Held { view, end } => format!("held v{view} end={end}"),
        Locate { view, session: of, first, count } => {
            format!("locate v{view} {} first={first} count={count}", session(*of))
        }
        Located { view, session: of, next, places } => {
            let place = |place: &Place| {
                let at = place.position.map_or("forgotten".to_owned(), |position| position.to_string());
                format!("{}+{}:{at}", place.number, place.count)
            };
            let places = unless(String::new(), "places", list(places, ",", place));
            format!("located v{view} {} next={next}{places}", session(*of))
        }
        Expired { session: of } => format!("expired {}", session(*of)),
        Close { view, session: of, successor } => {
            format!("close v{view} {} successor={}", session(*of), session(*successor))
        }
        Ended { view, session: of, at, successor } => {
            format!("ended v{view} {} at={at} successor={}", session(*of), session(*successor))
        }
    }
}

pub(crate) fn shard(message: &ShardMessage) -> String {
    use ShardMessage::*;
    let contents = |names: IdRun, records: &[seriatim_model::Record]| {
        following(names.session, names.first, &records.iter().cloned().map(Into::into).collect::<Vec<_>>())
    };
    match message {
        Submit { view, session: of, lowest, first, records } => {
            let names = IdRun { session: *of, first: *first, count: records.len() as u64 };
            format!("submit v{view} lowest={lowest}{}", contents(names, records))
        }
        Appended { view, ids: of, first } => format!("appended v{view}{} at={first}", run(*of)),
        OutOfOrder { view, session: of, expected } => {
            format!("out-of-order v{view} {} expected={expected}", session(*of))
        }
        LocalAppend { view, incarnation, index, names, records } => {
            let incarnation = unless(1, "incarnation", incarnation.0);
            let (lowest, records) = match records.is_empty() {
                true => (names.lowest, run(names.ids)),
                false => (names.lowest, contents(names.ids, records)),
            };
            format!("local-append v{view} index={index} lowest={lowest}{incarnation}{records}")
        }
        LocalAck { view, length, asks } => {
            format!("local-ack v{view} length={length}{}", if *asks { " asks" } else { "" })
        }
        Report { view, length, from, names } => {
            format!("report v{view} length={length} from={from}{}", submitted(names))
        }
        CutAck { view, end, length } => format!("cut-ack v{view} end={end} length={length}"),
        Cover { view, of, batch, backups, length, runs } => {
            let backups = unless(String::new(), "backups", list(backups, "+", words::member));
            let of = unless(view.0, "of", of.0);
            format!("cover v{view} batch={batch} length={length}{backups}{of}{}", ordered(runs))
        }
        ReplicateCover { view, of, batch, incarnation, length, runs } => {
            let (incarnation, of) = (unless(1, "incarnation", incarnation.0), unless(view.0, "of", of.0));
            format!("replicate-cover v{view} batch={batch} length={length}{incarnation}{of}{}", ordered(runs))
        }
        Fix { view, length } => format!("fix v{view} length={length}"),
        LocalStored { view, length } => format!("local-stored v{view} length={length}"),
        Windows { view, windows } => {
            let windows: String = windows.iter().map(|of| format!(" {}", window(of))).collect();
            format!("windows v{view}{windows}")
        }
        WindowsKnown { view, number } => format!("windows-known v{view} number={number}"),
        AskRest { view, of } => format!("ask-rest v{view} of={of}"),
        RestIs { view, rest: None } => format!("no-rest v{view}"),
        RestIs { view, rest: Some(Rest::LocalLog { from, names }) } => {
            format!("rest v{view} from={from}{}", submitted(names))
        }
        RestIs { view, rest: Some(Rest::Held { names }) } => {
            format!("rest v{view} held{}", names.iter().map(|names| run(*names)).collect::<String>())
        }
        Closing { view, batch, backups, runs } => {
            let backups = unless(String::new(), "backups", list(backups, "+", words::member));
            format!("closing v{view} batch={batch}{backups}{}", ordered(runs))
        }
        ReplicateClosing { view, batch, incarnation, runs } => {
            let incarnation = unless(1, "incarnation", incarnation.0);
            format!("replicate-closing v{view} batch={batch}{incarnation}{}", ordered(runs))
        }
        Owe { view } => format!("owe v{view}"),
        Owed { view, of, first, runs } => format!("owed v{view} of={of} batch={first}{}", ordered(runs)),
    }
}

/// `a0,a1/0`.
fn read_submitted(word: &str) -> Parsed<Submitted> {
    let (names, lowest) = word.split_once('/').ok_or_else(|| format!("what is '{word}'?"))?;
    let lowest = lowest.parse().map_err(|_| format!("what is the lowest of '{word}'?"))?;
    Ok(Submitted { ids: read_run(names)?, lowest })
}

fn read_run(names: &str) -> Parsed<IdRun> {
    if let Some(empty) = words::read_empty(names) {
        return Ok(empty);
    }
    let runs = Words::new(&names.replace(',', " ")).ids();
    let [ids] = runs[..] else { return Err(format!("'{names}' is not one run")) };
    Ok(ids)
}

fn read_cut(words: &mut Words) -> Parsed<Cut> {
    let from = words.position("from")?;
    let course = read_course(words)?;
    let lengths = words.value::<String>("lengths")?.ok_or("how long are the shards?")?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("what is '{text}'?"));
    let pair = |text: &str| {
        let (shard, length) = text.split_once(':').ok_or_else(|| format!("what is '{text}'?"))?;
        Ok::<_, String>((ShardId(number(shard)? as u32), number(length)?))
    };
    let lengths = lengths.split(',').map(pair).collect::<Parsed<Vec<_>>>()?;
    let mut names = vec![];
    let mut ends = vec![];
    while let Ok(word) = words.next() {
        if let Some((of, rest)) = word.split_once("->") {
            let parts = rest.split_once('@').and_then(|(to, rest)| Some((to, rest.split_once("/s")?)));
            let (to, (at, shard)) = parts.ok_or_else(|| format!("what is '{word}'?"))?;
            let (session, successor) = (Words::new(of).session()?, Words::new(to).session()?);
            ends.push(End { session, at: number(at)?, successor, shard: ShardId(number(shard)? as u32) });
            continue;
        }
        if let Some((empty, lowest)) = word.split_once('/').filter(|(empty, _)| empty.starts_with("empty")) {
            let ids = words::read_empty(empty).ok_or_else(|| format!("what is '{word}'?"))?;
            names.push((ShardId::NOBODY, Submitted { ids, lowest: number(lowest)? }));
            continue;
        }
        let (shard, rest) = word.split_once(':').ok_or_else(|| format!("what is '{word}'?"))?;
        names.push((ShardId(number(shard.trim_start_matches('s'))? as u32), read_submitted(rest)?));
    }
    Ok(Cut { from, lengths, names, ends, course })
}

fn read_course(words: &mut Words) -> Parsed<Option<Course>> {
    let Some(text) = words.value::<String>("course")? else { return Ok(None) };
    let next = words.value::<String>("next")?.map(|next| read_next_window(&next)).transpose()?;
    let parts = text.split_once('.').and_then(|(of, made)| Some((of.parse().ok()?, made.parse().ok()?)));
    let (window, made) = parts.ok_or_else(|| format!("what is the course '{text}'?"))?;
    Ok(Some(Course { window, made, next }))
}

/// Returns `None` for messages that all orderings have.
pub(crate) fn read(
    kind: &str,
    words: &mut Words,
    entry: &seriatim_protocol::control::LogEntry,
) -> Parsed<Option<Message>> {
    if !entry.config.order.has_cuts() {
        return Ok(None);
    }
    if let Some(message) = read_sequencing(kind, words)? {
        return Ok(Some(message.into()));
    }
    use ShardMessage::*;
    Ok(Some(Message::from(match kind {
        "submit" => {
            let (view, lowest) = (words.view()?, words.number("lowest")?);
            let (session, first, records) = messages::consecutive_records(words)?;
            Submit { view, session, lowest, first, records }
        }
        "appended" => {
            let (view, first) = (words.view()?, words.position("at")?);
            Appended { view, first, ids: read_run(&words.next()?)? }
        }
        "out-of-order" => {
            OutOfOrder { view: words.view()?, session: words.session()?, expected: words.number("expected")? }
        }
        "local-append" => {
            let (view, index, lowest) = (words.view()?, words.number("index")?, words.number("lowest")?);
            let incarnation = Incarnation(words.value("incarnation")?.unwrap_or(1));
            if let Some(ids) = words.padding() {
                let names = Submitted { ids, lowest };
                return Ok(Some(LocalAppend { view, incarnation, index, names, records: vec![] }.into()));
            }
            let (session, first, records) = messages::consecutive_records(words)?;
            let ids = IdRun { session, first, count: records.len() as u64 };
            LocalAppend { view, incarnation, index, names: Submitted { ids, lowest }, records }
        }
        "local-ack" => {
            let (view, length) = (words.view()?, words.number("length")?);
            LocalAck { view, length, asks: words.has("asks") }
        }
        "report" => {
            let (view, length, from) = (words.view()?, words.number("length")?, words.number("from")?);
            let mut names = vec![];
            while let Ok(word) = words.next() {
                names.push(read_submitted(&word)?);
            }
            Report { view, length, from, names }
        }
        "cut-ack" => {
            CutAck { view: words.view()?, end: words.position("end")?, length: words.number("length")? }
        }
        "cover" | "replicate-cover" => {
            let (view, batch, length) = (words.view()?, words.position("batch")?, words.number("length")?);
            let of = words.value("of")?.map_or(view, seriatim_model::ViewNumber);
            let incarnation = Incarnation(words.value("incarnation")?.unwrap_or(1));
            let backups = messages::backups(words)?;
            let runs = words.ordered();
            match kind {
                "cover" => Cover { view, of, batch, backups, length, runs },
                _ => ReplicateCover { view, of, batch, incarnation, length, runs },
            }
        }
        _ => match read_windows(kind, words)? {
            Some(message) => message,
            None => return Ok(read_closing(kind, words)?.map(Message::from)),
        },
    })))
}

fn read_windows(kind: &str, words: &mut Words) -> Parsed<Option<ShardMessage>> {
    use ShardMessage::*;
    Ok(Some(match kind {
        "fix" => Fix { view: words.view()?, length: words.number("length")? },
        "local-stored" => LocalStored { view: words.view()?, length: words.number("length")? },
        "windows" => {
            let view = words.view()?;
            let mut windows = vec![];
            while let Ok(word) = words.next() {
                windows.push(read_window(&word)?);
            }
            Windows { view, windows }
        }
        "windows-known" => {
            let view = words.view()?;
            WindowsKnown { view, number: words.value("number")?.ok_or("which is the last?")? }
        }
        _ => return Ok(None),
    }))
}

fn read_closing(kind: &str, words: &mut Words) -> Parsed<Option<ShardMessage>> {
    use ShardMessage::*;
    Ok(Some(match kind {
        "ask-rest" => {
            let view = words.view()?;
            AskRest { view, of: words.value("of")?.map(seriatim_model::ViewNumber).ok_or("of which view?")? }
        }
        "no-rest" => RestIs { view: words.view()?, rest: None },
        "rest" if words.has("held") => {
            let view = words.view()?;
            let mut names = vec![];
            while let Ok(word) = words.next() {
                names.push(read_run(&word)?);
            }
            RestIs { view, rest: Some(Rest::Held { names }) }
        }
        "rest" => {
            let (view, from) = (words.view()?, words.number("from")?);
            let mut names = vec![];
            while let Ok(word) = words.next() {
                names.push(read_submitted(&word)?);
            }
            RestIs { view, rest: Some(Rest::LocalLog { from, names }) }
        }
        "owe" => Owe { view: words.view()? },
        "owed" => {
            let (view, of) = (words.view()?, words.value("of")?.ok_or("of which view?")?);
            let (of, first) = (seriatim_model::ViewNumber(of), words.position("batch")?);
            Owed { view, of, first, runs: words.ordered() }
        }
        "closing" | "replicate-closing" => {
            let (view, batch) = (words.view()?, words.position("batch")?);
            let incarnation = Incarnation(words.value("incarnation")?.unwrap_or(1));
            let backups = messages::backups(words)?;
            let runs = words.ordered();
            match kind {
                "closing" => Closing { view, batch, backups, runs },
                _ => ReplicateClosing { view, batch, incarnation, runs },
            }
        }
        _ => return Ok(None),
    }))
}

fn read_successor(words: &mut Words) -> Parsed<SessionId> {
    Ok(words.session_in("successor")?.ok_or("which session comes after it?")?)
}

fn read_sequencing(kind: &str, words: &mut Words) -> Parsed<Option<cuts::Message>> {
    use cuts::Message::*;
    Ok(Some(match kind {
        "cut" => {
            let (view, bound) = (words.view()?, words.position("bound")?);
            Cut { view, bound, cut: read_cut(words)? }
        }
        "held" => Held { view: words.view()?, end: words.position("end")? },
        "locate" => {
            let (view, session) = (words.view()?, words.session()?);
            Locate { view, session, first: words.number("first")?, count: words.number("count")? }
        }
        "located" => {
            let (view, session, next) = (words.view()?, words.session()?, words.number("next")?);
            let places = words.value::<String>("places")?.unwrap_or_default();
            let place = |word: &str| {
                let (numbers, at) = word.split_once(':')?;
                let (number, count) = numbers.split_once('+')?;
                let position = at.parse().ok().map(seriatim_model::Position);
                Some(Place { number: number.parse().ok()?, count: count.parse().ok()?, position })
            };
            let words = places.split(',').filter(|word| !word.is_empty());
            let places = words.map(|word| place(word).ok_or_else(|| format!("what is '{word}'?")));
            Located { view, session, next, places: places.collect::<Parsed<_>>()? }
        }
        "close" => {
            let (view, session) = (words.view()?, words.session()?);
            Close { view, session, successor: read_successor(words)? }
        }
        "ended" => {
            let (view, session, at) = (words.view()?, words.session()?, words.number("at")?);
            Ended { view, session, at, successor: read_successor(words)? }
        }
        "expired" => Expired { session: words.session()? },
        _ => return Ok(None),
    }))
}
