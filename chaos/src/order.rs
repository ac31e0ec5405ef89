//! The demo's pipeline in plain constants, and one order as the input has it.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exact::Exact;

/// The pipeline's name.
pub const PIPELINE: &str = "orders";
/// The length of a window.
pub const WINDOW_MS: i64 = 100;
/// How far out of order a lane may be.
pub const LAG_MS: i64 = 50;
/// After how long a lane with nothing new no longer holds windows open.
pub const IDLE_MS: i64 = 2_000;
/// Only orders with this status count.
pub const COUNTED_STATUS: &str = "paid";

/// What the checker uses of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// The group.
    pub city: String,
    /// Whether the order counts at all.
    pub paid: bool,
    /// The order's amount.
    pub amount: Exact,
}

#[derive(Deserialize)]
struct RawOrder<'a> {
    created_at: i64,
    city: String,
    status: String,
    #[serde(borrow)]
    amount: &'a RawValue,
}

impl Order {
    /// Reads one line of the input. `None` where it is not an order as the generator writes it.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let raw: RawOrder<'_> = serde_json::from_str(line).ok()?;
        Some(Self {
            created_at: raw.created_at,
            city: raw.city,
            paid: raw.status == COUNTED_STATUS,
            amount: Exact::parse(raw.amount.get())?,
        })
    }
}

/// The end of the window that holds a time.
#[must_use]
pub fn window_end(at_ms: i64) -> i64 {
    at_ms.div_euclid(WINDOW_MS) * WINDOW_MS + WINDOW_MS
}
