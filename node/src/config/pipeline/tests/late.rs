//! `[late]`.

use super::{DNS, refused};
use crate::definition::PipelineDefinition;

#[test]
fn late_records_are_dropped_or_correct_rows_for_a_bounded_time() {
    use unisono_engine::spec::LateSpec;
    let late = |rules: &str| format!("{DNS}[late]\n{rules}");
    let text = late("policy = 'revise'\nkeep = '1h'");
    let revised = PipelineDefinition::parse("p.toml", &text).unwrap();
    let expected = LateSpec::Revise { keep_ms: 3_600_000 };
    assert_eq!(revised.spec.late, expected);
    assert!(revised.canonical.starts_with("{\"version\":3,"));
    assert!(revised.canonical.ends_with(",\"revise_ms\":3600000}"));
    let again = PipelineDefinition::from_canonical(&revised.canonical, "s").unwrap();
    assert_eq!(again.spec.late, expected);
    // What was the same before is the same text.
    let plain = PipelineDefinition::parse("p.toml", DNS).unwrap().canonical;
    let dropped = PipelineDefinition::parse("p.toml", &late("policy = 'drop'")).unwrap();
    assert_eq!(dropped.canonical, plain);
    refused(
        &late("policy = 'revise'"),
        "late.keep: is missing beside policy",
    );
    refused(
        &late("keep = '1h'"),
        "late.keep: goes with policy = \"revise\"",
    );
    refused(
        &late("policy = 'revise'\nkeep = '0s'"),
        "late.keep: must be greater than 0",
    );
    refused(
        &late("policy = 'revise'\nkeep = '367d'"),
        "late.keep: may be at most 366 days",
    );
    refused(
        &late("policy = 'revise'\nkeep = '365d'"),
        "it may be at most 10000 times the window's slide (or size)",
    );
    refused(
        &late("policy = 'keep'"),
        "late.policy: \"keep\" is not known; write \"drop\" or \"revise\"",
    );
}
