use super::super::question::{FeedAnswer, LaneAnswer, LaneQuestion};
use super::*;

const FEED: FeedId = FeedId(5);
const MS: Duration = Duration::from_millis(1);

/// The leader and two others, at the beginning of a term.
struct Table {
    seconds: Seconds,
    now: Instant,
}

impl Table {
    fn new() -> Self {
        let mut seconds = Seconds::default();
        let now = Instant::now();
        seconds.begin(1, &[2, 3], now);
        Self { seconds, now }
    }

    /// The leader, which holds up to 100, asks.
    fn ask(&mut self) -> Vec<FeedQuestion> {
        let lanes = vec![LaneQuestion {
            lane: 0,
            known: 10,
            cut: 100,
        }];
        let question = vec![FeedQuestion { feed: FEED, lanes }];
        self.seconds.asked(None, &question, self.now);
        question
    }

    fn answer(
        &mut self,
        number: u16,
        state: FeedState,
        held: Option<(i64, u64)>,
        end: Option<i64>,
    ) {
        let question = self.ask();
        let lanes = vec![LaneAnswer { lane: 0, held, end }];
        let feeds = vec![FeedAnswer {
            feed: FEED,
            state,
            lanes,
            unheard_ms: 0,
        }];
        let answer = Answer {
            applied: 1000,
            feeds,
            rows: Vec::new(),
        };
        let asked = self.now;
        self.now += MS;
        self.seconds
            .answered(number, &question, &answer, 1000, asked, self.now);
    }

    fn holds(&mut self, number: u16, cut: i64, fingerprint: u64) {
        self.answer(number, FeedState::Runs, Some((cut, fingerprint)), None);
    }

    /// The leader's fingerprint at any cut up to 100 is the cut itself.
    fn confirmed(&self) -> Confirmed {
        let own = |cut: i64| (cut <= 100).then_some(cut.unsigned_abs());
        self.seconds.confirmed(FEED, 0, 10, own)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.seconds.lapse(self.now);
    }
}

#[test]
fn a_cut_is_what_the_leader_and_another_one_hold_alike() {
    let mut table = Table::new();
    table.ask();
    assert_eq!(table.confirmed(), Confirmed::Nothing);
    table.holds(2, 40, 40);
    assert_eq!(table.confirmed(), Confirmed::UpTo(40));
    table.holds(3, 90, 90);
    assert_eq!(table.confirmed(), Confirmed::UpTo(90));
}

#[test]
fn the_leader_goes_on_alone_only_when_the_patience_with_all_is_at_its_end() {
    let mut table = Table::new();
    table.ask();
    table.pass(PATIENCE - MS);
    assert_eq!(table.confirmed(), Confirmed::Nothing);
    table.pass(MS);
    assert_eq!(table.confirmed(), Confirmed::Alone);
    // Paid once.
    table.ask();
    assert_eq!(table.confirmed(), Confirmed::Alone);
}

#[test]
fn one_that_was_lost_counts_again_after_a_second_of_keeping_up() {
    let mut table = Table::new();
    table.ask();
    table.pass(PATIENCE);
    table.holds(2, 100, 100);
    assert_eq!(table.confirmed(), Confirmed::Alone);
    table.now += PROBATION / 2;
    table.answer(2, FeedState::Runs, None, None);
    table.holds(2, 100, 100);
    table.now += PROBATION - MS * 2;
    table.holds(2, 100, 100);
    assert_eq!(
        table.confirmed(),
        Confirmed::Alone,
        "the second begins anew"
    );
    table.now += MS * 2;
    table.holds(2, 100, 100);
    assert_eq!(table.confirmed(), Confirmed::UpTo(100));
}

#[test]
fn a_slow_network_is_given_four_round_trips() {
    let mut table = Table::new();
    let question = table.ask();
    let asked = table.now;
    table.now += MS * 80;
    let answer = Answer {
        applied: 1000,
        feeds: vec![FeedAnswer {
            feed: FEED,
            state: FeedState::Runs,
            lanes: vec![LaneAnswer {
                lane: 0,
                held: Some((20, 20)),
                end: None,
            }],
            unheard_ms: 0,
        }],
        rows: Vec::new(),
    };
    table
        .seconds
        .answered(2, &question, &answer, 1000, asked, table.now);
    table.seconds.lost(3, FEED);
    let later = vec![FeedQuestion {
        feed: FEED,
        lanes: vec![LaneQuestion {
            lane: 0,
            known: 20,
            cut: 100,
        }],
    }];
    table.seconds.asked(None, &later, table.now);
    table.pass(MS * 319);
    assert_eq!(table.seconds.eligible(FEED), vec![2]);
    table.pass(MS);
    assert!(table.seconds.eligible(FEED).is_empty());
}

