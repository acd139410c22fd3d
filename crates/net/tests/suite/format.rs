//! Bytes of the format, computed independently. They must be read and written forever.

use bytes::Bytes;
use seriatim_model::wire::{Decoder, Wire, encode_one};
use seriatim_model::{LogId, NodeId};
use seriatim_net::frame::frame_chunks;
use seriatim_net::{
    ClusterId, Credential, Frame, FrameDecoder, FrameKind, Hello, Lane, Refusal, RefusalCode, VersionRange,
    Welcome,
};

fn frame(kind: FrameKind, value: &impl Wire) -> Frame {
    Frame { kind, log: LogId(0), body: encode_one(value) }
}

#[test]
fn the_format_stays() {
    let node = Hello::node(ClusterId(0xc1), NodeId(2), 22, "h:1");
    let node = Hello { credential: Some(Credential(Bytes::from_static(b"key"))), ..node };
    let welcome = Welcome { version: 1, cluster: ClusterId(0xc1), node: NodeId(1), node_incarnation: 11 };
    let message = Frame { kind: FrameKind::Message, log: LogId(7), body: Bytes::from_static(b"hello") };
    let ping = Frame { kind: FrameKind::Ping, log: LogId(0), body: Bytes::new() };
    let golden = [
        (message, "5352544d010000000407000000000000000500000093bbcc4168656c6c6f"),
        (
            frame(FrameKind::Hello, &node),
            "5352544d01000000010000000000000000330000005152736f0a000a0001c1000000000000000000000000000000010200\
             0000160000000000000003000000683a3101030000006b65790100",
        ),
        (
            frame(FrameKind::Hello, &Hello::client("me")),
            "5352544d010000000100000000000000000f000000867cc45d0a000a000002020000006d65000100",
        ),
        (
            frame(FrameKind::Welcome, &welcome),
            "5352544d010000000200000000000000001e0000006c5461a90100c1000000000000000000000000000000010000000b\
             00000000000000",
        ),
        (
            frame(FrameKind::Refusal, &Refusal::new(RefusalCode::Full, "full")),
            "5352544d010000000300000000000000000a000000757ceedf03000400000066756c6c",
        ),
        (ping, "5352544d010000000500000000000000000000000018770910"),
    ];
    for (frame, golden) in golden {
        let bytes = frame_chunks(frame.kind, frame.log, |out| out.put_shared(&frame.body)).unwrap().concat();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{frame:?}");
        let mut decoder = FrameDecoder::new();
        decoder.feed(&bytes);
        assert_eq!(decoder.next_frame(), Ok(Some(frame)));
    }
}

/// A Hello of version 1 ends before the lane. The answer names the side to upgrade.
#[test]
fn a_greeting_of_version_1_can_be_read() {
    let golden = [
        "5352544d010000000100000000000000003100000083988fa50100010001c10000000000000000000000000000000102\
         000000160000000000000003000000683a3101030000006b6579",
        "5352544d010000000100000000000000000d000000c96a1a29010001000002020000006d6500",
    ];
    for hex in golden {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let mut decoder = FrameDecoder::new();
        decoder.feed(&bytes);
        let frame = decoder.next_frame().unwrap().unwrap();
        let hello = Hello::decode(&mut Decoder::new(frame.body)).unwrap();
        assert_eq!((hello.versions, hello.lane), (VersionRange { min: 1, max: 1 }, Lane::Bulk));
    }
}
