//! `seriatim admin …`: what only an operator may decide.

use seriatim_client::Client;

use crate::output::{Failure, Outcome, print_line};

/// Says what an unavailable log would lose by going on, or lets it go on.
pub(crate) async fn recover(client: &Client, name: &str, accept_loss: bool) -> Outcome {
    let recovery = client.recover(name, accept_loss).await?;
    let text = recovery.text;
    if recovery.done {
        print_line(text);
    } else if accept_loss {
        return Err(Failure::new(format!("the log '{name}' does not go on: {text}")));
    } else if recovery.lost {
        print_line(text);
        print_line(format_args!("to go on without it: seriatim admin recover {name} --accept-loss"));
    } else {
        print_line(format_args!("nothing is known to be lost: {text}"));
    }
    Ok(())
}
