use super::*;
use crate::exact::Exact;
use crate::order::Order;

fn order(created_at: i64, city: &str, amount: &str) -> Order {
    Order {
        created_at,
        city: city.into(),
        paid: true,
        amount: Exact::parse(amount).unwrap(),
    }
}

/// Two windows, three rows: Oslo and Rome up to 100, Oslo up to 200.
fn input() -> Expectation {
    let mut expectation = Expectation::default();
    expectation.add("a", &order(10, "Oslo", "0.10"));
    expectation.add("a", &order(30, "Oslo", "0.20"));
    expectation.add("b", &order(99, "Rome", "7.00"));
    expectation.add("b", &order(100, "Oslo", "1.00"));
    expectation.add("a", &order(120, "Oslo", "0.00"));
    expectation.add("a", &order(110, "Oslo", "0.00"));
    let unpaid = Order {
        paid: false,
        ..order(150, "Rome", "9.99")
    };
    expectation.add("a", &unpaid);
    expectation.settle();
    expectation
}

const RIGHT: [&str; 3] = [
    r#"{"pipeline":"orders","seq":0,"revision":0,"start":"1970-01-01T00:00:00Z","end":"1970-01-01T00:00:00.100Z","group":{"city":"Oslo"},"values":{"orders":2,"revenue":0.3,"average":0.15,"lowest":0.1,"highest":0.2}}"#,
    r#"{"pipeline":"orders","seq":1,"revision":0,"start":"1970-01-01T00:00:00Z","end":"1970-01-01T00:00:00.100Z","group":{"city":"Rome"},"values":{"orders":1,"revenue":7,"average":7,"lowest":7,"highest":7}}"#,
    r#"{"pipeline":"orders","seq":2,"revision":0,"start":"1970-01-01T00:00:00.100Z","end":"1970-01-01T00:00:00.200Z","group":{"city":"Oslo"},"values":{"orders":3,"revenue":1,"average":0.33333333333333333333,"lowest":0,"highest":1}}"#,
];

fn copy(name: &str, texts: &[&str]) -> Copy {
    let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
    Copy::of_texts(name, &texts)
}

/// `gaps/duplicates/wrong` of one copy with everything demanded.
#[track_caller]
fn verdict_is(texts: &[&str], expected: &str) {
    let verdict = check(&input(), &[copy("1", texts)], Demand::All);
    let found = format!("{}/{}/{}", verdict.gaps, verdict.duplicates, verdict.wrong);
    assert_eq!(found, expected, "{:#?}", verdict.notes);
    assert_eq!(verdict.is_clean(), expected == "0/0/0");
}

#[test]
fn the_right_rows_are_clean() {
    verdict_is(&RIGHT, "0/0/0");
    let verdict = check(
        &input(),
        &[copy("1", &RIGHT), copy("2", &RIGHT)],
        Demand::All,
    );
    assert!(verdict.is_clean() && verdict.windows == 2 && verdict.rows == 3);
}

#[test]
fn a_missing_row_is_one_gap() {
    verdict_is(&[RIGHT[0], RIGHT[2]], "1/0/0");
    verdict_is(&RIGHT[..2], "1/0/0");
    verdict_is(&[], "3/0/0");
}

#[test]
fn a_row_skipped_with_its_number_is_a_gap() {
    let renumbered = RIGHT[2].replace("\"seq\":2", "\"seq\":1");
    verdict_is(&[RIGHT[0], &renumbered], "1/0/0");
}

#[test]
fn a_number_skipped_without_a_row_is_a_gap() {
    let renumbered = RIGHT[2].replace("\"seq\":2", "\"seq\":3");
    verdict_is(&[RIGHT[0], RIGHT[1], &renumbered], "1/0/0");
}

#[test]
fn a_doubled_row_is_a_duplicate() {
    verdict_is(&[RIGHT[0], RIGHT[1], RIGHT[1], RIGHT[2]], "0/1/0");
}

