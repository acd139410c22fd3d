//! The number of files that a process may open, and that a server needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::output::{Failure, Outcome};

/// Least open files of a node: journal, stores, connections to nodes and some clients.
const EACH_NODE: u64 = 128;

/// Raises the soft limit of open files to the hard limit. The usual soft limit of 1,024 suits
/// `select`; a cluster in one process needs more.
pub(crate) fn allow_many() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, the server checks the soft limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Refuses to start nodes that would run out of files.
pub(super) fn suffice_for(nodes: u32) -> Outcome {
    let Rlimit { current: Some(allowed), .. } = getrlimit(Resource::Nofile) else { return Ok(()) };
    let needed = EACH_NODE * u64::from(nodes);
    if allowed >= needed {
        return Ok(());
    }
    Err(Failure::new(format!(
        "this process may open {allowed} files and needs at least {needed}: raise the limit, with 'ulimit -n 65536' in a \
         shell or LimitNOFILE=65536 in a unit of systemd"
    )))
}
