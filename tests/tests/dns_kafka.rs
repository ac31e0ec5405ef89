//! A real log through a real broker, while replicas are killed and frozen: what a `read_committed` consumer sees is what
//! files give.

use unisono_tests::dns::{faults, run};
use unisono_tests::kafka::TestBroker;

#[test]
fn leaders_killed_at_random_moments_leave_each_row_once_and_as_eval_has_it() {
    if TestBroker::skipped() {
        return;
    }
    run(faults::pace(faults::kills_ms()), faults::kill_leaders);
}

#[test]
fn all_killed_at_once_in_the_midst_of_the_log_go_on_with_the_same_rows() {
    if TestBroker::skipped() {
        return;
    }
    run(faults::pace(5_000), faults::kill_all);
}

#[test]
fn what_flowed_in_while_all_were_down_is_neither_late_nor_idle() {
    if TestBroker::skipped() {
        return;
    }
    let outage = usize::try_from(faults::outage().as_millis()).unwrap_or(usize::MAX);
    run(faults::pace(outage + 4_000), faults::all_down);
}

#[test]
fn a_frozen_leader_that_wakes_adds_nothing_twice() {
    if TestBroker::skipped() {
        return;
    }
    run(faults::pace(8_000), faults::freeze_leader);
}
