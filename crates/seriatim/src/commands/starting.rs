//! Reports what a server waits for while it starts.

use std::time::Duration;

use seriatim_node::Awaits;
use tokio::sync::watch;

/// Time after which a start is explained, and interval between checks for a change.
const EXPLAIN_EVERY: Duration = Duration::from_secs(3);

/// Reports the wait of a start, and again when it changes; never ends. `register` describes the
/// place of the register.
pub(super) async fn explain_late(register: String, awaited: watch::Receiver<Awaits>) {
    let mut told = String::new();
    loop {
        tokio::time::sleep(EXPLAIN_EVERY).await;
        let now = in_words(&register, &awaited.borrow());
        if now != told {
            tracing::warn!("not ready yet: waiting for {now}");
            told = now;
        }
    }
}

pub(super) fn in_words(register: &str, awaits: &Awaits) -> String {
    match awaits {
        Awaits::Register(None) => format!("the register {register}"),
        Awaits::Register(Some(cause)) => format!("the register {register}: {cause}"),
        Awaits::Held(what) => format!("{what}, which another process holds"),
        Awaits::Files(node) => format!("the files of node {node}, which are being read"),
        Awaits::Node(node) => format!("node {node}, which the register {register} does not know yet"),
        Awaits::Nothing => "its address and its directory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use seriatim_client::NodeId;

    use super::*;

    #[test]
    fn what_a_start_waits_for_is_said_in_words() {
        let said = |awaits| in_words("in etcd", &awaits);
        assert_eq!(said(Awaits::Register(None)), "the register in etcd");
        assert_eq!(said(Awaits::Register(Some("no".into()))), "the register in etcd: no");
        assert_eq!(said(Awaits::Held("port 7".into())), "port 7, which another process holds");
        assert_eq!(said(Awaits::Files(NodeId(2))), "the files of node 2, which are being read");
        assert_eq!(said(Awaits::Node(NodeId(2))), "node 2, which the register in etcd does not know yet");
    }
}
