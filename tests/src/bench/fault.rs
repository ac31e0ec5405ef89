//! What is done to the leader, or to others, while rows are looked at.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::live::now_ms;
use super::{Cluster, Network, program};

/// How long a process that was killed is away.
const AWAY: Duration = Duration::from_secs(1);
/// How long one stands still, or is cut off.
const SILENT: Duration = Duration::from_secs(3);
const DIES_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// How long all may take to be ready.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; started again after a second.
    Kill,
    /// The same, started again at once.
    KillAndStart,
    /// SIGKILL when all rows of a transaction are with the broker and it is not ended; started again after a second.
    KillOpen,
    /// SIGSTOP for three seconds.
    Freeze,
    /// Cut off from the others and from the broker for three seconds: connections stay, nothing passes.
    Cut,
    /// SIGTERM; started again at once.
    Term,
    /// `unisono transfer`.
    Transfer,
    /// All replicas, one after another: SIGTERM, started again, all are ready.
    RestartAll,
    /// All but the leader at once: SIGKILL, started again at once. Nothing can be agreed until one is back.
    Followers,
}

impl Fault {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 9] = [
        ("kill", Self::Kill),
        ("kill-and-start", Self::KillAndStart),
        ("kill-open", Self::KillOpen),
        ("freeze", Self::Freeze),
        ("cut", Self::Cut),
        ("term", Self::Term),
        ("transfer", Self::Transfer),
        ("restart-all", Self::RestartAll),
        ("followers", Self::Followers),
    ];

    /// The one with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(known, _)| *known == name.trim());
        let known = || Self::ALL.map(|(name, _)| name).join(", ");
        let (_, fault) =
            found.with_context(|| format!("no fault {name}; there are {}", known()))?;
        Ok(fault)
    }

    /// Does it; from when to when it touched anything, in milliseconds since 1970. Some go on for a while afterwards.
    ///
    /// # Errors
    /// It could not be done.
    pub fn deal(self, replicas: &mut Cluster, network: Option<&Network>) -> Result<(f64, f64)> {
        let leader = replicas.leader().context("nobody leads")?;
        let at = now_ms();
        match self {
            Self::Kill => {
                replicas.signal(leader, "-KILL")?;
                std::thread::sleep(AWAY);
                replicas.revive(leader)?;
            }
            Self::KillAndStart => {
                replicas.signal(leader, "-KILL")?;
                replicas.revive(leader)?;
            }
            Self::KillOpen => {
                let at = kill_open(replicas)?;
                return Ok((at, at));
            }
            Self::Freeze => {
                replicas.signal(leader, "-STOP")?;
                std::thread::sleep(SILENT);
                replicas.signal(leader, "-CONT")?;
            }
            Self::Cut => {
                let network = network.context("there is no network to cut")?;
                network.cut_off(leader)?;
                std::thread::sleep(SILENT);
                network.mend(leader)?;
            }
            Self::Term => {
                replicas.signal(leader, "-TERM")?;
                replicas.revive(leader)?;
            }
            Self::Transfer => transfer(replicas.http(leader))?,
            Self::RestartAll => {
                for node in 1..=replicas.replicas() {
                    replicas.signal(node, "-TERM")?;
                    replicas.revive(node)?;
                    replicas.wait_ready(PATIENCE)?;
                }
                return Ok((at, now_ms()));
            }
            Self::Followers => {
                let others = (1..=replicas.replicas()).filter(|&node| node != leader);
                let others: Vec<u16> = others.collect();
                for &node in &others {
                    replicas.signal(node, "-KILL")?;
                }
                for node in others {
                    replicas.revive(node)?;
                }
            }
        }
        Ok((at, at))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Self::ALL.iter();
        let name = all.find(|(_, fault)| fault == self);
        f.write_str(name.map_or("?", |(name, _)| name))
    }
}

/// When it died.
fn kill_open(replicas: &mut Cluster) -> Result<f64> {
    let file = replicas.death_file();
    std::fs::write(&file, "")?;
    let began = Instant::now();
    let dead = loop {
        if let Some(node) = replicas.ended()? {
            break node;
        }
        if began.elapsed() > DIES_WITHIN {
            std::fs::remove_file(&file)?;
            bail!(
                "no replica killed itself within a transaction: the sink has none, or the program was built without the feature \
                 faults (cargo build --release --workspace --bin unisono has it)"
            );
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let at = now_ms();
    std::thread::sleep(AWAY);
    replicas.revive(dead)?;
    Ok(at)
}

fn transfer(http: &str) -> Result<()> {
    let done = Command::new(program())
        .args(["transfer", "--url", &format!("http://{http}")])
        .output()?;
    ensure!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}
