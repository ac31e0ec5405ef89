//! Replicas that come back with less than they had: a wiped disk, a log that was purged, a damaged file, a restart by plan.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use unisono_chaos::http::{self, RowReader};
use unisono_chaos::stage::Stage;
use unisono_tests::drill::Drill;
use unisono_tests::unisono_binary;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a replica logs when it takes a peer's checkpoint.
const INSTALLS: &str = "taking a peer's checkpoint";

fn drill() -> Drill {
    Drill {
        checkpoint_interval: Some("1s".into()),
        ..Drill::on_files()
    }
}

fn log_of(stage: &Stage, number: u16) -> Result<&Path> {
    stage.cluster.log(number).context("no such node")
}

fn folder(stage: &Stage) -> Result<&Path> {
    log_of(stage, 1)?.parent().context("logs lie in a folder")
}

fn data_dir(stage: &Stage, number: u16) -> Result<PathBuf> {
    Ok(folder(stage)?.join(format!("data-{number}")))
}

fn logged(stage: &Stage, number: u16, text: &str) -> Result<usize> {
    let log = std::fs::read_to_string(log_of(stage, number)?)?;
    Ok(log.matches(text).count())
}

/// Has all replicas keep only a few entries below a checkpoint, so that who was away must take one.
async fn keep_little_of_the_log(stage: &mut Stage) -> Result<()> {
    stage.cluster.kill_all()?;
    for number in stage.cluster.addresses().into_keys() {
        let config = folder(stage)?.join(format!("unisono-{number}.toml"));
        let text = std::fs::read_to_string(&config)?;
        let text = text.replace("[cluster]\n", "[cluster]\nkeep_log_entries = 10\n");
        std::fs::write(&config, text)?;
    }
    stage.cluster.restart_all()?;
    stage.cluster.wait_ready().await?;
    stage.wait_for_new_row(PATIENCE).await
}

/// A replica's newest checkpoint.
fn newest_checkpoint(stage: &Stage, number: u16) -> Result<Option<PathBuf>> {
    Ok(checkpoints(stage, number)?.pop())
}

/// A replica's checkpoints, the oldest first.
fn checkpoints(stage: &Stage, number: u16) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data_dir(stage, number)?.join("checkpoints"))? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|end| end == "checkpoint"));
    files.sort();
    Ok(files)
}

/// Waits until every running replica has made two checkpoints more: by then the log below the first of them is purged.
async fn wait_for_two_checkpoints(stage: &mut Stage) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let numbers: Vec<u16> = stage.cluster.addresses().into_keys().collect();
    for number in numbers {
        let mut more = 0;
        let mut newest = newest_checkpoint(stage, number)?;
        while more < 2 && stage.cluster.is_running(number) {
            ensure!(Instant::now() < deadline, "replica {number} makes none");
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = newest_checkpoint(stage, number)?;
            more += usize::from(now != newest);
            newest = now;
        }
    }
    Ok(())
}

/// Kills a replica that does not lead.
async fn kill_a_follower(stage: &mut Stage) -> Result<u16> {
    let follower = stage.cluster.wait_leader().await? % 3 + 1;
    stage.cluster.kill(follower)?;
    Ok(follower)
}

