//! What the input says that the rows must be.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::exact::Exact;
use crate::order::{LAG_MS, Order, window_end};
use crate::row::{Key, Values};

/// The right values of one window and group, or why the checker cannot tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The right values.
    Values(Values),
    /// The numbers outgrew the checker's own arithmetic.
    Overflow,
}

#[derive(Clone, Debug)]
struct Fold {
    orders: u64,
    revenue: Exact,
    lowest: Exact,
    highest: Exact,
}

/// Every window's values, folded from the orders as they come. Lanes may be fed in any interleaving; the orders of one
/// lane must come in their order.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    folds: BTreeMap<Key, Option<Fold>>,
    expected: BTreeMap<Key, Expected>,
    stale: BTreeSet<Key>,
    /// The greatest event time that each lane has shown.
    lanes: BTreeMap<String, i64>,
    /// Paid orders left out because their own lane had passed their window.
    late: u64,
}

impl Expectation {
    /// Takes the next order of a lane.
    pub fn add(&mut self, lane: &str, order: &Order) {
        let end = window_end(order.created_at);
        let shown = self.lanes.get(lane).copied();
        // Orders that the filter leaves out move the lane on like any other.
        let newest = shown.map_or(order.created_at, |shown| shown.max(order.created_at));
        if shown != Some(newest) {
            self.lanes.insert(lane.to_owned(), newest);
        }
        if !order.paid {
            return;
        }
        if shown.is_some_and(|shown| shown - LAG_MS >= end) {
            self.late += 1;
            return;
        }
        let key = (end, order.city.clone());
        let amount = order.amount;
        let empty = Fold {
            orders: 0,
            revenue: Exact::ZERO,
            lowest: amount,
            highest: amount,
        };
        let fold = self.folds.entry(key.clone()).or_insert(Some(empty));
        *fold = fold.take().and_then(|fold| fold.with(amount));
        self.stale.insert(key);
    }

    /// Works out the values of what changed; to be called before comparing.
    pub fn settle(&mut self) {
        for key in std::mem::take(&mut self.stale) {
            let fold = self.folds.get(&key).and_then(Option::as_ref);
            let expected = fold
                .and_then(Fold::values)
                .map_or(Expected::Overflow, Expected::Values);
            self.expected.insert(key, expected);
        }
    }

    /// The values of a window and group; `None` where the input has nothing.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Expected> {
        self.expected.get(key)
    }

    /// All windows and groups, in the order of their rows.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.expected.keys()
    }

    /// How many rows there must be in the end.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// Whether the input has nothing that counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// How many different windows there are.
    #[must_use]
    pub fn windows(&self) -> usize {
        self.keys()
            .map(|(end, _)| end)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// How many paid orders were too late to count.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

impl Fold {
    fn with(self, amount: Exact) -> Option<Self> {
        let below = amount.compare(self.lowest)? == Ordering::Less;
        let above = amount.compare(self.highest)? == Ordering::Greater;
        Some(Self {
            orders: self.orders + 1,
            revenue: self.revenue.plus(amount)?,
            lowest: if below { amount } else { self.lowest },
            highest: if above { amount } else { self.highest },
        })
    }

    fn values(&self) -> Option<Values> {
        Some(Values {
            orders: Exact::whole(self.orders),
            revenue: self.revenue,
            average: self.revenue.divided_by(self.orders)?,
            lowest: self.lowest,
            highest: self.highest,
        })
    }
}
