//! How long rows take on a healthy cluster whose beat is slow: ticks must follow the data, not the beat.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use unisono::simulation::{Log, Outside};
use unisono_engine::row::StreamKind;
use unisono_replication::rt::{self, simulated, sleep};

use super::{LANES, World, check, simulate};

/// From one tick to the next where nothing closes: the longest that a config may say.
pub const BEAT: Duration = Duration::from_millis(500);
/// No multiple of the beat, so that windows end in all of its phases.
const WINDOW: &str = "300ms";
const NODES: usize = 3;
const RECORD_EVERY: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Before it is measured.
const WARM: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(6);

/// How long after its end each window's rows were in the sink, while each lane gets a record every 10 ms.
///
/// # Panics
/// Something that must hold does not.
#[must_use]
pub fn lateness(seed: u64) -> Vec<Duration> {
    simulate(seed, NODES, |outside, path| async move {
        let mut world = World::new(outside, path, NODES);
        world.alter = |config| {
            let beat = format!("[cluster]\ntick_interval = \"{}ms\"\n", BEAT.as_millis());
            let config = config.replace("[cluster]\n", &beat);
            config.replace("size = \"500ms\"", &format!("size = \"{WINDOW}\""))
        };
        (1..=NODES).for_each(|node| world.start(node));
        drop(rt::spawn(produce(Arc::clone(&world.outside.log))));
        measure(&world.outside).await
    })
}

/// One record for each lane, stamped with the world's time, again and again.
async fn produce(log: Arc<Log>) {
    loop {
        let at = rt::wall().as_millis();
        for lane in 0..LANES {
            let record = format!("{{\"t\":{at},\"g\":1,\"v\":1}}");
            log.append(lane, i64::try_from(at).unwrap_or(0), record.as_bytes());
        }
        sleep(RECORD_EVERY).await;
    }
}

async fn measure(outside: &Outside) -> Vec<Duration> {
    let mut known = BTreeSet::new();
    let mut late = Vec::new();
    while simulated::elapsed() < WARM + MEASURED {
        sleep(LOOK_EVERY).await;
        let now = rt::wall();
        let rows = outside.topic.rows();
        let rows = rows
            .iter()
            .filter(|(stream, _)| stream.kind == StreamKind::Rows);
        for row in rows.flat_map(|(_, rows)| rows) {
            let (_, end, _) = check::window(row);
            if known.insert(end) && simulated::elapsed() > WARM {
                late.push(now.saturating_sub(Duration::from_millis(end)));
            }
        }
    }
    late
}
