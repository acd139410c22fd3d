//! Reads and writes messages of logs whose records get their positions first.

use seriatim_model::{Incarnation, Position, RecordId, Span, ViewNumber};
use seriatim_protocol::control::LogEntry;
use seriatim_protocol::corfu::ShardMessage;
use seriatim_protocol::parts::junk::junk;
use seriatim_protocol::{Message, corfu, shard};

use crate::effects::runs;
use crate::messages;
use crate::words::{self, Parsed, Words, id, list, session, unless};

pub(crate) fn spans(spans: &[Span]) -> String {
    list(spans, ",", |span| format!("{}..{}", span.first, span.end()))
}

fn others(others: &[(Position, RecordId)]) -> String {
    let shown =
        list(others, ",", |(position, other)| format!("{position}:{}", id(other.session, other.number)));
    unless(String::new(), "others", shown)
}

pub(crate) fn sequencing(message: &corfu::Message) -> String {
    use corfu::Message::*;
    match message {
        Close { .. } | Closed { .. } | Expired { .. } => format!("{message:?}"),
        Next { view, session: of, take, ungranted, first, count, fill_timeout_ms, since } => {
            let (take, ungranted) = (unless(0, "take", *take), unless(*first, "ungranted", *ungranted));
            let fill_timeout = unless(10, "fill-timeout", *fill_timeout_ms);
            let since = unless(0, "since", since.0);
            let of = session(*of);
            format!("next v{view} {of} first={first} count={count}{take}{ungranted}{fill_timeout}{since}")
        }
        Given { view, session: of, take, first, spans: of_them } => {
            let take = unless(0, "take", *take);
            format!("given v{view} {} first={first} at={}{take}", session(*of), spans(of_them))
        }
        OutOfOrder { view, session: of, take, expected } => {
            format!("out-of-order v{view} {} expected={expected}{}", session(*of), unless(0, "take", *take))
        }
        Unwritten { view, session: of, take, spans: of_them } => {
            format!("unwritten v{view} {} at={}{}", session(*of), spans(of_them), unless(0, "take", *take))
        }
        Writing { view, session: of, left } => {
            let left = unless(String::new(), "left", spans(left));
            format!("writing v{view} {}{left}", session(*of))
        }
    }
}

pub(crate) fn shard(message: &ShardMessage) -> String {
    use ShardMessage::*;
    match message {
        Write { view, runs: of } => format!("write v{view}{}", runs(of)),
        Written { view, spans: of, others: known } => {
            format!("written v{view} {}{}", spans(of), others(known))
        }
        Unreadable { view, spans: of } => format!("unreadable v{view} {}", spans(of)),
        Retry { view, spans: of, disk_full } => {
            format!("retry v{view} {}{}", spans(of), if *disk_full { " disk-full" } else { "" })
        }
        Pressed { view } => format!("pressed v{view}"),
        FillRequest { view, written, overdue } => {
            format!("fill-request v{view} written={written} overdue={overdue}")
        }
        Fill { view, spans: of } => format!("fill v{view} {}", spans(of)),
        Filled { view, run } => format!("filled v{view}{}", runs(std::slice::from_ref(run))),
        Vacant { claim, old, spans: of } => format!("vacant v{claim} old={old} {}", spans(of)),
        Offer { claim, upto, runs: of } => format!("offer v{claim} upto={upto}{}", runs(of)),
        Seek { view, session: of, from, end } => {
            format!("seek v{view} {} from={from} end={end}", session(*of))
        }
        Sought { view, session: of, from, upto, trim, found } => {
            format!("sought v{view} {} from={from} upto={upto} trim={trim} {}", session(*of), others(found))
        }
        Confirm { request, view } => format!("confirm v{view} request={request}"),
        Confirmed { request, view } => format!("confirmed v{view} request={request}"),
    }
}

pub(crate) fn flush(message: &shard::Message) -> Option<String> {
    use shard::Message::*;
    Some(match message {
        Flush { claim, first, end, backups, .. } => {
            let backups = unless(String::new(), "backups", list(backups, "+", words::member));
            format!("flush v{claim} first={first} end={end}{backups}")
        }
        Flushed { claim, upto } => format!("flushed v{claim} upto={upto}"),
        FlushFailed { claim } => format!("flush-failed v{claim}"),
        _ => return None,
    })
}

/// `3..5,7..8`.
pub(crate) fn read_spans(text: &str) -> Parsed<Vec<Span>> {
    let span = |part: &str| {
        let (first, end) = part.split_once("..")?;
        let (first, end): (u64, u64) = (first.parse().ok()?, end.parse().ok()?);
        Some(Span { first: Position(first), count: end - first })
    };
    let spans = text.split(',').map(|part| span(part).ok_or_else(|| format!("where is '{part}'?")));
    spans.collect()
}

