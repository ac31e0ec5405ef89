//! Order events at a steady mean rate, from a seed, into several lanes.
//!
//! An order is stamped with the clock just before it is written, less a small random disorder that stays below the
//! pipeline's lag: so nothing is late, whatever happens to the replicas. After a stall the generator does not make up for
//! lost time, since orders stamped in the past could then really be late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::moment::Clock;
use crate::order::LAG_MS;

mod files;
mod topic;

pub use files::{FileTarget, Forger};
pub use topic::TopicTarget;

/// How many lanes the orders are spread over: files, or partitions.
pub const LANES: usize = 3;

const BATCH_PERIOD: Duration = Duration::from_millis(10);
const DISORDER_MS: i64 = 30;
const _: () = assert!(DISORDER_MS < LAG_MS, "orders would be late");

const CITIES: [&str; 6] = ["Berlin", "København", "Lagos", "Lima", "Osaka", "Zürich"];
const CHANNELS: [&str; 3] = ["app", "shop", "web"];

/// Where the orders go.
pub trait Target: Send + 'static {
    /// Appends whole lines, each ended by a newline, to one lane, so that a reader sees all of a line or nothing.
    ///
    /// # Errors
    /// What could not be written, and why.
    fn append(&mut self, lane: usize, lines: &str) -> Result<()>;

    /// Waits until everything that was appended is stored.
    ///
    /// # Errors
    /// What could not be stored.
    fn finish(&mut self) -> Result<()>;
}

/// How many orders, of which kind.
#[derive(Clone, Copy, Debug)]
pub struct GeneratorOptions {
    /// Orders in a second, on average.
    pub rate: u32,
    /// The same seed gives the same cities, amounts and lanes; the times follow the clock.
    pub seed: u64,
    /// Which share of the orders is stamped long before its lane's latest: 0.0 for none.
    pub late_share: f64,
}

/// A running generator; it stops when dropped.
#[derive(Debug)]
pub struct Generator {
    stop: Arc<AtomicBool>,
    produced: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Generator {
    /// Starts a thread that writes orders until it is stopped.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(options: GeneratorOptions, clock: Clock, mut target: impl Target) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let produced = Arc::new(AtomicU64::new(0));
        let (thread_stop, thread_produced) = (Arc::clone(&stop), Arc::clone(&produced));
        let body = move || {
            let mut orders = Orders::new(options, clock);
            while !thread_stop.load(Ordering::Relaxed) {
                for (lane, lines) in orders.due().iter().enumerate() {
                    if !lines.is_empty() {
                        target.append(lane, lines)?;
                    }
                }
                thread_produced.store(orders.number, Ordering::Relaxed);
                std::thread::sleep(BATCH_PERIOD);
            }
            target.finish()
        };
        let thread = std::thread::Builder::new()
            .name("generator".into())
            .spawn(body)
            .context("cannot start the generator's thread")?;
        Ok(Self {
            stop,
            produced,
            thread: Some(thread),
        })
    }

    /// Orders written so far.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.produced.load(Ordering::Relaxed)
    }

    /// The count of orders written, as it grows.
    #[must_use]
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.produced)
    }

    /// Ends the input and returns how many orders it has.
    ///
    /// # Errors
    /// What could not be written.
    pub fn stop(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread
                .join()
                .map_err(|_| anyhow!("the generator's thread panicked"))??;
        }
        Ok(self.produced())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Orders {
    options: GeneratorOptions,
    clock: Clock,
    random: StdRng,
    last: Instant,
    owed: f64,
    phase: f64,
    number: u64,
}

impl Orders {
    fn new(options: GeneratorOptions, clock: Clock) -> Self {
        let random = StdRng::seed_from_u64(options.seed);
        Self {
            options,
            clock,
            random,
            last: Instant::now(),
            owed: 0.0,
            phase: 0.0,
            number: 0,
        }
    }

    /// The lines that are due since the last call, by lane.
    fn due(&mut self) -> [String; LANES] {
        let now = Instant::now();
        // At most ten periods: what a stall kept from being written is left out.
        let passed = (now - self.last).min(10 * BATCH_PERIOD).as_secs_f64();
        self.last = now;
        // The rate swings slowly around its mean, so that a gap would show on the curve.
        self.phase += passed * 0.8;
        let swing = 1.0 + 0.4 * self.phase.sin();
        self.owed += f64::from(self.options.rate) * passed * swing;
        let mut lanes: [String; LANES] = Default::default();
        let at = self.clock.now_ms();
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let lane = self.random.random_range(0..LANES);
            self.push_order(at, &mut lanes[lane]);
        }
        lanes
    }

    fn push_order(&mut self, now_ms: i64, lines: &mut String) {
        let random = &mut self.random;
        let late = self.options.late_share > 0.0 && random.random_bool(self.options.late_share);
        let behind = if late {
            400
        } else {
            random.random_range(0..=DISORDER_MS)
        };
        let created_at = now_ms - behind;
        let city = CITIES[random.random_range(0..CITIES.len())];
        let channel = CHANNELS[random.random_range(0..CHANNELS.len())];
        let status = if random.random_ratio(4, 5) {
            "paid"
        } else {
            "cancelled"
        };
        let cents: u32 = random.random_range(99..20_000);
        let (whole, fraction) = (cents / 100, cents % 100);
        let order_id = self.number;
        self.number += 1;
        lines.push_str(&format!(
            "{{\"order_id\":{order_id},\"created_at\":{created_at},\"city\":\"{city}\",\
             \"status\":\"{status}\",\"amount\":{whole}.{fraction:02},\"channel\":\"{channel}\"}}\n"
        ));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::checker::{Expectation, FileInput};
    use crate::order::Order;

    fn orders(late_share: f64) -> Expectation {
        let options = GeneratorOptions {
            rate: 50_000,
            seed: 7,
            late_share,
        };
        let mut orders = Orders::new(options, Clock::start());
        let mut expectation = Expectation::default();
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(5));
            for (lane, lines) in orders.due().iter().enumerate() {
                for line in lines.lines() {
                    expectation.add(&lane.to_string(), &Order::parse(line).unwrap());
                }
            }
        }
        expectation.settle();
        assert!(expectation.len() >= CITIES.len());
        expectation
    }

    #[test]
    fn the_disorder_makes_nothing_late() {
        assert_eq!(orders(0.0).late(), 0);
    }

    #[test]
    fn late_orders_come_when_asked_for() {
        assert!(orders(0.05).late() > 0);
    }

    #[test]
    fn the_checker_reads_every_line_that_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let options = GeneratorOptions {
            rate: 2_000,
            seed: 1,
            late_share: 0.0,
        };
        let target = FileTarget::create(dir.path(), &[]).unwrap();
        let generator = Generator::start(options, Clock::start(), target).unwrap();
        let mut input = FileInput::new(dir.path());
        let mut grown = Expectation::default();
        while generator.produced() < 300 {
            input.read_into(&mut grown).unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
        assert!(generator.stop().unwrap() >= 300);
        input.read_into(&mut grown).unwrap();
        let mut whole = Expectation::default();
        FileInput::new(dir.path()).read_into(&mut whole).unwrap();
        grown.settle();
        whole.settle();
        let rows = |expectation: &Expectation| -> Vec<_> {
            let get = |key| (format!("{key:?}"), expectation.get(key).cloned());
            expectation.keys().map(get).collect()
        };
        assert_eq!(rows(&grown), rows(&whole));
        assert!(!whole.is_empty());
    }
}