#[test]
fn a_window_published_again_under_another_number_is_a_duplicate() {
    let again = RIGHT[2].replace("\"seq\":2", "\"seq\":3");
    verdict_is(&[RIGHT[0], RIGHT[1], RIGHT[2], &again], "0/1/0");
}

#[test]
fn a_wrong_digit_is_wrong() {
    verdict_is(
        &[RIGHT[0], RIGHT[1], &RIGHT[2].replace("333,", "334,")],
        "0/0/1",
    );
    verdict_is(
        &[
            &RIGHT[0].replace("\"revenue\":0.3", "\"revenue\":0.30000000000000004"),
            RIGHT[1],
            RIGHT[2],
        ],
        "0/0/1",
    );
    verdict_is(
        &[
            &RIGHT[0].replace("\"orders\":2", "\"orders\":1"),
            RIGHT[1],
            RIGHT[2],
        ],
        "0/0/1",
    );
}

#[test]
fn a_row_too_many_is_wrong() {
    let invented = RIGHT[2]
        .replace("\"seq\":2", "\"seq\":3")
        .replace("Oslo", "Rome");
    verdict_is(&[RIGHT[0], RIGHT[1], RIGHT[2], &invented], "0/0/1");
}

#[test]
fn rows_out_of_order_are_wrong() {
    let first = RIGHT[0].replace("\"seq\":0", "\"seq\":1");
    let second = RIGHT[1].replace("\"seq\":1", "\"seq\":0");
    verdict_is(&[&second, &first, RIGHT[2]], "0/0/1");
}

#[test]
fn a_revision_or_a_broken_row_is_wrong_and_its_window_missing() {
    verdict_is(
        &[
            &RIGHT[0].replace("revision\":0", "revision\":1"),
            RIGHT[1],
            RIGHT[2],
        ],
        "1/0/1",
    );
    verdict_is(&[&RIGHT[0][..80], RIGHT[1], RIGHT[2]], "1/0/1");
}

#[test]
fn other_bytes_under_the_same_number_on_two_replicas_are_wrong() {
    let same_value_other_bytes = RIGHT[1].replace("\"revenue\":7,", "\"revenue\":7.0,");
    let other = copy("2", &[RIGHT[0], &same_value_other_bytes, RIGHT[2]]);
    let verdict = check(&input(), &[copy("1", &RIGHT), other], Demand::All);
    assert_eq!((verdict.gaps, verdict.duplicates, verdict.wrong), (0, 0, 1));
}

#[test]
fn a_row_missing_on_one_replica_is_a_gap() {
    let verdict = check(
        &input(),
        &[copy("1", &RIGHT), copy("2", &RIGHT[..2])],
        Demand::All,
    );
    assert_eq!((verdict.gaps, verdict.duplicates, verdict.wrong), (1, 0, 0));
}

#[test]
fn what_may_still_come_is_not_demanded_yet() {
    let verdict = check(&input(), &[copy("1", &RIGHT[..2])], Demand::SoFar);
    assert!(verdict.is_clean());
    let verdict = check(&input(), &[copy("1", &[RIGHT[0], RIGHT[2]])], Demand::SoFar);
    assert_eq!(verdict.gaps, 1);
}

#[test]
fn an_order_is_late_when_its_own_lane_has_passed_its_window() {
    let mut expectation = Expectation::default();
    expectation.add("a", &order(149, "Oslo", "1.00"));
    expectation.add("a", &order(99, "Oslo", "2.00"));
    expectation.add("a", &order(150, "Oslo", "4.00"));
    expectation.add("a", &order(99, "Oslo", "8.00"));
    expectation.add("b", &order(99, "Oslo", "16.00"));
    expectation.settle();
    let Some(Expected::Values(values)) = expectation.get(&(100, "Oslo".into())) else {
        panic!("no window up to 100");
    };
    assert_eq!(values.revenue.to_string(), "18");
    assert_eq!((expectation.late(), expectation.len()), (1, 2));
}
