//! Each reason alone.

use super::*;

const CONTACT: Duration = Duration::from_secs(1);
const FRESH: Option<Duration> = Some(Duration::from_millis(20));

fn well() -> Claims {
    Claims {
        seat: Seat::Follows(2, FRESH),
        contact: CONTACT,
        lag: 0,
        writing: None,
        standing: Vec::new(),
        sinks: Vec::new(),
        unpublished: Vec::new(),
        holes: Vec::new(),
        missing: Vec::new(),
        strict: false,
    }
}

/// The one reason of what is well but for `change`.
fn only(change: impl FnOnce(&mut Claims)) -> String {
    let mut claims = well();
    change(&mut claims);
    let reasons = claims.reasons();
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.concat()
}

fn standing(elsewhere: Elsewhere) -> Vec<Standing> {
    let reason = "it stands".to_owned();
    vec![Standing { reason, elsewhere }]
}

#[test]
fn a_node_is_ready_when_nothing_speaks_against_it() {
    assert_eq!(well().reasons(), [""; 0]);
    let leads = Claims {
        seat: Seat::Leads(FRESH),
        lag: LAG,
        writing: Some(HUNG / 2),
        unpublished: vec![("p".to_owned(), STUCK / 2)],
        ..well()
    };
    assert_eq!(leads.reasons(), [""; 0]);
}

#[test]
fn a_leader_that_no_quorum_acknowledges_is_not_ready_and_no_leader() {
    assert!(only(|it| it.seat = Seat::Leads(Some(CONTACT))).contains("for 1000 ms"));
    assert!(only(|it| it.seat = Seat::Leads(None)).contains("no quorum has acknowledged"));
    assert!(!Seat::Leads(Some(CONTACT)).leads(CONTACT));
    assert!(!Seat::Leads(None).leads(CONTACT));
    assert!(Seat::Leads(FRESH).leads(CONTACT));
    assert!(!Seat::Follows(2, FRESH).leads(CONTACT));
}

#[test]
fn a_follower_that_hears_no_leader_is_not_ready() {
    assert!(only(|it| it.seat = Seat::Follows(3, Some(CONTACT))).contains("node 3"));
    assert!(only(|it| it.seat = Seat::Follows(3, None)).contains("not heard yet"));
    assert_eq!(only(|it| it.seat = Seat::Leaderless), "no leader is known");
}

#[test]
fn a_learner_is_not_ready() {
    assert!(only(|it| it.seat = Seat::Learns).contains("no vote yet"));
}

#[test]
fn a_node_that_lacks_entries_is_not_ready() {
    assert!(only(|it| it.lag = LAG + 1).contains("lacks 201 entries"));
}

#[test]
fn a_node_whose_disk_hangs_is_not_ready() {
    assert!(only(|it| it.writing = Some(HUNG)).contains("hangs for 2 s"));
}

#[test]
fn a_feed_that_stands_still_here_and_runs_elsewhere_makes_the_node_unready() {
    assert_eq!(
        only(|it| it.standing = standing(Elsewhere::Runs)),
        "it stands"
    );
    assert_eq!(
        only(|it| it.standing = standing(Elsewhere::Unknown)),
        "it stands"
    );
}

#[test]
fn a_feed_that_stands_still_everywhere_alike_counts_only_where_its_pipeline_is_asked_for() {
    let mut claims = well();
    claims.standing = standing(Elsewhere::Stands);
    assert_eq!(claims.reasons(), [""; 0]);
    claims.strict = true;
    assert_eq!(claims.reasons(), ["it stands"]);
}

#[test]
fn a_sink_that_cannot_be_published_to_makes_the_node_unready() {
    assert_eq!(only(|it| it.sinks = vec!["no".to_owned()]), "no");
}

#[test]
fn rows_that_wait_too_long_make_the_node_unready() {
    let stuck = vec![("p".to_owned(), STUCK)];
    assert!(only(|it| it.unpublished = stuck).contains("none was for 10 s"));
}

#[test]
fn rows_that_are_published_and_not_here_make_the_node_unready() {
    let (pipeline, rows) = ("p".to_owned(), (3, 7));
    let hole = vec![Hole { pipeline, rows }];
    assert!(only(|it| it.holes = hole).contains("rows 3 to 6 of pipeline p"));
}

#[test]
fn a_pipeline_that_is_to_be_and_is_not_makes_the_node_unready() {
    assert_eq!(only(|it| it.missing = vec!["p".to_owned()]), "p");
}
