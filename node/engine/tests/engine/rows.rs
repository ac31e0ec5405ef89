//! What rows and dead letters hold.

use unisono_engine::dead_letter::Reason;
use unisono_engine::decimal::Decimal;
use unisono_engine::record::RecordState;
use unisono_engine::row::{Digest, StreamKind};
use unisono_engine::spec::{
    Column, Function, GroupColumn, PipelineSpec, TimeFormat, TimeSource, Timestamp, WindowError,
    WindowSpec,
};

use crate::harness::{Batch, Engine};
use crate::timeline::{PIPELINE, Player, VALUE, check, grouped, plain, value, window};

fn all_values() -> PipelineSpec {
    let values = vec![
        value("n", Function::CountAll),
        value("c", Function::Count(VALUE)),
        value("sum", Function::Sum(VALUE)),
        value("avg", Function::Avg(VALUE)),
        value("min", Function::Min(VALUE)),
        value("max", Function::Max(VALUE)),
    ];
    PipelineSpec { values, ..plain() }
}

#[test]
fn a_row_is_exactly_this_json() {
    let spec = PipelineSpec {
        name: "dns".into(),
        time: TimeSource::Field {
            column: Column(0),
            format: TimeFormat::Auto,
            zone: None,
        },
        group_by: vec![GroupColumn {
            name: "rcode_name".into(),
            column: Column(1),
        }],
        window: window(60, 60),
        values: vec![
            value("n", Function::CountAll),
            value("total", Function::Sum(VALUE)),
        ],
        ..plain()
    };
    let mut engine = Engine::default();
    engine.add_pipeline(PIPELINE, spec);
    let lane = engine.add_lane("dns/0".into());
    let mut batch = Batch::default();
    for (offset, number) in ["5.35", "0.004"].iter().enumerate() {
        batch.push(offset as i64, RecordState::Decoded, b"{}");
        batch.set_text(Column(0), "2018-03-24T17:15:20.866586Z");
        batch.set_text(Column(1), "NO\"ERROR");
        batch.set_number(VALUE, Decimal::parse(number.as_bytes()).unwrap());
    }
    engine.begin(None);
    engine.absorb(lane, &batch, 0..2);
    assert_eq!(engine.close(&[]), []);
    let head = r#"{"pipeline":"dns","seq":"#;
    let tail = r#","revision":0,"start":"2018-03-24T17:15:00Z","end":"2018-03-24T17:16:00Z","#;
    let tail = format!(
        "{tail}{}",
        r#""group":{"rcode_name":"NO\"ERROR"},"values":{"n":2,"total":5.354}}"#
    );
    let open = engine.open_windows(PIPELINE);
    assert_eq!(
        String::from_utf8(open[0].json.clone()).unwrap(),
        format!("{head}null{tail}")
    );
    let outputs = engine.finish();
    assert_eq!(outputs[0].stream.kind, StreamKind::Rows);
    let row = &outputs[0].rows[0];
    assert_eq!(
        String::from_utf8(row.json.clone()).unwrap(),
        format!("{head}0{tail}")
    );
    assert_eq!(
        &row.json[row.group.clone()],
        br#"{"rcode_name":"NO\"ERROR"}"#
    );
    assert_eq!(
        (row.start, row.end),
        (Timestamp(1_521_911_700_000), Timestamp(1_521_911_760_000))
    );
    assert_eq!(row.digest, Digest::default().chain(&row.json));
    assert!(engine.open_windows(PIPELINE).is_empty());
}

