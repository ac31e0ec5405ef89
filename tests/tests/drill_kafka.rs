//! Drills against a real broker: topic in, topic out, read by a `read_committed` consumer.

#![allow(clippy::unwrap_used)]

use unisono_chaos::fault::Fault;
use unisono_tests::drill::{Drill, faults};
use unisono_tests::kafka::TestBroker;

/// `None`: the environment says to leave out what needs Kafka.
fn drill() -> Option<Drill> {
    TestBroker::shared().map(|broker| Drill::on_kafka(broker.address()))
}

#[test]
fn killed_leaders_leave_no_gap_no_duplicate_and_nothing_wrong() {
    let Some(drill) = drill() else { return };
    drill.run(faults::kill_leaders);
}

#[test]
fn a_frozen_leader_that_wakes_is_fenced_and_changes_nothing() {
    let Some(drill) = drill() else { return };
    drill.run(faults::freeze_leader);
}

#[test]
fn all_killed_at_once_come_back() {
    let Some(drill) = drill() else { return };
    drill.run(faults::kill_all);
}

#[test]
fn an_outage_of_all_replicas_makes_nothing_late_or_idle() {
    let Some(drill) = drill() else { return };
    drill.run(faults::long_outage);
}

#[test]
fn a_leader_with_a_slow_disk_does_not_hold_up_the_curve() {
    let Some(drill) = drill() else { return };
    drill.run(async |stage| faults::unfit_leader(stage, Fault::SlowDisk).await);
}

#[test]
fn a_leader_whose_disk_hangs_gives_the_lead_away() {
    let Some(drill) = drill() else { return };
    drill.run(async |stage| faults::unfit_leader(stage, Fault::HungDisk).await);
}

#[test]
fn a_leader_with_another_config_publishes_what_is_agreed() {
    let Some(drill) = drill() else { return };
    drill.run(async |stage| faults::unfit_leader(stage, Fault::Drift).await);
}

#[test]
fn a_broker_that_answers_nobody_is_no_reason_to_give_the_lead_away() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start().unwrap();
    let drill = Drill::on_kafka(broker.address());
    drill.run(async |stage| faults::broker_stands_still(stage, &broker).await);
}

#[test]
fn a_leader_that_is_cut_off_from_the_broker_gives_the_lead_away() {
    if TestBroker::skipped() {
        return;
    }
    let broker = TestBroker::start_gated(3).unwrap();
    let drill = Drill {
        gates: broker.gates(),
        ..Drill::on_kafka(broker.address())
    };
    drill.run(async |stage| faults::unfit_leader(stage, Fault::Blind).await);
}
