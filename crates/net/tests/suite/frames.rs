//! The decoder with arbitrary bytes.

use bytes::Bytes;
use proptest::prelude::*;
use seriatim_model::LogId;
use seriatim_model::limits::MAX_FRAME_BYTES;
use seriatim_net::frame::{FRAME_VERSION, HEADER_BYTES, MAGIC, frame_chunks};
use seriatim_net::{Frame, FrameDecoder, FrameError, FrameKind};

fn encode(kind: FrameKind, log: u64, body: &[u8]) -> Vec<u8> {
    frame_chunks(kind, LogId(log), |out| out.put(body)).unwrap().concat()
}

/// A frame with any header and a correct checksum.
fn forge(version: u16, flags: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = MAGIC.to_vec();
    frame.extend(version.to_le_bytes());
    frame.extend(flags.to_le_bytes());
    frame.push(kind);
    frame.extend(7u64.to_le_bytes());
    frame.extend((body.len() as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&frame), body);
    frame.extend(checksum.to_le_bytes());
    frame.extend(body);
    frame
}

/// All frames, and the error at their end.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut decoder = FrameDecoder::new();
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err(error), "an error is final");
                    return (frames, Err(error));
                }
            }
        }
    }
    (frames, decoder.finish())
}

fn refused(bytes: &[u8]) -> FrameError {
    let (frames, end) = decode([bytes]);
    assert_eq!(frames, []);
    end.unwrap_err()
}

#[test]
fn a_stranger_is_recognized_from_its_first_bytes() {
    assert_eq!(refused(b"GET / HTTP/1.1\r\n\r\n"), FrameError::BadMagic);
    assert_eq!(refused(b"SX"), FrameError::BadMagic);
}

#[test]
fn every_fault_has_its_own_error() {
    let kind = FrameKind::Message as u8;
    assert_eq!(refused(&forge(2, 0, kind, b"")), FrameError::UnsupportedVersion { found: 2 });
    assert_eq!(
        refused(&forge(FRAME_VERSION, 0x0140, kind, b"")),
        FrameError::UnknownCriticalFlag { flags: 0x40 }
    );
    assert_eq!(refused(&forge(FRAME_VERSION, 0, 99, b"")), FrameError::UnknownKind { kind: 99 });
    let mut damaged = encode(FrameKind::Message, 7, b"hello");
    *damaged.last_mut().unwrap() ^= 1;
    assert!(matches!(refused(&damaged), FrameError::ChecksumMismatch { .. }));
    assert_eq!(refused(&damaged[..20]), FrameError::Truncated { bytes: 20 });
}

#[test]
fn ignorable_flags_are_ignored() {
    let frame = forge(FRAME_VERSION, 0xff00, FrameKind::Message as u8, b"hello");
    let (frames, end) = decode([&frame[..]]);
    assert_eq!((frames.len(), end), (1, Ok(())));
    assert_eq!(frames[0].body, "hello");
}

#[test]
fn a_length_over_the_limit_is_refused_from_the_header() {
    let mut header = encode(FrameKind::Message, 7, b"");
    header[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
    let oversized = FrameError::Oversized { bytes: u32::MAX as usize, limit: MAX_FRAME_BYTES };
    assert_eq!(refused(&header), oversized);

    let mut decoder = FrameDecoder::for_stranger();
    let long = encode(FrameKind::Message, 7, &vec![0; 100_000]);
    decoder.feed(&long[..HEADER_BYTES]);
    assert!(matches!(decoder.next_frame(), Err(FrameError::Oversized { bytes: 100_000, .. })));
}

#[test]
fn the_longest_frame_passes_and_a_stranger_becomes_a_peer() {
    let body = vec![5; MAX_FRAME_BYTES];
    let (frames, end) = decode(encode(FrameKind::Message, 1, &body).chunks(1 << 20));
    assert_eq!((frames.len(), end), (1, Ok(())));
    assert_eq!(frames[0].body, body);

    let mut decoder = FrameDecoder::for_stranger();
    decoder.feed(&encode(FrameKind::Hello, 0, b"hello"));
    decoder.feed(&encode(FrameKind::Message, 1, &[1; 100_000]));
    assert_eq!(decoder.next_frame().unwrap().unwrap().kind, FrameKind::Hello);
    decoder.admit();
    assert_eq!(decoder.next_frame().unwrap().unwrap().body.len(), 100_000);
}

#[test]
fn a_body_is_a_slice_of_what_was_read() {
    let mut decoder = FrameDecoder::new();
    decoder.feed(&[encode(FrameKind::Message, 1, b"one"), encode(FrameKind::Message, 1, b"two")].concat());
    let first = decoder.next_frame().unwrap().unwrap().body;
    let second = decoder.next_frame().unwrap().unwrap().body;
    assert_eq!(second.as_ptr() as usize - first.as_ptr() as usize, first.len() + HEADER_BYTES);
}

#[test]
fn every_flipped_bit_is_noticed() {
    let frame = encode(FrameKind::Message, 0x0123_4567_89ab_cdef, b"a body of some length");
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (frames, end) = decode([&damaged[..]]);
        assert!(frames.is_empty() && end.is_err(), "bit {bit} was not noticed");
    }
}

fn any_frame() -> impl Strategy<Value = Frame> {
    const KINDS: [FrameKind; 4] = [FrameKind::Hello, FrameKind::Refusal, FrameKind::Message, FrameKind::Ping];
    let body = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => proptest::collection::vec(any::<u8>(), 0..40_000),
    ];
    (proptest::sample::select(&KINDS[..]), any::<u64>(), body).prop_map(|(kind, log, body)| Frame {
        kind,
        log: LogId(log),
        body: body.into(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn arbitrary_bytes_never_panic(pieces: Vec<Vec<u8>>) {
        let _ = decode(pieces.iter().map(Vec::as_slice));
    }

    #[test]
    fn arbitrary_bytes_after_a_good_start_never_panic(
        keep in 0..HEADER_BYTES + 40, rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let start = encode(FrameKind::Message, 3, &[9; 40]);
        let _ = decode([&start[..keep], &rest[..]]);
    }

    #[test]
    fn frames_survive_any_chunking(
        frames in proptest::collection::vec(any_frame(), 0..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let stream: Vec<u8> =
            frames.iter().flat_map(|frame| encode(frame.kind, frame.log.0, &frame.body)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        let (arrived, end) = decode(pieces);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(arrived, frames);
    }

    #[test]
    fn encoding_never_changes_a_shared_payload(payload in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let shared = Bytes::from(payload.clone());
        let chunks = frame_chunks(FrameKind::Message, LogId(1), |out| {
            out.put(b"before");
            out.put_shared(&shared);
            out.put(b"after");
        }).unwrap();
        prop_assert_eq!(&shared, &payload);
        let (arrived, _) = decode(chunks.iter().map(|chunk| &chunk[..]));
        prop_assert_eq!(&arrived[0].body[6..6 + payload.len()], &payload[..]);
    }
}
