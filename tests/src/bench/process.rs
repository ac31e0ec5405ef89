//! What a process used, as the system counts it.

use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Linux counts CPU time in such parts of a second.
const TICKS_PER_SECOND: f64 = 100.0;
const MIB: f64 = 1024.0;
/// How often a process that works is looked at: its peak is not readable after its end.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a process used from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// User and system time of all threads, in seconds.
    pub cpu: f64,
    /// The most memory it held, in MiB.
    pub peak: f64,
}

/// User and system time of a process, all threads, in seconds; `self` is this one.
///
/// # Errors
/// There is no such process.
pub fn cpu(process: &str) -> Result<f64> {
    let fields = stat(process)?;
    // utime and stime are fields 14 and 15 of all, the state is the third.
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// The most memory that a process ever held, in MiB.
///
/// # Errors
/// There is no such process.
pub fn peak(process: &str) -> Result<f64> {
    status(process, "VmHWM:")
}

/// The memory that a process holds now, in MiB.
///
/// # Errors
/// There is no such process.
pub fn memory(process: &str) -> Result<f64> {
    status(process, "VmRSS:")
}

/// Waits for the end of a process.
///
/// # Errors
/// It failed.
pub fn finished(mut child: Child) -> Result<Used> {
    let process = child.id().to_string();
    let mut most = 0.0_f64;
    // One that has ended but was not waited for still shows its times, though not its memory.
    while stat(&process)?[0] != "Z" {
        most = peak(&process).unwrap_or_default().max(most);
        std::thread::sleep(LOOK_EVERY);
    }
    let cpu = cpu(&process)?;
    let status = child.wait()?;
    ensure!(status.success(), "the process failed: {status}");
    Ok(Used { cpu, peak: most })
}

/// The fields after the name, which stands in parentheses and may hold spaces.
fn stat(process: &str) -> Result<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("an unknown form of stat")?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}

fn status(process: &str, key: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_whitespace().next());
    let kib: u64 = kib
        .with_context(|| format!("no {key} in status"))?
        .parse()?;
    Ok(kib as f64 / MIB)
}
