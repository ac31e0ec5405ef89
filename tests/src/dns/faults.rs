//! The faults that the drills deal while the log flows.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{DnsDrill, log_lines};
use crate::drill::faults::number_from_environment;

/// A kill and the killed one's return take about so long, which says only how fast the log flows.
const CYCLE_MS: usize = 2_500;
/// The share of the log that is spread over the faults, in percent; the rest trickles where they take longer.
const SPREAD: usize = 90;

/// How often the leader is killed: `UNISONO_DRILL_KILLS`, else 4.
#[must_use]
pub fn kills() -> usize {
    usize::try_from(number_from_environment("UNISONO_DRILL_KILLS", 4)).unwrap_or(usize::MAX)
}

/// How long all replicas are down: a minute with `UNISONO_DRILL_LONG=1`, else 8 s.
#[must_use]
pub fn outage() -> Duration {
    let long = number_from_environment("UNISONO_DRILL_LONG", 0) == 1;
    Duration::from_secs(if long { 60 } else { 8 })
}

/// Lines a second with which the log lasts `millis`.
#[must_use]
pub fn pace(millis: usize) -> usize {
    log_lines() * 1_000 / millis.max(1)
}

/// As long as `kill_leaders` should take.
#[must_use]
pub fn kills_ms() -> usize {
    kills() * CYCLE_MS
}

/// Kills the leader at random moments; the dead one is back before the next dies.
///
/// # Errors
/// Nobody took over, or a replica did not come back.
pub async fn kill_leaders(drill: &mut DnsDrill) -> Result<()> {
    let kills = kills();
    let mut takeovers = Vec::new();
    for kill in 1..=kills {
        drill.release(SPREAD * kill / kills);
        drill.pause(Duration::from_millis(1_500)).await;
        let leader = drill.cluster.wait_leader().await?;
        drill.cluster.kill(leader)?;
        let killed = Instant::now();
        drill.cluster.wait_leader().await?;
        takeovers.push(killed.elapsed().as_millis());
        drill.pause(Duration::from_millis(1_000)).await;
        drill.cluster.restart(leader)?;
        drill.cluster.wait_ready().await?;
    }
    println!(
        "{kills} leaders killed; the next one known after, in ms: {takeovers:?}; {} of {} lines produced by the last kill",
        drill.produced(),
        log_lines()
    );
    Ok(())
}

/// Kills all three at once in the midst of the log, and starts them again.
///
/// # Errors
/// The cluster does not come back.
pub async fn kill_all(drill: &mut DnsDrill) -> Result<()> {
    drill.release(SPREAD);
    drill.wait_produced(40).await?;
    drill.pause(Duration::from_millis(500)).await;
    drill.cluster.kill_all()?;
    drill.cluster.restart_all()?;
    drill.cluster.wait_ready().await
}

/// All three are down while the log flows on, for longer than a partition takes to grow idle.
///
/// # Errors
/// The cluster does not come back.
pub async fn all_down(drill: &mut DnsDrill) -> Result<()> {
    drill.release(SPREAD);
    drill.wait_produced(20).await?;
    drill.cluster.kill_all()?;
    let before = drill.produced();
    tokio::time::sleep(outage()).await;
    let unread = drill.produced() - before;
    drill.cluster.restart_all()?;
    drill.cluster.wait_ready().await?;
    println!(
        "all were down for {:?}, {unread} lines were produced meanwhile",
        outage()
    );
    Ok(())
}

/// Freezes the leader for five seconds; another takes over, and the old one wakes in the midst of what it was doing.
///
/// # Errors
/// The cluster does not go on.
pub async fn freeze_leader(drill: &mut DnsDrill) -> Result<()> {
    drill.release(SPREAD);
    drill.wait_produced(30).await?;
    drill.pause(Duration::from_millis(500)).await;
    let leader = drill.cluster.wait_leader().await?;
    drill.cluster.stop(leader)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    drill.cluster.cont(leader)?;
    drill.cluster.wait_ready().await
}
