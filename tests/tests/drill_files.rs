//! Drills on the embedded default: files in, rows served by the replicas themselves.

use std::time::Duration;

use unisono_chaos::fault::Fault;
use unisono_tests::drill::{Drill, faults};

#[test]
fn killed_leaders_leave_no_gap_no_duplicate_and_nothing_wrong() {
    Drill::on_files().run(faults::kill_leaders);
}

#[test]
fn a_replica_back_from_its_checkpoint_has_the_others_digest() {
    let drill = Drill {
        checkpoint_interval: Some("1s".into()),
        ..Drill::on_files()
    };
    drill.run(faults::kill_leaders_and_compare_digests);
}

#[test]
fn a_frozen_leader_that_wakes_changes_nothing() {
    Drill::on_files().run(faults::freeze_leader);
}

#[test]
fn all_killed_at_once_come_back() {
    Drill::on_files().run(faults::kill_all);
}

#[test]
fn an_outage_of_all_replicas_makes_nothing_late_or_idle() {
    Drill::on_files().run(faults::long_outage);
}

#[test]
fn planned_restarts_change_nothing() {
    Drill::on_files().run(faults::planned_restarts);
}

#[test]
fn late_orders_are_late_on_every_replica_alike_while_leaders_die() {
    let drill = Drill {
        late_share: 0.02,
        ..Drill::on_files()
    };
    drill.run(faults::kill_leaders_and_compare_digests);
}

#[test]
fn a_panic_of_the_driver_ends_the_process_and_a_peer_takes_over() {
    Drill::on_files().run(async |stage| faults::panic_leader(stage, "driver").await);
}

#[test]
fn a_panic_of_the_proposer_ends_the_process_and_a_peer_takes_over() {
    Drill::on_files().run(async |stage| faults::panic_leader(stage, "proposer").await);
}

#[test]
fn a_panic_of_a_feed_ends_the_process_and_a_peer_takes_over() {
    Drill::on_files().run(async |stage| faults::panic_leader(stage, "feed").await);
}

#[test]
fn a_panic_of_a_worker_ends_the_process_and_a_peer_takes_over() {
    Drill::on_files().run(async |stage| faults::panic_leader(stage, "worker").await);
}

#[test]
fn a_leader_with_a_slow_disk_does_not_hold_up_the_curve() {
    Drill::on_files().run(async |stage| faults::unfit_leader(stage, Fault::SlowDisk).await);
}

#[test]
fn a_leader_whose_disk_hangs_gives_the_lead_away() {
    Drill::on_files().run(async |stage| faults::unfit_leader(stage, Fault::HungDisk).await);
}

#[test]
fn a_follower_whose_disk_hangs_says_so_and_holds_nobody_up() {
    Drill::on_files().run(faults::hung_follower);
}

#[test]
fn replicas_that_are_far_from_each_other_publish_and_take_over_and_say_how_far_they_are() {
    let drill = Drill {
        round_trip: Some(Duration::from_millis(200)),
        ..Drill::on_files()
    };
    drill.run(faults::far_apart);
}

#[test]
fn a_leader_that_is_blind_to_its_source_gives_the_lead_away() {
    Drill::on_files().run(async |stage| faults::unfit_leader(stage, Fault::Blind).await);
}

#[test]
fn a_leader_that_reads_one_wrong_record_gives_the_lead_away() {
    Drill::on_files().run(async |stage| faults::unfit_leader(stage, Fault::WrongRecord).await);
}

#[test]
fn a_leader_with_another_config_publishes_what_is_agreed() {
    Drill::on_files().run(async |stage| faults::unfit_leader(stage, Fault::Drift).await);
}