#[test]
fn whoever_is_stopped_or_behind_does_not_count() {
    for state in [FeedState::Stopped, FeedState::Behind, FeedState::Disputes] {
        let mut table = Table::new();
        table.answer(2, state, Some((50, 50)), Some(100));
        assert_eq!(table.seconds.eligible(FEED), vec![3], "{state:?}");
        assert_eq!(table.confirmed(), Confirmed::Nothing, "{state:?}");
        assert_eq!(
            table.seconds.disputing(FEED),
            usize::from(state == FeedState::Disputes)
        );
    }
    let mut table = Table::new();
    let question = table.ask();
    let answer = Answer {
        applied: 1000 - LAG - 1,
        ..Answer::default()
    };
    table
        .seconds
        .answered(2, &question, &answer, 1000, table.now, table.now);
    assert_eq!(table.seconds.eligible(FEED), vec![3]);
}

#[test]
fn an_answer_from_before_the_term_says_nothing() {
    let mut table = Table::new();
    let question = table.ask();
    let asked = table.now;
    table.pass(MS);
    table.seconds.begin(3, &[2, 3], table.now);
    let behind = FeedAnswer {
        feed: FEED,
        state: FeedState::Behind,
        lanes: Vec::new(),
        unheard_ms: 0,
    };
    let answer = Answer {
        applied: 1000,
        feeds: vec![behind],
        rows: Vec::new(),
    };
    table.pass(MS);
    let now = table.now;
    table
        .seconds
        .answered(2, &question, &answer, 1000, asked, now);
    assert_eq!(table.seconds.eligible(FEED), vec![2, 3]);
    table
        .seconds
        .answered(2, &question, &answer, 1000, now, now);
    assert_eq!(table.seconds.eligible(FEED), vec![3]);
}

#[test]
fn other_records_are_nobodys_word_and_two_of_the_same_outvote_the_leader() {
    let mut table = Table::new();
    table.holds(2, 40, 7);
    assert_eq!(table.confirmed(), Confirmed::Differs { outvoted: false });
    table.holds(3, 40, 7);
    assert_eq!(table.confirmed(), Confirmed::Differs { outvoted: true });
    table.holds(3, 40, 40);
    assert_eq!(table.confirmed(), Confirmed::UpTo(40));
}

#[test]
fn an_end_counts_if_another_one_saw_it_less_than_a_second_ago() {
    let mut table = Table::new();
    let ends = |table: &Table, cut, end| {
        let ends = (cut, end);
        table.seconds.confirmed_end(FEED, 0, ends, table.now)
    };
    table.holds(2, 100, 100);
    assert_eq!(ends(&table, 100, 105), None);
    table.answer(2, FeedState::Runs, Some((100, 100)), Some(103));
    assert_eq!(ends(&table, 99, 105), None);
    assert_eq!(ends(&table, 100, 105), Some(103), "as far as both saw it");
    assert_eq!(ends(&table, 100, 100), Some(100));
    table.now += END_FRESH;
    assert_eq!(ends(&table, 100, 105), None);
    table.seconds.lost(2, FEED);
    table.seconds.lost(3, FEED);
    assert_eq!(
        ends(&table, 100, 105),
        Some(105),
        "nobody else's word counts"
    );
}

#[test]
fn a_new_voter_is_asked_in_the_same_term_and_one_that_is_gone_is_not() {
    let mut table = Table::new();
    table.holds(2, 40, 40);
    table.seconds.lost(3, FEED);
    table.seconds.begin(1, &[2, 4], table.now);
    assert_eq!(table.seconds.eligible(FEED), vec![2, 4]);
    assert_eq!(table.confirmed(), Confirmed::UpTo(40));
    table.seconds.begin(2, &[2, 3], table.now);
    assert_eq!(table.seconds.eligible(FEED), vec![2, 3]);
    assert_eq!(table.confirmed(), Confirmed::Nothing);
}