/// Waits until a replica serves the rows from the very first one on.
async fn serves_from_the_first_row(stage: &Stage, number: u16) -> Result<()> {
    let address = &stage.cluster.addresses()[&number];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = RowReader::new(http::client()?, address).advance(1).await;
        match page.map(|page| page.rows) {
            Ok(rows) if rows.iter().any(|row| row.contains(r#""seq":0,"#)) => return Ok(()),
            other if Instant::now() > deadline => bail!("replica {number} serves {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Has a replica lead: with another one gone, a leader that ends hands over to it.
async fn lead(stage: &mut Stage, number: u16) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leader = stage.cluster.wait_leader().await?;
        if leader == number {
            return stage.wait_for_new_row(PATIENCE).await;
        }
        ensure!(Instant::now() < deadline, "replica {number} never led");
        stage.cluster.kill(6 - leader - number)?;
        // The leader hands over to whoever has most of the log: with a row more, that is not the one that is gone.
        stage.wait_for_new_row(PATIENCE).await?;
        stage.cluster.terminate(leader).await?;
        stage.cluster.restart_all()?;
        stage.cluster.wait_ready().await?;
    }
}

/// A replica whose log is purged beyond the last checkpoint that is whole has nothing to go on from: its disk is wiped.
async fn wiped(stage: &mut Stage) -> Result<()> {
    keep_little_of_the_log(stage).await?;
    let wiped = damage_newest_checkpoint(stage).await?;
    let config = folder(stage)?.join(format!("unisono-{wiped}.toml"));
    let said = refused(&config).await?;
    let both = said.contains("the newest whole checkpoint stands at entry")
        && said.contains("move the data directory away and start again");
    ensure!(both, "{said}");
    // As the message says.
    std::fs::remove_dir_all(data_dir(stage, wiped)?)?;
    let before = logged(stage, wiped, INSTALLS)?;
    stage.cluster.restart(wiped)?;
    stage.cluster.wait_ready().await?;
    stage.digests_agree().await?;
    ensure!(
        logged(stage, wiped, INSTALLS)? > before,
        "it took a checkpoint"
    );
    serves_from_the_first_row(stage, wiped).await?;
    lead(stage, wiped).await?;
    stage.digests_agree().await
}

#[test]
fn a_replica_with_a_wiped_disk_rejoins_serves_every_row_and_leads() {
    drill().run(wiped);
}

async fn away(stage: &mut Stage) -> Result<()> {
    keep_little_of_the_log(stage).await?;
    let away = kill_a_follower(stage).await?;
    let before = logged(stage, away, INSTALLS)?;
    wait_for_two_checkpoints(stage).await?;
    stage.wait_for_new_row(PATIENCE).await?;
    stage.cluster.restart(away)?;
    stage.cluster.wait_ready().await?;
    stage.digests_agree().await?;
    ensure!(
        logged(stage, away, INSTALLS)? > before,
        "it took a checkpoint"
    );
    serves_from_the_first_row(stage, away).await
}

#[test]
fn a_replica_that_missed_the_purged_log_takes_a_checkpoint_and_the_rows_before_it() {
    drill().run(away);
}

async fn restarts_of_the_leader(stage: &mut Stage) -> Result<()> {
    for _ in 0..10 {
        let leader = stage.cluster.wait_leader().await?;
        stage.cluster.terminate(leader).await?;
        stage.wait_for_new_row(PATIENCE).await?;
        stage.cluster.restart(leader)?;
        stage.cluster.wait_ready().await?;
    }
    stage.digests_agree().await
}

#[test]
fn a_leader_stopped_by_plan_again_and_again_leaves_no_trace() {
    drill().run(restarts_of_the_leader);
}

/// Kills a follower and flips a bit in its newest checkpoint.
async fn damage_newest_checkpoint(stage: &mut Stage) -> Result<u16> {
    wait_for_two_checkpoints(stage).await?;
    let follower = kill_a_follower(stage).await?;
    let files = checkpoints(stage, follower)?;
    ensure!(files.len() == 2, "one to fall back on: {files:?}");
    let mut bytes = std::fs::read(&files[1])?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&files[1], bytes)?;
    Ok(follower)
}

async fn damaged_checkpoint(stage: &mut Stage) -> Result<()> {
    let follower = damage_newest_checkpoint(stage).await?;
    stage.cluster.restart(follower)?;
    stage.cluster.wait_ready().await?;
    stage.digests_agree().await?;
    let refused = "checkpoint not used; trying the one before";
    ensure!(logged(stage, follower, refused)? > 0);
    ensure!(
        logged(stage, follower, INSTALLS)? == 0,
        "its own log was enough"
    );
    Ok(())
}

#[test]
fn a_flipped_bit_in_the_newest_checkpoint_costs_a_longer_replay_and_nothing_else() {
    drill().run(damaged_checkpoint);
}

/// Runs a replica that should end by itself; what it said.
async fn refused(config: &Path) -> Result<String> {
    let mut command = Command::new(unisono_binary());
    command.arg("serve").arg("--config").arg(config);
    command.args(["--parent-pid", &std::process::id().to_string()]);
    let ended = tokio::task::spawn_blocking(move || command.output());
    let output = tokio::time::timeout(PATIENCE, ended)
        .await
        .context("it serves though it must not")???;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && !said.contains("panicked"),
        "{said}"
    );
    Ok(said)
}

/// The files of the Raft log in a node's data directory, in order.
fn raft_log(data_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(data_dir.join("raft/log"))? {
        files.push(file?.path());
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    files.sort_unstable();
    Ok(files)
}

async fn wrong_data(stage: &mut Stage) -> Result<()> {
    let one = kill_a_follower(stage).await?;
    let own_config = folder(stage)?.join(format!("unisono-{one}.toml"));
    let text = std::fs::read_to_string(&own_config)?;

    let other = stage.cluster.wait_leader().await?;
    let copy = folder(stage)?.join("copy");
    std::fs::create_dir_all(copy.join("raft/log"))?;
    for file in raft_log(&data_dir(stage, other)?)? {
        let name = file.file_name().context("a file has a name")?;
        std::fs::copy(&file, copy.join("raft/log").join(name))?;
    }
    let mistaken = folder(stage)?.join("mistaken.toml");
    let own_dir = data_dir(stage, one)?;
    let swapped = text.replace(&own_dir.display().to_string(), &copy.display().to_string());
    std::fs::write(&mistaken, swapped)?;
    let said = refused(&mistaken).await?;
    let belongs = format!("belongs to replica {other}, but the configuration says {one}");
    ensure!(said.contains(&belongs), "{said}");

    let log = raft_log(&own_dir)?;
    let raft = log.last().context("there is a log")?;
    let whole = std::fs::read(raft)?;
    let mut foreign = whole.clone();
    foreign.iter_mut().take(320).for_each(|byte| *byte ^= 0x55);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [&foreign, &flipped] {
        std::fs::write(raft, bytes)?;
        let said = refused(&own_config).await?;
        ensure!(
            said.contains("raft/log is damaged") && said.contains("rejoins as a new learner"),
            "{said}"
        );
    }
    std::fs::write(raft, &whole)?;
    let earlier = own_dir.join("raft/raft.redb");
    std::fs::write(&earlier, "")?;
    let said = refused(&own_config).await?;
    ensure!(
        said.contains("raft.redb is the log of an earlier version"),
        "{said}"
    );
    std::fs::remove_file(&earlier)?;

    // As the message says.
    std::fs::rename(&own_dir, folder(stage)?.join("moved-away"))?;
    stage.cluster.restart(one)?;
    stage.cluster.wait_ready().await?;
    stage.digests_agree().await?;
    serves_from_the_first_row(stage, one).await?;
    // This was too quick for a curve that shows anything.
    for _ in 0..5 {
        stage.wait_for_new_row(PATIENCE).await?;
    }
    Ok(())
}

#[test]
fn anothers_data_and_a_damaged_log_are_refused_and_the_advice_given_works() {
    drill().run(wrong_data);
}
