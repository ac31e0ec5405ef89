//! A backlog of lanes of very different sizes over the same time: an aligned feed reads them side by side, and one that is not
//! aligned is not held up by that.

use std::time::Duration;

use unisono::simulation::{Log, Look};
use unisono_replication::rt::{self, simulated, sleep};

use super::{LANES, World, simulate};

const NODES: usize = 3;
/// The time that the backlog covers.
const SPAN_MS: u64 = 400_000;
/// From one record to the next in the large lane, and in the small ones.
const EVERY_MS: [u64; LANES] = [5, 1000, 1000];
/// A record of a small lane, so that a tick takes in some of them only.
const LARGE_RECORD: usize = 4 << 10;
/// How far a lane may be ahead.
pub const MAX_SKEW: Duration = Duration::from_secs(20);
/// What a tick may move of a lane that must not get ahead, in records of the small lanes.
pub const OF_A_TICK: Duration = Duration::from_secs(16);
const PATIENCE: Duration = Duration::from_secs(120);

/// How far a lane was ahead of another that had more to give, at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Skews {
    /// Of the feed that is aligned.
    pub aligned: Duration,
    /// Of the other feed, of the same lanes.
    pub free: Duration,
}

/// Has a cluster of three read the backlog.
///
/// # Panics
/// Not all is counted in time.
#[must_use]
pub fn skews(seed: u64) -> Skews {
    simulate(seed, NODES, |outside, path| async move {
        let mut world = World::new(outside, path, NODES);
        let total = fill(&world.outside.log);
        world.alter = |config| {
            let config = config.replace("[cluster]\n", "[cluster]\ntick_bytes = \"1MiB\"\n");
            let align = "name = \"all\"\nalign = { max_skew = \"20s\" }\n";
            config.replace("name = \"all\"\n", align)
        };
        (1..=NODES).for_each(|node| world.start(node));
        let mut skews = Skews::default();
        while !world.check.all_counted(&world.seen, &world.outside, total) {
            assert!(simulated::elapsed() < PATIENCE, "{}", world.standing(total));
            for _ in 0..50 {
                sleep(Duration::from_millis(1)).await;
                let looks = world.seen[1..].iter().filter_map(|seen| seen.look());
                looks.for_each(|look| skews.look(&look));
            }
            world.check.look(&world.seen, &world.outside);
        }
        world.check.exact(&world.outside);
        skews
    })
}

fn fill(log: &Log) -> usize {
    let begin = u64::try_from(rt::wall().as_millis()).unwrap_or(0) - SPAN_MS;
    let mut total = 0;
    for (lane, every) in EVERY_MS.into_iter().enumerate() {
        let padding = match lane {
            0 => String::new(),
            _ => "x".repeat(LARGE_RECORD),
        };
        for at in (begin..begin + SPAN_MS).step_by(usize::try_from(every).unwrap_or(1)) {
            let record = format!("{{\"t\":{at},\"g\":1,\"v\":1,\"p\":\"{padding}\"}}");
            log.append(lane, i64::try_from(at).unwrap_or(0), record.as_bytes());
            total += 1;
        }
    }
    total
}

impl Skews {
    fn look(&mut self, look: &Look) {
        for (max_skew_ms, lanes) in look.event_times() {
            // Who has come to the end has nothing more to give.
            let newest = lanes.iter().max().copied().flatten();
            let oldest = lanes.iter().min().copied().flatten();
            let (Some(newest), Some(oldest)) = (newest, oldest) else {
                continue;
            };
            let skew = Duration::from_millis(u64::try_from(newest - oldest).unwrap_or(0));
            let most = match max_skew_ms {
                Some(_) => &mut self.aligned,
                None => &mut self.free,
            };
            *most = skew.max(*most);
        }
    }
}
