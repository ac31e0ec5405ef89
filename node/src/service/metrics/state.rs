//! Memory for state, where it has a budget.

use std::sync::atomic::{AtomicU64, Ordering};

use unisono_api::Metric;

use super::number;
use crate::room::StateRoom;

/// None without a budget.
pub(super) fn of(room: &StateRoom) -> Vec<Metric> {
    let Some(limit) = room.limit() else {
        return Vec::new();
    };
    let counts = room.counts();
    let read = |count: &AtomicU64| number(count.load(Ordering::Relaxed));
    vec![
        Metric::gauge(
            "unisono_state_memory_limit_bytes",
            "Bytes that the state of open windows may take in memory.",
            number(limit as u64),
        ),
        Metric::gauge(
            "unisono_state_memory_bytes",
            "Bytes that it takes, about.",
            number(room.held() as u64),
        ),
        Metric::gauge(
            "unisono_state_disk_bytes",
            "Bytes of it that are on disk, for lack of memory.",
            read(&counts.on_disk),
        ),
        Metric::counter(
            "unisono_state_spills_total",
            "How often some of it went to disk.",
            read(&counts.spills),
        ),
        Metric::counter(
            "unisono_state_spilled_bytes_total",
            "Bytes that went to disk.",
            read(&counts.written),
        ),
        Metric::counter(
            "unisono_state_read_back_bytes_total",
            "Bytes that were read back, for windows that closed, checkpoints and queries.",
            read(&counts.read),
        ),
    ]
}
