#![allow(clippy::unwrap_used)]

use super::*;

fn read(text: &str, format: TimeFormat) -> String {
    parse(Cell::Text(text.as_bytes()), &format, None).map_or("none".into(), super::format)
}

fn number(text: &str, format: TimeFormat) -> String {
    let number = Decimal::parse(text.as_bytes()).unwrap();
    parse(Cell::Number(number), &format, None).map_or("none".into(), super::format)
}

#[test]
fn times_are_read_as_people_send_them() {
    for (text, expected) in [
        ("2018-03-24T17:15:20.866586Z", "2018-03-24T17:15:20.866Z"),
        ("2018-03-24T17:15:20Z", "2018-03-24T17:15:20Z"),
        ("2018-03-24T17:15:20.1Z", "2018-03-24T17:15:20.100Z"),
        ("2018-03-24T17:15:20.123456789Z", "2018-03-24T17:15:20.123Z"),
        ("2018-03-24t17:15:20.5z", "2018-03-24T17:15:20.500Z"),
        ("2018-03-24 17:15:20", "2018-03-24T17:15:20Z"),
        ("2018-03-24T17:15:20+01:00", "2018-03-24T16:15:20Z"),
        ("2018-03-24T17:15:20.25+0100", "2018-03-24T16:15:20.250Z"),
        ("2018-12-31T23:30:00-0130", "2019-01-01T01:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.999Z"),
        ("2016-12-31T23:59:60.2Z", "2016-12-31T23:59:59.999Z"),
        ("2018-03-24", "2018-03-24T00:00:00Z"),
        ("2018-03-24T17:15", "2018-03-24T17:15:00Z"),
        ("2018-03-24 17:15+02:00", "2018-03-24T15:15:00Z"),
        ("2018-03-24 17:15:20 UTC", "2018-03-24T17:15:20Z"),
        ("2018-03-24 17:15:20.5 gmt", "2018-03-24T17:15:20.500Z"),
        ("2018-03-24 17:15:20,866", "2018-03-24T17:15:20.866Z"),
        ("2018-03-24  17:15:20 +0100", "2018-03-24T16:15:20Z"),
        (" 2018-03-24T17:15:20Z\n", "2018-03-24T17:15:20Z"),
        (
            "2018-03-24T17:15:20.12345678901234Z",
            "2018-03-24T17:15:20.123Z",
        ),
        ("1969-12-31T23:59:59.9999Z", "1969-12-31T23:59:59.999Z"),
        ("2000-02-29T00:00:00Z", "2000-02-29T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(read(text, TimeFormat::Rfc3339), expected, "{text}");
        assert_eq!(read(text, TimeFormat::Auto), expected, "{text}");
    }
}

#[test]
fn what_is_no_time_is_none() {
    for text in [
        "",
        "now",
        "2018-03-2",
        "2018-03-24T",
        "2018-03-24T17",
        "2018-03-24 17:1",
        "2018-03-24Z",
        "2018-03-24T17:15:",
        "2018-03-24T17:15:20 CET",
        "2018-3-24T17:15:20Z",
        "2018-13-24T17:15:20Z",
        "2018-00-24T17:15:20Z",
        "2018-02-30T17:15:20Z",
        "1900-02-29T00:00:00Z",
        "2018-03-24T24:00:00Z",
        "2018-03-24T17:60:20Z",
        "2018-03-24T17:15:61Z",
        "2018-03-24T17:15:20.Z",
        "2018-03-24T17:15:20ZZ",
        "2018-03-24T17:15:20+1",
        "2018-03-24T17:15:20+25:00",
        "2018-03-24T17:15:20+01:60",
        "0000-12-31T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "２018-03-24T17:15:20Z",
    ] {
        assert_eq!(read(text, TimeFormat::Rfc3339), "none", "{text}");
    }
}

#[test]
fn a_numbers_size_tells_its_unit() {
    for text in [
        "1521911720",
        "1521911720000",
        "1521911720000000",
        "1521911720000000000",
    ] {
        assert_eq!(
            number(text, TimeFormat::Auto),
            "2018-03-24T17:15:20Z",
            "{text}"
        );
        assert_eq!(
            read(text, TimeFormat::Auto),
            "2018-03-24T17:15:20Z",
            "{text}"
        );
    }
    assert_eq!(
        number("1521911720.8665", TimeFormat::Auto),
        "2018-03-24T17:15:20.866Z"
    );
    assert_eq!(
        number("99999999999", TimeFormat::Auto),
        "5138-11-16T09:46:39Z"
    );
    assert_eq!(
        number("100000000000", TimeFormat::Auto),
        "1973-03-03T09:46:40Z"
    );
}

#[test]
fn a_number_is_rounded_down_to_milliseconds() {
    assert_eq!(
        number("-0.0001", TimeFormat::Seconds),
        "1969-12-31T23:59:59.999Z"
    );
    assert_eq!(number("-1", TimeFormat::Micros), "1969-12-31T23:59:59.999Z");
    assert_eq!(
        number("1999", TimeFormat::Micros),
        "1970-01-01T00:00:00.001Z"
    );
    assert_eq!(
        number("1999999", TimeFormat::Nanos),
        "1970-01-01T00:00:00.001Z"
    );
    assert_eq!(read("1.5", TimeFormat::Seconds), "1970-01-01T00:00:01.500Z");
}

#[test]
fn numbers_outside_of_the_calendar_are_no_times() {
    for text in [
        "637500000000000000",
        "9223372036854775807",
        "-9223372036854775808",
    ] {
        assert_eq!(number(text, TimeFormat::Millis), "none", "{text}");
        assert_eq!(number(text, TimeFormat::Seconds), "none", "{text}");
    }
    assert_eq!(
        number("9999999999999999999999999999", TimeFormat::Nanos),
        "none"
    );
    assert_eq!(number("1", TimeFormat::Rfc3339), "none");
    assert_eq!(parse(Cell::Missing, &TimeFormat::Auto, None), None);
    assert_eq!(parse(Cell::Bool(true), &TimeFormat::Auto, None), None);
    assert_eq!(parse(Cell::Bad, &TimeFormat::Auto, None), None);
}

#[test]
fn every_day_of_the_calendar_comes_back() {
    let mut days = FIRST.0 / 86_400_000;
    while days <= LAST.0 / 86_400_000 {
        let time = Timestamp(days * 86_400_000 + 3_723_004);
        assert_eq!(parse_rfc3339(format(time).as_bytes()), Some(time));
        days += 1;
    }
}

#[test]
fn the_calendar_is_that_of_an_independent_library() {
    for seconds in [
        -62_135_596_800_i64,
        -1,
        0,
        951_782_400,
        1_521_911_720,
        253_402_207_200,
    ] {
        let other = jiff::Timestamp::from_second(seconds).unwrap().to_string();
        assert_eq!(format(Timestamp(seconds * 1000)), other);
    }
}

#[test]
fn a_window_may_end_in_the_year_10000() {
    assert_eq!(format(Timestamp(LAST.0 + 1)), "10000-01-01T00:00:00Z");
}

#[test]
fn what_stands_for_no_time_or_another_clock_is_no_time() {
    for text in [
        "0",
        "-1",
        // Ticks of 100 ns since the year 1, and as a file system counts them, since 1601.
        "637500000000000000",
        "133600000000000000",
        "9223372036854775807",
        "18446744073709551615",
        "4102444800000000000",
        "999999999999999999",
    ] {
        assert_eq!(number(text, TimeFormat::Auto), "none", "{text}");
        assert_eq!(read(text, TimeFormat::Auto), "none", "{text}");
    }
    let nanos = |text| number(text, TimeFormat::Auto);
    assert_eq!(nanos("1000000000000000000"), "2001-09-09T01:46:40Z");
    assert_eq!(nanos("4102444799999999999"), "2099-12-31T23:59:59.999Z");
    // Who names the unit means it.
    assert_eq!(number("0", TimeFormat::Seconds), "1970-01-01T00:00:00Z");
    assert_eq!(number("-1", TimeFormat::Seconds), "1969-12-31T23:59:59Z");
    assert_eq!(number("-2", TimeFormat::Auto), "1969-12-31T23:59:58Z");
}

#[test]
fn times_of_mails_are_read() {
    for (text, expected) in [
        ("Sat, 24 Mar 2018 17:15:20 +0100", "2018-03-24T16:15:20Z"),
        ("24 Mar 2018 17:15:20 GMT", "2018-03-24T17:15:20Z"),
        ("24 Mar 2018 17:15 -0000", "2018-03-24T17:15:00Z"),
    ] {
        assert_eq!(read(text, TimeFormat::Rfc2822), expected, "{text}");
        assert_eq!(read(text, TimeFormat::Auto), expected, "{text}");
        assert_eq!(read(text, TimeFormat::Rfc3339), "none", "{text}");
    }
    for text in [
        "",
        "Sun, 24 Mar 2018 17:15:20 GMT",
        "24 Mar 2018 17:15:20",
        "31 Feb 2018 17:15:20 GMT",
    ] {
        assert_eq!(read(text, TimeFormat::Rfc2822), "none", "{text}");
    }
}
