//! The faults that drills deal.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use unisono_chaos::fault::Fault;
use unisono_chaos::stage::Stage;

use crate::kafka::TestBroker;

/// How long the curve may stand still before a drill gives up; not a promise.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many orders a drill writes in a millisecond, as `Drill` sets it.
const ORDERS_PER_MS: u64 = 1;

/// A number that the environment sets; `default` where it does not, or sets none.
pub(crate) fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// How often a drill kills: `UNISONO_DRILL_KILLS`, else 3.
#[must_use]
pub fn kills() -> u64 {
    number_from_environment("UNISONO_DRILL_KILLS", 3)
}

/// How long all replicas stay down: `UNISONO_DRILL_OUTAGE` in seconds, else 10.
#[must_use]
pub fn outage() -> Duration {
    Duration::from_secs(number_from_environment("UNISONO_DRILL_OUTAGE", 10))
}

/// Waits until so many more orders were written.
async fn orders_flow(stage: &Stage, count: u64) -> Result<()> {
    let target = stage.sight().orders() + count;
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(count);
    while stage.sight().orders() < target {
        ensure!(Instant::now() < deadline, "the orders do not flow");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Lets a number of orders go by that is as random as the drill's clock, so that kills meet ticks and transactions at
/// every point.
async fn some_orders(stage: &Stage) -> Result<()> {
    let odd = stage
        .sight()
        .now_ms()
        .unsigned_abs()
        .wrapping_mul(2_654_435_761)
        % 900;
    orders_flow(stage, (200 + odd) * ORDERS_PER_MS).await
}

/// Kills the leader with SIGKILL again and again; the dead one is back before the next dies.
///
/// # Errors
/// Nobody took over, or a replica did not come back.
pub async fn kill_leaders(stage: &mut Stage) -> Result<()> {
    for _ in 0..kills() {
        some_orders(stage).await?;
        let takeover = stage.kill_leader().await?;
        some_orders(stage).await?;
        stage.cluster.restart(takeover.killed)?;
        stage.cluster.wait_ready().await?;
    }
    Ok(())
}

/// As `kill_leaders`, and after each return all replicas must have the same digest at the same row.
///
/// # Errors
/// As for `kill_leaders`, and when digests differ.
pub async fn kill_leaders_and_compare_digests(stage: &mut Stage) -> Result<()> {
    for _ in 0..kills() {
        some_orders(stage).await?;
        let takeover = stage.kill_leader().await?;
        some_orders(stage).await?;
        stage.cluster.restart(takeover.killed)?;
        stage.cluster.wait_ready().await?;
        stage.digests_agree().await?;
    }
    Ok(())
}

/// Freezes the leader with SIGSTOP while the orders of five seconds flow: another takes over; then the old one wakes in the midst of what it
/// was doing.
///
/// # Errors
/// The curve does not go on.
pub async fn freeze_leader(stage: &mut Stage) -> Result<()> {
    let frozen = stage.cluster.wait_leader().await?;
    stage.cluster.stop(frozen)?;
    stage.wait_for_new_row(PATIENCE).await?;
    orders_flow(stage, 5_000 * ORDERS_PER_MS).await?;
    stage.cluster.cont(frozen)?;
    stage.cluster.wait_ready().await?;
    stage.wait_for_new_row(PATIENCE).await
}

/// Makes a thread or task of the leader panic: its process ends at once with its message and exit code 70, another takes
/// over, and the one that is started again comes to the same digest.
///
/// # Errors
/// The process goes on, ends otherwise, or nobody takes over.
pub async fn panic_leader(stage: &mut Stage, thread: &str) -> Result<()> {
    let triggers = tempfile::tempdir()?;
    let trigger = |number: u16| triggers.path().join(number.to_string());
    let numbers: Vec<u16> = stage.cluster.addresses().into_keys().collect();
    stage.cluster.kill_all()?;
    for &number in &numbers {
        let when = trigger(number).display().to_string();
        let variables = [("UNISONO_PANIC", thread), ("UNISONO_PANIC_WHEN", &when)];
        stage.cluster.set_environment(number, &variables)?;
    }
    stage.cluster.restart_all()?;
    stage.cluster.wait_ready().await?;
    stage.wait_for_new_row(PATIENCE).await?;
    orders_flow(stage, 2_000 * ORDERS_PER_MS).await?;
    let leader = stage.cluster.wait_leader().await?;
    std::fs::write(trigger(leader), "")?;
    let code = stage.cluster.wait_end(leader).await?;
    ensure!(code == 70, "exit code {code} after a panic");
    let log = stage.cluster.log(leader).context("a log")?;
    let said = std::fs::read_to_string(log)?;
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("panicked"))
        .collect();
    let [line] = lines[..] else {
        bail!("{} lines about a panic in\n{said}", lines.len());
    };
    for part in ["ERROR", thread, "node/src/threads/faults.rs:", "asked for"] {
        ensure!(line.contains(part), "{part:?} is not in {line}");
    }
    stage.wait_for_new_row(PATIENCE).await?;
    let next = stage.cluster.wait_leader().await?;
    ensure!(next != leader, "a dead process leads");
    std::fs::remove_file(trigger(leader))?;
    stage.cluster.restart(leader)?;
    stage.cluster.wait_ready().await?;
    orders_flow(stage, 2_000 * ORDERS_PER_MS).await?;
    stage.digests_agree().await
}

/// How long the curve may stand still while a leader is unfit: `UNISONO_DRILL_STANDSTILL` in milliseconds, else three
/// seconds, for machines that do something else beside. The promise is one second.
fn standstill() -> Duration {
    Duration::from_millis(number_from_environment("UNISONO_DRILL_STANDSTILL", 3_000))
}

/// Makes the leader unfit in one way, or has one lead that is: the curve goes on, and it is well again in the end.
///
/// # Errors
/// The curve stands still for too long, or the replica leads on or does not come back.
pub async fn unfit_leader(stage: &mut Stage, fault: Fault) -> Result<()> {
    for _ in 0..kills().div_ceil(3) {
        some_orders(stage).await?;
        let unfit = stage.make_unfit(fault).await?;
        // What is told of a disk that hangs comes after two seconds.
        let most = match fault {
            Fault::HungDisk => standstill().min(Duration::from_secs(2)),
            _ => standstill(),
        };
        ensure!(unfit.time < most, "no new row for {:?}", unfit.time);
        stage.digests_agree().await?;
    }
    Ok(())
}

/// The disk of a replica that does not lead hangs.
///
/// # Errors
/// The curve stands still, or the replica does not say that its disk hangs.
pub async fn hung_follower(stage: &mut Stage) -> Result<()> {
    for _ in 0..kills().div_ceil(3) {
        some_orders(stage).await?;
        let time = stage.hang_follower().await?;
        ensure!(time < standstill(), "no new row for {time:?}");
        println!("a follower's disk hung: no new row for {time:?}");
        stage.digests_agree().await?;
    }
    Ok(())
}

/// A broker answers nobody for a while, again and again: its silence is no reason to give the lead away, for nobody hears more
/// of it than the leader.
///
/// # Errors
/// Somebody gave the lead away, or the curve does not go on.
pub async fn broker_stands_still(stage: &mut Stage, broker: &TestBroker) -> Result<()> {
    for _ in 0..kills().div_ceil(3) * 4 {
        some_orders(stage).await?;
        broker.freeze()?;
        tokio::time::sleep(Duration::from_millis(900)).await;
        broker.thaw()?;
        stage.wait_for_new_row(PATIENCE).await?;
    }
    for number in stage.cluster.addresses().into_keys() {
        let given = stage.cluster.metric(number, "unisono_unfit_total").await;
        let given = given.context("no metrics")?;
        ensure!(
            given == 0.0,
            "replica {number} gave the lead away {given} times"
        );
    }
    Ok(())
}

/// The leader dies where a round trip takes a good part of the time-outs, and every replica says that it does.
///
/// # Errors
/// Nobody takes over, or a replica does not say it.
pub async fn far_apart(stage: &mut Stage) -> Result<()> {
    let numbers: Vec<u16> = stage.cluster.addresses().into_keys().collect();
    for number in numbers {
        let view = stage.cluster.view(number).await.context("no answer")?;
        let ways = view.nodes.iter().filter_map(|node| node.round_trip_us);
        let least = ways.clone().min().unwrap_or(0);
        ensure!(
            ways.count() == 2,
            "replica {number} does not know how far both others are"
        );
        ensure!(
            least >= 200_000,
            "replica {number} takes another one for {least} µs away"
        );
        let log = stage.cluster.log(number).context("a log")?;
        let said = std::fs::read_to_string(log)?;
        ensure!(
            said.contains("the network is slow against the time-outs"),
            "{said}"
        );
    }
    kill_leaders(stage).await?;
    let times = stage.times().get(&Fault::Kill).cloned().unwrap_or_default();
    let longest = times.into_iter().max().unwrap_or_default();
    // Without an answer from the others it is openraft's time-outs, which are five seconds and more.
    ensure!(
        longest < Duration::from_secs(4),
        "a takeover took {longest:?}"
    );
    Ok(())
}

/// Kills all three at once and starts them again.
///
/// # Errors
/// The cluster does not come back.
pub async fn kill_all(stage: &mut Stage) -> Result<()> {
    for _ in 0..kills().div_ceil(2) {
        some_orders(stage).await?;
        stage.cluster.kill_all()?;
        stage.cluster.restart_all()?;
        stage.cluster.wait_ready().await?;
        stage.wait_for_new_row(PATIENCE).await?;
    }
    Ok(())
}

/// All three are down for a while, and the orders flow on: far beyond lag and idle time.
///
/// # Errors
/// The cluster does not come back.
pub async fn long_outage(stage: &mut Stage) -> Result<()> {
    some_orders(stage).await?;
    stage.cluster.kill_all()?;
    let outage_ms = u64::try_from(outage().as_millis())?;
    orders_flow(stage, outage_ms * ORDERS_PER_MS).await?;
    stage.cluster.restart_all()?;
    stage.cluster.wait_ready().await?;
    stage.wait_for_new_row(PATIENCE).await
}

/// Stops one replica after the other with SIGTERM, as an upgrade does, the leader among them.
///
/// # Errors
/// A replica does not end or does not come back.
pub async fn planned_restarts(stage: &mut Stage) -> Result<()> {
    let numbers: Vec<u16> = stage.cluster.addresses().into_keys().collect();
    for number in numbers {
        some_orders(stage).await?;
        stage.cluster.terminate(number).await?;
        stage.cluster.restart(number)?;
        stage.cluster.wait_ready().await?;
    }
    stage.wait_for_new_row(PATIENCE).await
}
