//! The server: the order of calls and answers, and the end of sessions.

use std::net::SocketAddr;

use seriatim_target::proto::from_player::Request;
use seriatim_target::proto::from_target::Answer;
use seriatim_target::proto::{self, Hello};
use seriatim_target::testing::Memory;
use seriatim_target::{Batch, Message, serve};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;

use crate::player::{Player, applied, batch, hello};

struct Running {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

async fn start(target: Memory) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let until = async { ended.await.unwrap_or_default() };
    let server = tokio::spawn(async move { serve(listener, target, until).await.unwrap() });
    Running { address, end, server }
}

#[tokio::test]
async fn wrong_requests_end_the_stream_and_change_nothing() {
    let target = Memory::default();
    let running = start(target.clone()).await;
    for first in [
        None,
        Some(Request::Batch(batch(0, 1))),
        Some(Request::Hello(Hello { stream: None, ..hello(7) })),
        Some(Request::Hello(Hello { target: String::new(), ..hello(7) })),
    ] {
        let mut player = Player::play(running.address, first).await;
        assert_eq!(player.refusal().await, Code::InvalidArgument);
    }
    let twice = Batch { messages: [batch(0, 1).messages, batch(0, 1).messages].concat(), ..batch(0, 2) };
    let no_parts = Batch { messages: vec![Message::default()], ..batch(0, 1) };
    for wrong in [
        Request::Hello(hello(7)),
        Request::Batch(batch(5, 5)),
        Request::Batch(Batch { upto: 2, ..batch(0, 3) }),
        Request::Batch(Batch { after: 1, ..batch(0, 3) }),
        Request::Batch(twice),
        Request::Batch(no_parts),
    ] {
        let mut player = Player::attached(running.address, 7).await;
        player.send(wrong).await;
        assert_eq!(player.refusal().await, Code::InvalidArgument);
    }
    assert_eq!((target.messages(), target.bound()), (vec![], 0));
}

#[tokio::test]
async fn a_newer_session_attaches_after_the_running_call_of_the_older() {
    let target = Memory::default();
    let running = start(target.clone()).await;
    let mut older = Player::attached(running.address, 7).await;
    target.hold(true);
    older.send(Request::Batch(batch(0, 3))).await;
    target.begun(1).await;
    older.send(Request::Batch(batch(3, 5))).await;
    let mut newer = Player::play(running.address, Some(Request::Hello(hello(7)))).await;
    target.hold(false);
    // The older session's second batch may be before or after the newer Hello.
    assert_eq!(older.answer().await.unwrap(), applied(3));
    let second = older.answer().await;
    if matches!(second, Ok(Some(_))) {
        assert_eq!(older.refusal().await, Code::Aborted);
    } else {
        assert_eq!(second.unwrap_err().code(), Code::Aborted);
    }
    let attached = proto::Attached { applied: target.bound() };
    assert_eq!(newer.answer().await.unwrap(), Some(Answer::Attached(attached)));
    newer.send(Request::Batch(batch(target.bound(), 9))).await;
    assert_eq!(newer.answer().await.unwrap(), applied(9));
    assert_eq!(target.messages(), batch(0, 9).messages);
}

#[tokio::test]
async fn an_earlier_run_neither_attaches_nor_ends_the_later_ones_session() {
    let running = start(Memory::default()).await;
    let mut later = Player::attached(running.address, 7).await;
    let mut earlier = Player::play(running.address, Some(Request::Hello(hello(6)))).await;
    let fenced = Some(Answer::Fenced(proto::Fenced { epoch: 7 }));
    assert_eq!(earlier.answer().await.unwrap(), fenced);
    assert_eq!(earlier.answer().await.unwrap(), None, "the stream ends");
    later.send(Request::Batch(batch(0, 3))).await;
    assert_eq!(later.answer().await.unwrap(), applied(3));
}

#[tokio::test]
async fn a_failed_batch_ends_the_stream_before_the_next_one() {
    let target = Memory::default();
    target.reject(Some(4));
    let running = start(target.clone()).await;
    let mut player = Player::attached(running.address, 7).await;
    for (after, upto) in [(0, 3), (3, 6), (6, 9)] {
        player.send(Request::Batch(batch(after, upto))).await;
    }
    assert_eq!(player.answer().await.unwrap(), applied(3));
    let rejected = proto::Rejected { position: 4, reason: "the test rejects it".into() };
    assert_eq!(player.answer().await.unwrap(), Some(Answer::Rejected(rejected)));
    assert_eq!(player.answer().await.unwrap(), None);
    assert_eq!((target.messages(), target.bound()), (batch(0, 4).messages, 4));
}

#[tokio::test]
async fn a_server_that_ends_ends_its_sessions_after_their_calls() {
    let target = Memory::default();
    let running = start(target.clone()).await;
    let mut idle = Player::attached(running.address, 7).await;
    let mut hello = hello(7);
    hello.target = "other".into();
    let mut busy = Player::play(running.address, Some(Request::Hello(hello))).await;
    assert!(matches!(busy.answer().await, Ok(Some(Answer::Attached(_)))));
    target.hold(true);
    busy.send(Request::Batch(batch(0, 3))).await;
    target.begun(1).await;
    running.end.send(()).unwrap();
    assert_eq!(idle.refusal().await, Code::Unavailable);
    target.hold(false);
    assert_eq!(busy.answer().await.unwrap(), applied(3));
    assert_eq!(busy.refusal().await, Code::Unavailable);
    drop((idle, busy));
    running.server.await.unwrap();
}
