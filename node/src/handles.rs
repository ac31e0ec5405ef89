//! How the handles that the system grants (`ulimit -n`) are shared out: connections of strangers, who may be many, never take
//! those that files, the log and the peers need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_replication::PortLimits;

/// For files, the log, the clients of brokers, and links to peers.
const KEPT: u64 = 64;
/// With fewer the node runs, and says that they are few.
const FEW: u64 = 1024;
const HTTP: (u64, u64) = (8, 512);
const STRANGERS: (u64, u64) = (8, 128);
const LINKS: (u64, u64) = (32, 256);

/// How many connections may be open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    /// Of HTTP clients; more wait to be taken.
    pub http: usize,
    /// Of the peers' port.
    pub port: PortLimits,
}

impl Handles {
    /// Where so many are granted.
    #[must_use]
    pub fn of(granted: u64) -> Self {
        let spare = granted.saturating_sub(KEPT);
        let share = |eighths: u64, (least, most): (u64, u64)| {
            let share = (spare / 8).saturating_mul(eighths).clamp(least, most);
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        Self {
            http: share(3, HTTP),
            port: PortLimits {
                strangers: share(1, STRANGERS),
                links: share(4, LINKS),
            },
        }
    }

    /// Where as many are granted as to this process.
    #[must_use]
    pub fn granted() -> Self {
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }
}

/// Takes as many as the system grants, and says how they are shared out.
pub fn take_all() {
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, limit = now.current, "the limit of open files stays low");
    }
    let granted = getrlimit(Resource::Nofile).current;
    let Handles { http, port } = Handles::granted();
    if granted.is_some_and(|granted| granted < FEW) {
        tracing::warn!(
            granted,
            http_connections = http,
            peers_links = port.links,
            "few files may be open at once: many lanes or pipelines need more; raise the hard limit (ulimit -Hn)"
        );
    } else {
        tracing::debug!(from = now.current, to = granted, "limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(granted: u64) -> u64 {
        let Handles { http, port } = Handles::of(granted);
        (http + port.strangers + port.links) as u64
    }

    #[test]
    fn connections_never_take_the_handles_that_the_node_needs() {
        for granted in [128, 256, 1024, 4096, u64::MAX] {
            assert!(connections(granted) <= granted - KEPT, "{granted}");
        }
    }

    #[test]
    fn with_many_there_are_as_many_connections_as_are_of_use() {
        let many = Handles::of(1 << 20);
        assert_eq!((many.http, many.port), (512, PortLimits::default()));
    }

    #[test]
    fn with_the_fewest_peers_are_still_heard() {
        assert!(Handles::of(0).port.links >= 32);
    }
}
