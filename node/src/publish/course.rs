//! What a publisher does next: pure. First fence, then read the frontier back, then publish; after any error, acquire
//! again, which reads back how far publishing came.

use super::sink::PublishError;

/// What to do now. A number is the term in which it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another node leads: keep connections warm.
    Wait,
    /// Fence every other publisher and read the frontier back.
    Acquire(u64),
    /// Publish from the frontier on.
    Publish(u64),
    /// The term has ended: give the sink up.
    Release,
    /// Somebody fenced us, or an outcome is unknown: have the quorum take an entry, which proves the lead better than
    /// this node's own view of it.
    AskQuorum(u64),
    /// The sink is out of reach.
    Rest,
    /// An operator must act: look again now and then.
    RestLong,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Free,
    Holds(u64),
    Owes(Step),
}

/// Where a publisher stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course(State);

impl Course {
    /// The next step, if this node leads in the term `leads`.
    pub fn next(self, leads: Option<u64>) -> Step {
        match (self.0, leads) {
            (State::Owes(step), _) => step,
            (State::Holds(term), Some(now)) if now == term => Step::Publish(term),
            (State::Holds(_), _) => Step::Release,
            (State::Free, Some(term)) => Step::Acquire(term),
            (State::Free, None) => Step::Wait,
        }
    }

    /// The sink is ours, and its frontier known.
    pub fn acquired(&mut self, term: u64) {
        self.0 = State::Holds(term);
    }

    /// Acquiring or publishing failed: the sink is released.
    pub fn failed(&mut self, term: u64, error: &PublishError) {
        self.0 = match error {
            PublishError::Fenced { .. } | PublishError::Unknown { .. } => {
                State::Owes(Step::AskQuorum(term))
            }
            PublishError::Unavailable { .. } => State::Owes(Step::Rest),
            PublishError::Fatal { .. } | PublishError::Foreign { .. } => {
                State::Owes(Step::RestLong)
            }
            // Nothing is wrong with the sink: on at once, with less.
            PublishError::TooLarge { .. } => State::Free,
        };
    }

    /// The last step, which holds nothing, is done.
    pub fn done(&mut self) {
        self.0 = State::Free;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: fn() -> PublishError = || PublishError::Unknown {
        sink: "s".into(),
        reason: "r".into(),
    };

    #[test]
    fn nothing_is_published_before_the_sink_is_acquired_in_the_same_term() {
        let mut course = Course::default();
        assert_eq!(course.next(None), Step::Wait);
        assert_eq!(course.next(Some(3)), Step::Acquire(3));
        course.acquired(3);
        assert_eq!(course.next(Some(3)), Step::Publish(3));
        assert_eq!(
            course.next(Some(4)),
            Step::Release,
            "led again, but fenced in between"
        );
        course.done();
        assert_eq!(course.next(Some(4)), Step::Acquire(4));
    }

    #[test]
    fn an_end_of_the_lead_releases_the_sink() {
        let mut course = Course::default();
        course.acquired(3);
        assert_eq!(course.next(None), Step::Release);
    }

    #[test]
    fn an_unknown_outcome_asks_the_quorum_whoever_leads_and_never_publishes_on() {
        for leads in [None, Some(3), Some(4)] {
            let mut course = Course::default();
            course.acquired(3);
            course.failed(3, &UNKNOWN());
            assert_eq!(course.next(leads), Step::AskQuorum(3));
            course.done();
            assert_eq!(course.next(leads), leads.map_or(Step::Wait, Step::Acquire));
        }
    }

    #[test]
    fn what_an_operator_must_mend_is_not_tried_at_once() {
        let mut course = Course::default();
        let (sink, reason) = ("s".to_owned(), "r".to_owned());
        course.failed(3, &PublishError::Fatal { sink, reason });
        assert_eq!(course.next(Some(3)), Step::RestLong);
        course.done();
        assert_eq!(course.next(Some(3)), Step::Acquire(3));
    }
}
