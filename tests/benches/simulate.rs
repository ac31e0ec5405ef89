//! Many seeds of the simulation, on all cores: each seed a cluster of three for some 20 simulated seconds, with all kinds of
//! faults. Tells the seeds that fail, and why, and how long a thousand take.
//!
//! `cargo bench -p unisono-tests --bench simulate`; `UNISONO_SEEDS` (default `0..1000`; one number runs that seed and tells
//! its trace), `UNISONO_FAULTS` (names, separated by commas; default all but `WrongAlone`), `UNISONO_THREADS`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use unisono_tests::simulation::{Fault, Ran, TELLS, run};

fn main() -> Result<()> {
    let text = std::env::var("UNISONO_SEEDS").unwrap_or_else(|_| "0..1000".to_owned());
    let kinds = kinds()?;
    if let Ok(seed) = text.parse() {
        unisono::telemetry::init(None)?;
        TELLS.store(true, Ordering::Relaxed);
        println!("{:?}", run(seed, kinds));
        return Ok(());
    }
    let seeds = range(&text).context("UNISONO_SEEDS is a number or FROM..TO")?;
    let threads = match std::env::var("UNISONO_THREADS") {
        Ok(threads) => threads.parse()?,
        Err(_) => std::thread::available_parallelism()?.get(),
    };
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let failed: Mutex<BTreeMap<u64, String>> = Mutex::default();
    let (simulated, polls, taken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (odd, again, healed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match attempt(seed, kinds) {
                        Ok(ran) => {
                            let millis = u64::try_from(ran.millis).unwrap_or(0);
                            simulated.fetch_add(millis, Ordering::Relaxed);
                            polls.fetch_add(ran.polls, Ordering::Relaxed);
                            taken.fetch_add(ran.taken, Ordering::Relaxed);
                            odd.fetch_add(ran.doubted.0, Ordering::Relaxed);
                            again.fetch_add(ran.doubted.1, Ordering::Relaxed);
                            healed.fetch_add(ran.doubted.2, Ordering::Relaxed);
                        }
                        Err(reason) => {
                            println!("seed {seed}: {reason}");
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.insert(seed, reason);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (count, took) = (seeds.end - seeds.start, began.elapsed().as_secs_f64());
    println!(
        "{count} seeds, {} failed; {took:.0} s on {threads} threads, {:.0} s for a thousand; {} simulated seconds, {} million turns, {} checkpoints taken from peers, {} times odd, {} feeds computed again, {} healed",
        failed.len(),
        took * 1000.0 / count as f64,
        simulated.into_inner() / 1000,
        polls.into_inner() / 1_000_000,
        taken.into_inner(),
        odd.into_inner(),
        again.into_inner(),
        healed.into_inner(),
    );
    ensure!(failed.is_empty(), "failed: {:?}", failed.keys());
    Ok(())
}

fn attempt(seed: u64, kinds: &'static [Fault]) -> Result<Ran, String> {
    catch_unwind(|| run(seed, kinds)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        text.unwrap_or_else(|| "it panicked".to_owned())
    })
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

fn kinds() -> Result<&'static [Fault]> {
    let Ok(names) = std::env::var("UNISONO_FAULTS") else {
        return Ok(Fault::ALL);
    };
    let kind = |name: &str| {
        let mut all = Fault::ALL.iter().copied().chain([Fault::WrongAlone]);
        let kind = all.find(|fault| format!("{fault:?}").eq_ignore_ascii_case(name.trim()));
        kind.with_context(|| format!("no fault {name}; there are {:?}", Fault::ALL))
    };
    let names = names.split(',').filter(|name| !name.is_empty());
    let kinds = names.map(kind).collect::<Result<Vec<_>>>()?;
    Ok(kinds.leak())
}
