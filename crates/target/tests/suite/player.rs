//! The player's side of a session.

use std::net::SocketAddr;
use std::time::Duration;

use seriatim_target::proto::from_player::Request;
use seriatim_target::proto::from_target::Answer;
use seriatim_target::proto::target_client::TargetClient;
use seriatim_target::proto::{self, FromPlayer, FromTarget, Hello};
use seriatim_target::{Batch, Message, Stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Status, Streaming};

/// A session of a player, request by request.
pub(crate) struct Player {
    requests: mpsc::Sender<FromPlayer>,
    answers: Streaming<FromTarget>,
}

impl Player {
    pub(crate) async fn play(address: SocketAddr, first: Option<Request>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let (requests, stream) = mpsc::channel(8);
        requests.send(FromPlayer { request: first }).await.unwrap();
        let mut client = TargetClient::new(endpoint.connect().await.unwrap());
        let answers = client.play(ReceiverStream::new(stream)).await.unwrap().into_inner();
        Self { requests, answers }
    }

    pub(crate) async fn attached(address: SocketAddr, epoch: u64) -> Self {
        let mut player = Self::play(address, Some(Request::Hello(hello(epoch)))).await;
        assert!(matches!(player.answer().await, Ok(Some(Answer::Attached(_)))));
        player
    }

    pub(crate) async fn send(&self, request: Request) {
        self.requests.send(FromPlayer { request: Some(request) }).await.unwrap();
    }

    /// The next answer. `None`: the stream has ended.
    pub(crate) async fn answer(&mut self) -> Result<Option<Answer>, Status> {
        let answer = tokio::time::timeout(Duration::from_secs(20), self.answers.message());
        Ok(answer.await.expect("an answer in time")?.map(|answer| answer.answer.unwrap()))
    }

    pub(crate) async fn refusal(&mut self) -> Code {
        self.answer().await.unwrap_err().code()
    }
}

pub(crate) fn hello(epoch: u64) -> Hello {
    let stream = Stream { log: "1".into(), player: "billing".into() };
    Hello { stream: Some(stream), target: "ledger".into(), epoch, adopts: None }
}

/// Messages with one part at all positions of `after..upto`.
pub(crate) fn batch(after: u64, upto: u64) -> Batch {
    let message = |position| Message { position, parts: vec!["x".into()], ..Message::default() };
    Batch { after, upto, messages: (after..upto).map(message).collect() }
}

pub(crate) fn applied(upto: u64) -> Option<Answer> {
    Some(Answer::Applied(proto::Applied { upto }))
}
