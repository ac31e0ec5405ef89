//! The demo's progress as lines, for files and pipes.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use unisono_chaos::run::snapshot;

use super::Course;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Prints what happens until the course has ended.
pub(super) fn show(course: &Course) -> io::Result<()> {
    let mut out = io::stdout();
    let mut next_event = 0;
    let mut last_line = Instant::now();
    while !course.task.is_finished() {
        let progress = snapshot(&course.progress);
        for (number, at, text) in &progress.events {
            if *number >= next_event {
                writeln!(out, "{:6.1} s  {text}", at.as_secs_f64())?;
                next_event = number + 1;
            }
        }
        if last_line.elapsed() >= LINE_EVERY {
            last_line = Instant::now();
            let verdict = &progress.verdict;
            writeln!(
                out,
                "{:6.1} s  {} orders, {} rows: {} gaps, {} duplicates, {} wrong so far",
                progress.elapsed.as_secs_f64(),
                progress.orders,
                progress.picture.rows,
                verdict.gaps,
                verdict.duplicates,
                verdict.wrong
            )?;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