/// `others=3:a0,4:junk`.
fn read_others(words: &mut Words) -> Parsed<Vec<(Position, RecordId)>> {
    let text = words.value::<String>("others")?.unwrap_or_default();
    let other = |word: &str| {
        let (position, name) = word.split_once(':').ok_or_else(|| format!("what is '{word}'?"))?;
        let position = Position(position.parse().map_err(|_| format!("where is '{word}'?"))?);
        let named = if name == "junk" { junk(position) } else { Words::new(name).record()? };
        Ok((position, named.0))
    };
    text.split(',').filter(|word| !word.is_empty()).map(other).collect()
}

/// Returns `None` for messages that all orderings have.
pub(crate) fn read(kind: &str, words: &mut Words, entry: &LogEntry) -> Parsed<Option<Message>> {
    if !entry.config.order.places_first() {
        return Ok(None);
    }
    if let Some(message) = read_sequencing(kind, words)? {
        return Ok(Some(message.into()));
    }
    if let Some(message) = read_flush(kind, words, entry)? {
        return Ok(Some(message.into()));
    }
    use ShardMessage::*;
    Ok(Some(Message::from(match kind {
        "write" => Write { view: words.view()?, runs: messages::runs(words) },
        "written" => {
            let (view, others) = (words.view()?, read_others(words)?);
            Written { view, spans: read_spans(&words.next()?)?, others }
        }
        "unreadable" => Unreadable { view: words.view()?, spans: read_spans(&words.next()?)? },
        "retry" => {
            let (view, disk_full) = (words.view()?, words.has("disk-full"));
            Retry { view, spans: read_spans(&words.next()?)?, disk_full }
        }
        "pressed" => Pressed { view: words.view()? },
        "fill-request" => {
            let (view, written) = (words.view()?, words.position("written")?);
            FillRequest { view, written, overdue: words.position("overdue")? }
        }
        "fill" => Fill { view: words.view()?, spans: read_spans(&words.next()?)? },
        "vacant" => {
            let (claim, old) = (words.view()?, ViewNumber(words.number("old")?));
            Vacant { claim, old, spans: read_spans(&words.next()?)? }
        }
        "offer" => {
            let (claim, upto) = (words.view()?, words.position("upto")?);
            Offer { claim, upto, runs: messages::runs(words) }
        }
        "filled" => {
            let view = words.view()?;
            let run = messages::runs(words).pop().ok_or("what is filled?")?;
            Filled { view, run }
        }
        "confirm" => Confirm { view: words.view()?, request: words.number("request")? },
        "confirmed" => Confirmed { view: words.view()?, request: words.number("request")? },
        _ => return Ok(None),
    })))
}

fn read_sequencing(kind: &str, words: &mut Words) -> Parsed<Option<corfu::Message>> {
    use corfu::Message::*;
    Ok(Some(match kind {
        "next" => {
            let (view, session, first) = (words.view()?, words.session()?, words.number("first")?);
            let (take, count) = (words.number("take")?, words.number("count")?);
            let ungranted = words.value("ungranted")?.unwrap_or(first);
            let fill_timeout_ms = words.value("fill-timeout")?.unwrap_or(10);
            let since = Position(words.value("since")?.unwrap_or(0));
            Next { view, session, take, ungranted, first, count, fill_timeout_ms, since }
        }
        "given" => {
            let (view, session, first) = (words.view()?, words.session()?, words.number("first")?);
            let take = words.number("take")?;
            let at = words.value::<String>("at")?.ok_or("at which positions?")?;
            Given { view, session, take, first, spans: read_spans(&at)? }
        }
        "out-of-order" => {
            let (view, session, take) = (words.view()?, words.session()?, words.number("take")?);
            OutOfOrder { view, session, take, expected: words.number("expected")? }
        }
        "unwritten" => {
            let (view, session, take) = (words.view()?, words.session()?, words.number("take")?);
            let at = words.value::<String>("at")?.ok_or("which positions?")?;
            Unwritten { view, session, take, spans: read_spans(&at)? }
        }
        "writing" => {
            let (view, session) = (words.view()?, words.session()?);
            let left = words.value::<String>("left")?;
            let left = left.map(|left| read_spans(&left)).transpose()?.unwrap_or_default();
            Writing { view, session, left }
        }
        _ => return Ok(None),
    }))
}

fn read_flush(kind: &str, words: &mut Words, entry: &LogEntry) -> Parsed<Option<shard::Message>> {
    use shard::Message::*;
    Ok(Some(match kind {
        "flush" => {
            let backups = messages::backups(words)?;
            let placement = entry.view.as_ref().ok_or("there is no view")?.placement.clone();
            let (claim, first) = (words.view()?, words.position("first")?);
            let incarnation = Incarnation(words.value("incarnation")?.unwrap_or(1));
            Flush { claim, incarnation, first, end: words.position("end")?, placement, backups }
        }
        "flushed" => Flushed { claim: words.view()?, upto: words.position("upto")? },
        "flush-failed" => FlushFailed { claim: words.view()? },
        _ => return Ok(None),
    }))
}
