//! One task for each subscription of the player.

use seriatim_client::{
    Event, Failure, Log, Position, ReadError, StoredRecord, SubscribeOptions, Subscription,
};
use seriatim_delivery::player::{Input, StreamNumber};
use tokio::sync::mpsc;

use crate::runner::Happening;

/// Room for further records: their number and their bytes.
pub(crate) type Room = (u64, u64);

/// Reads a range of the log while there is room.
pub(crate) async fn read(
    log: Log,
    stream: StreamNumber,
    (from, end): (Position, Option<Position>),
    mut pulls: mpsc::Receiver<Room>,
    happenings: mpsc::Sender<Happening>,
) {
    let options = SubscribeOptions::default().skip_lost();
    let options = if let Some(end) = end { options.until(end) } else { options };
    let mut subscription = match log.subscribe(from, options).await {
        Ok(subscription) => subscription,
        Err(cause) => return report(failed(stream, cause), &happenings).await,
    };
    let (mut records, mut bytes) = (0, 0);
    loop {
        while records <= 0 || bytes <= 0 {
            let Some((more, larger)) = pulls.recv().await else { return };
            (records, bytes) = (records + more as i64, bytes + larger as i64);
        }
        let happening = tokio::select! {
            biased;
            happening = next(&mut subscription, stream) => happening,
            pull = pulls.recv() => {
                let Some((more, larger)) = pull else { return };
                (records, bytes) = (records + more as i64, bytes + larger as i64);
                continue;
            }
        };
        let (happening, size, is_last) = happening;
        records -= 1;
        bytes -= size as i64;
        report(happening, &happenings).await;
        if is_last {
            return;
        }
    }
}

async fn report(happening: Happening, happenings: &mpsc::Sender<Happening>) {
    // The player has ended if it receives nothing.
    let _ = happenings.send(happening).await;
}

/// The next happening, its bytes, and whether it is the last.
async fn next(subscription: &mut Subscription, stream: StreamNumber) -> (Happening, usize, bool) {
    loop {
        return match subscription.next().await {
            None => (Happening::Machine(Input::Ended { stream }), 0, true),
            Some(Err(cause)) => (failed(stream, cause), 0, true),
            Some(Ok(Event::Deliver { position, id, record, .. })) => {
                let size = StoredRecord::memory(&record);
                let record = seriatim_model::storage::Stored { position, id, record };
                (Happening::Machine(Input::Fetched { stream, record }), size, false)
            }
            Some(Ok(Event::Trimmed { first })) => {
                (Happening::Machine(Input::Trimmed { stream, first }), 0, false)
            }
            Some(Ok(Event::Lost { from, end, .. })) => {
                (Happening::Machine(Input::Lost { stream, from, end }), 0, false)
            }
            Some(Ok(_)) => continue,
        };
    }
}

fn failed(stream: StreamNumber, cause: ReadError) -> Happening {
    match cause {
        ReadError::Deleted(log) => Happening::Deleted(log),
        ReadError::Failed(cause @ Failure::Reassigned { .. }) => Happening::Reassigned(cause),
        cause => Happening::Machine(Input::Failed { stream, reason: cause.to_string() }),
    }
}
