//! How many files a process may have open, and how many a server needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::output::{Failure, Outcome};

/// The files that a node needs to have open at once, at the least: its journal and stores, its
/// connections to other nodes, and some of clients.
const EACH_NODE: u64 = 128;

/// Raises the soft limit of open files to the hard one: the usual soft limit of 1,024 is a relic of
/// `select`, and a cluster in one process needs more.
pub(crate) fn allow_many() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, a server looks whether the soft limit is enough.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Refuses to start nodes that would run out of files as soon as they are used.
pub(super) fn suffice_for(nodes: u32) -> Outcome {
    let Rlimit { current: Some(allowed), .. } = getrlimit(Resource::Nofile) else { return Ok(()) };
    let needed = EACH_NODE * u64::from(nodes);
    if allowed >= needed {
        return Ok(());
    }
    Err(Failure::new(format!(
        "this process may have {allowed} files open, and needs at least {needed}: raise the limit, with 'ulimit -n 65536' in a \
         shell or LimitNOFILE=65536 in a unit of systemd"
    )))
}
