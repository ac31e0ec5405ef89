//! Which windows a definition may have.

use super::*;

#[test]
fn windows_that_are_none_are_refused_with_the_rule() {
    let with = |window: &str| {
        DNS.replace(
            "{ size = \"5m\", slide = \"1m\", offset = \"10s\" }",
            window,
        )
    };
    refused(
        &with("{ size = '-1m' }"),
        "window: size must be greater than 0",
    );
    refused(
        &with("{ size = '1m', slide = '0s' }"),
        "window: slide must be greater than 0",
    );
    refused(
        &with("{ size = '1m', slide = '2m' }"),
        "window: slide must not be greater than size",
    );
    refused(
        &with("{ size = '1m', slide = '25s' }"),
        "window: slide must divide size",
    );
    refused(&with("{ slide = '25s' }"), "window.size: is missing");
    refused(
        &with("{ size = '1 month' }"),
        "window.size: follows a calendar: add its time_zone, as time_zone = \"UTC\"",
    );
    refused(
        &with("{ size = '1h', time_zone = 'UTC' }"),
        "window.size: must be 1 day, 1 week, 1 month, 1 quarter or 1 year where there is a time_zone",
    );
    refused(
        &with("{ size = '1 day', time_zone = 'Asia/Tapei' }"),
        "window.time_zone: \"Asia/Tapei\" is not a time zone; did you mean \"Asia/Taipei\"?",
    );
    refused(
        &with("{ size = '1 day', slide = '1h', time_zone = 'UTC' }"),
        "window.slide: goes without time_zone",
    );
    refused(
        &with("{ size = '1 day', offset = '24h', time_zone = 'UTC' }"),
        "window: offset of a calendar window must be less than a day",
    );
}

#[test]
fn a_session_window_is_its_gap_and_nothing_else() {
    let window = "{ session = '30m' }";
    let with = |window: &str| {
        DNS.replace(
            "{ size = \"5m\", slide = \"1m\", offset = \"10s\" }",
            window,
        )
    };
    let definition = PipelineDefinition::parse("p.toml", &with(window)).unwrap();
    assert_eq!(
        definition.spec.window,
        WindowSpec::sessions(1_800_000).unwrap()
    );
    let canonical = &definition.canonical;
    assert!(canonical.contains(r#""window":{"session_ms":1800000}"#));
    assert!(canonical.starts_with(r#"{"version":3,"#), "{canonical}");
    let again = PipelineDefinition::from_canonical(canonical, "s").unwrap();
    assert_eq!(again.spec.window, definition.spec.window);
    let damaged = canonical.replace("1800000", "0");
    assert!(PipelineDefinition::from_canonical(&damaged, "s").is_err());
    for key in ["size", "slide", "offset"] {
        refused(
            &with(&format!("{{ session = '30m', {key} = '1m' }}")),
            &format!("window.{key}: goes without session"),
        );
    }
    refused(
        &with("{ session = '30m', time_zone = 'UTC' }"),
        "window.time_zone: goes without session",
    );
    refused(
        &with("{ session = '0s' }"),
        "window: session must be greater than 0 and at most 366 days",
    );
    refused(&with("{ sesion = '30m' }"), "did you mean session?");
}

#[test]
fn a_calendar_window_has_its_zones_data_in_the_definition() {
    let window = "{ size = '1 day', time_zone = 'europe/berlin', offset = '6h' }";
    let text = DNS.replace(
        "{ size = \"5m\", slide = \"1m\", offset = \"10s\" }",
        window,
    );
    let definition = PipelineDefinition::parse("p.toml", &text).unwrap();
    let canonical = &definition.canonical;
    assert!(canonical.starts_with("{\"version\":3,"), "{canonical}");
    let zone = r#""zone":{"name":"Europe/Berlin","first_s":3208,"changes":[[-2422054408,3600],"#;
    assert!(canonical.contains(zone), "{canonical}");
    let again = PipelineDefinition::from_canonical(canonical, "s").unwrap();
    assert_eq!(again.spec.window, definition.spec.window);
    // With another database it is the same definition.
    let other = canonical.replace("[-2422054408,3600]", "[-2422054409,3600]");
    assert_ne!(*canonical, other);
    assert_eq!(
        crate::definition::as_written(canonical),
        crate::definition::as_written(&other)
    );
    let elsewhere = canonical.replace("Europe/Berlin", "Europe/Paris");
    assert_ne!(
        crate::definition::as_written(canonical),
        crate::definition::as_written(&elsewhere)
    );
}
