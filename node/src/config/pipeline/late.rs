//! What becomes of late records.

use unisono_engine::spec::{LateSpec, WindowSpec};

use crate::config::section::Section;

/// How many windows may be kept: each that a late record falls into gives a row.
const MOST_KEPT: i64 = 10_000;
const MOST_KEEP_MS: i64 = 366 * 86_400_000;

/// Reads `[late]`; `None` after reporting what is wrong.
pub(super) fn read_late(
    section: &mut Section<'_>,
    window: Option<&WindowSpec>,
) -> Option<LateSpec> {
    let table = section.table("late").unwrap_or_default();
    let mut late = section.section("late", table);
    let has_keep = late.has("keep");
    let keep_ms = late.positive_ms("keep");
    let policy = late.string("policy");
    let spec = match policy.as_deref() {
        None | Some("drop") => {
            if has_keep {
                late.problem(
                    "keep",
                    "goes with policy = \"revise\"; add that, or remove keep",
                );
            }
            Some(LateSpec::Drop)
        }
        Some("revise") => {
            if !has_keep {
                let message = "is missing beside policy = \"revise\"; write, say, keep = \"1h\"";
                late.problem("keep", message);
            }
            if window.and_then(WindowSpec::gap_ms).is_some() {
                let message = "\"revise\" does not go with sessions: a late record could join two that were published; write \"drop\"";
                late.problem("policy", message);
            }
            let keep_ms = keep_ms?;
            if let Some(message) = fault(keep_ms, window) {
                late.problem("keep", message);
            }
            Some(LateSpec::Revise { keep_ms })
        }
        Some(other) => {
            let message = format!("\"{other}\" is not known; write \"drop\" or \"revise\"");
            late.problem("policy", message);
            None
        }
    };
    late.finish();
    spec
}

/// Which rule the time breaks.
fn fault(keep_ms: i64, window: Option<&WindowSpec>) -> Option<String> {
    let windows = window
        .and_then(WindowSpec::fixed)
        .map_or(0, |fixed| keep_ms / fixed.slide_ms());
    match () {
        () if keep_ms == 0 => Some("must be greater than 0; or write policy = \"drop\"".to_owned()),
        () if keep_ms > MOST_KEEP_MS => Some("may be at most 366 days".to_owned()),
        () if windows > MOST_KEPT => Some(format!(
            "would keep {windows} windows; it may be at most {MOST_KEPT} times the window's slide (or size)"
        )),
        () => None,
    }
}
