//! The terminal while the demo is on: draws ten times a second and listens for `q`.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use unisono_chaos::run::snapshot;

use super::{Course, view};

const FRAME: Duration = Duration::from_millis(100);

/// Shows the course until it has ended. `q` or Ctrl-C ends the orders early, a second one breaks off.
pub(super) fn show(course: &Course) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = (|| {
        while !course.task.is_finished() {
            let progress = snapshot(&course.progress);
            let ending = *course.stop.borrow();
            terminal.draw(|frame| view::draw(frame, &progress, ending))?;
            if event::poll(FRAME)? && asks_to_end(&event::read()?) {
                if ending {
                    course.task.abort();
                }
                course.stop.send_replace(true);
            }
        }
        Ok(())
    })();
    ratatui::restore();
    shown
}

fn asks_to_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    // In raw mode Ctrl-C is a key, not a signal.
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (interrupt || key.code == KeyCode::Char('q'))
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn q_and_ctrl_c_ask_to_end() {
        let key = |code, modifiers| asks_to_end(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
    }
}