#[test]
fn without_group_by_the_group_is_an_empty_object() {
    let mut player = Player::new(plain(), &["p0"]);
    player.play("p0@1.5=1 tick");
    let json = player.engine.open_windows(PIPELINE).remove(0).json;
    let json = String::from_utf8(json).unwrap();
    assert!(
        json.contains(r#""start":"1970-01-01T00:00:00Z","#),
        "{json}"
    );
    assert!(
        json.contains(r#","group":{},"values":{"n":1,"sum":1}}"#),
        "{json}"
    );
}

#[test]
fn nothing_counted_is_null_and_unusable_fields_count_for_no_value() {
    let nothing = "[0,10) n=3 c=0 sum=null avg=null min=null max=null";
    check(all_values(), "p0@1=bad p0@2=null p0@3 tick finish", nothing);
    let texts = "[0,10) n=4 c=4 sum=1.5 avg=1.5 min=1.5 max=1.5";
    check(
        all_values(),
        "p0@1=NaN p0@2=true p0@3=-Infinity p0@4=1.5 tick finish",
        texts,
    );
    // The next window is clean.
    let next = "[0,10) n=2 c=1 sum=0 avg=0 min=0 max=0; [10,20) n=2 c=2 sum=3 avg=1.5 min=1 max=2";
    check(
        all_values(),
        "p0@1=bad p0@2=-0.0 p0@11=1 p0@12=2 tick finish",
        next,
    );
}

#[test]
fn a_bad_field_counts_once_however_many_values_use_it() {
    let mut player = Player::new(all_values(), &["p0"]);
    player.play("p0@1=bad p0@2=text p0@3=null p0@4=1 p0@5=true tick");
    assert_eq!(player.engine.stats(PIPELINE).unwrap().bad_fields, 3);
    let mut player = Player::new(grouped(), &["p0"]);
    player.play("p0@1:bad=1 p0@2:bad=bad tick finish");
    let unusable = "!group_unusable p0#0; !group_unusable p0#1";
    assert_eq!(player.results(), unusable);
    assert_eq!(player.engine.stats(PIPELINE).unwrap().bad_fields, 0);
}

#[test]
fn sums_and_averages_are_exact() {
    let expected = "[0,10) n=2 c=2 sum=9223372036854775808 avg=4611686018427387904 min=1 \
                    max=9223372036854775807";
    check(
        all_values(),
        "p0@1=9223372036854775807 p1@1=1 tick finish",
        expected,
    );
    let expected = "[0,10) n=2 c=2 sum=0.3 avg=0.15 min=0.1 max=0.2";
    check(all_values(), "p0@1=0.1 p1@1=0.2 tick finish", expected);
}

#[test]
fn groups_are_ordered_and_null_is_one_of_them() {
    let expected = "[0,10) null n=2 sum=3; [0,10) false n=1 sum=1; [0,10) true n=1 sum=1; \
                    [0,10) -5 n=1 sum=1; [0,10) 2 n=1 sum=1; [0,10) 10 n=2 sum=2; \
                    [0,10) 2882429806056571124 n=1 sum=1; [0,10) 2882429806056571125 n=1 sum=1; \
                    [0,10) a n=1 sum=1; [0,10) ab n=1 sum=1; [0,10) b n=1 sum=1";
    let records = "p0@1:b=1 p0@1:10=1 p0@1:10.0=1 p0@1:2=1 p0@1:ab=1 p0@1:a=1 p0@1=1 p0@1:null=2 \
                   p0@1:true=1 p0@1:false=1 p0@1:-5=1 p0@1:2882429806056571125=1 \
                   p0@1:2882429806056571124=1 tick finish";
    check(grouped(), records, expected);
}

#[test]
fn what_cannot_be_decoded_is_counted_by_reason() {
    let mut player = Player::new(plain(), &["p0"]);
    player.play(
        "p0!null_payload p0!empty_payload p0!byte_order_mark p0!not_utf8 p0!not_json \
         p0!not_an_object p0@-=1 p0@true=1 p0@637500000000000000=1 p0@9223372036854775807=1 \
         p0@-9223372036854775808=1 p0@1=1 tick finish",
    );
    let expected = "!null_payload p0#0; !empty_payload p0#1; !byte_order_mark p0#2; \
                    !not_utf8 p0#3; !not_json p0#4; !not_an_object p0#5; !bad_time p0#6; \
                    !bad_time p0#7; !bad_time p0#8; !bad_time p0#9; !bad_time p0#10; \
                    [0,10) n=1 sum=1";
    assert_eq!(player.results(), expected);
    let stats = player.engine.stats(PIPELINE).unwrap();
    assert_eq!(stats.dead_letters.get(Reason::BadTime), 5);
    assert_eq!(stats.dead_letters.get(Reason::NotJson), 1);
    assert_eq!(
        (stats.records, stats.counted, stats.next_dead_letter_seq.0),
        (12, 1, 11)
    );
}

#[test]
fn a_lane_writes_a_thousand_dead_letters_of_ten_thousand_offsets_whatever_the_ticks() {
    // One lane has 1,400 of them, 100 in the next stretch of its offsets; another has 700.
    let play = |tick: usize, restart: bool| {
        let mut player = Player::new(plain(), &["p0", "p1"]);
        for at in 0..10_100 {
            player.play(match at {
                0..1400 | 10_000.. => "p0!not_json",
                _ => "p0@1",
            });
            if at < 700 {
                player.play("p1!not_json");
            }
            if at % tick == 0 {
                player.play("tick");
            }
            if restart && at == 1200 {
                player.play("tick");
                let parts = player.engine.checkpoint();
                player.engine = Engine::restore(&parts, vec![(PIPELINE, plain())]).unwrap();
            }
        }
        player.play("tick");
        let stats = player.engine.stats(PIPELINE).unwrap();
        assert_eq!(stats.dead_letters.total(), 2200);
        assert_eq!(
            (stats.dead_letters_suppressed, stats.next_dead_letter_seq.0),
            (400, 1800)
        );
        let results = player.results();
        let written = |lane: &str| results.matches(&format!(" {lane}#")).count();
        (written("p0"), written("p1"))
    };
    for (tick, restart) in [(20_000, false), (7, false), (1000, true)] {
        assert_eq!(play(tick, restart), (1100, 700), "{tick}");
    }
}

#[test]
fn windows_before_1970_and_with_an_offset() {
    let window = WindowSpec::new(10_000, 10_000, 5000).unwrap();
    let spec = PipelineSpec { window, ..plain() };
    check(spec, "p0@-86398=1 tick finish", "[-86405,-86395) n=1 sum=1");
    let window = WindowSpec::new(1000, 1000, 0).unwrap();
    check(
        PipelineSpec { window, ..plain() },
        "p0@-0.001=1 tick finish",
        "[-1,0) n=1 sum=1",
    );
}

#[test]
fn windows_that_break_a_rule_are_refused_with_the_rule() {
    for (size, slide, expected) in [
        (0, 1, WindowError::Size),
        (-1, 1, WindowError::Size),
        (10, 0, WindowError::Slide),
        (10, -5, WindowError::Slide),
        (10, 20, WindowError::SlideAboveSize),
        (10, 3, WindowError::SlideDoesNotDivide),
        (i64::MAX, i64::MAX, WindowError::TooLarge),
    ] {
        assert_eq!(
            WindowSpec::new(size, slide, 0),
            Err(expected),
            "{size} {slide}"
        );
    }
}

#[test]
fn append_time_of_none_is_a_bad_time() {
    let spec = PipelineSpec {
        time: TimeSource::AppendTime,
        ..plain()
    };
    check(spec, "p0@1=1 tick finish", "!bad_time p0#0");
}

#[test]
fn a_record_whose_group_is_too_large_is_a_dead_letter_and_leaves_nothing() {
    let mut spec = grouped();
    spec.group_bytes = 8;
    check(
        spec,
        "p0@1:paris=1 p0@2:a_very_long_name=1 p0@3:paris=2 tick finish",
        "!group_too_large p0#1; [0,10) paris n=2 sum=3",
    );
}
