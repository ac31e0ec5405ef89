//! The curve as points to draw: orders by window over the last seconds.

/// How much of the curve is shown.
pub(super) const SPAN_SECONDS: f64 = 20.0;
const SPAN_MS: i64 = 20_000;
const WINDOW_MS: i64 = unisono_chaos::order::WINDOW_MS;

/// Points `(seconds before now, negative; orders)`. A window without a row between two that have one is drawn as 0, so
/// that a gap would be seen.
pub(super) fn points(curve: &[(i64, u64)], now_ms: i64) -> Vec<(f64, f64)> {
    // The newest window may still lack rows of some groups.
    let Some((&(newest, _), complete)) = curve.split_last() else {
        return Vec::new();
    };
    let oldest = complete
        .first()
        .map_or(newest, |&(end, _)| end)
        .max(now_ms - SPAN_MS);
    let first = oldest.div_euclid(WINDOW_MS) * WINDOW_MS;
    let mut rest = complete
        .iter()
        .skip_while(|&&(end, _)| end < first)
        .peekable();
    let mut points = Vec::new();
    let mut end = first;
    while end < newest {
        let orders = rest
            .next_if(|&&(at, _)| at <= end)
            .map_or(0, |&(_, orders)| orders);
        points.push(((end - now_ms) as f64 / 1_000.0, orders as f64));
        end += WINDOW_MS;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_a_row_is_drawn_as_nothing() {
        let curve = [(100, 7), (300, 9), (400, 1)];
        assert_eq!(
            points(&curve, 1_000),
            [(-0.9, 7.0), (-0.8, 0.0), (-0.7, 9.0)]
        );
    }

    #[test]
    fn only_the_last_seconds_are_shown() {
        let curve: Vec<(i64, u64)> = (1..=1_000).map(|window| (window * 100, 5)).collect();
        let points = points(&curve, 100_000);
        assert_eq!(points.len(), 200);
        assert_eq!(points[0], (-20.0, 5.0));
    }

    #[test]
    fn before_the_first_row_there_is_no_curve() {
        assert!(points(&[], 1_000).is_empty());
    }
}
