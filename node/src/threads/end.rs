//! The end of the process by a panic: its message, then the exit, whatever other threads do.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::PanicHookInfo;
use std::time::Duration;

use signal_hook::low_level::exit;

use super::{Role, TASK, spawn};

/// Exit code after a panic: a fault of the program (`EX_SOFTWARE`). A restart can help; the peers go on.
pub const EXIT_PANIC: u8 = 70;
/// How long writing the message may take: whoever reads standard error may have stopped.
const SAY_WITHIN: Duration = Duration::from_secs(1);

/// From now on a panic of any thread or task ends the process with its message and [`EXIT_PANIC`].
///
/// It ends without the C library's exit handlers and without a lock, so that no other thread can hold it up. Nothing is
/// tidied up: what is durable is durable, and the rest comes back from the log.
pub fn end_process_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        // Should the system have no thread left, the message is written without a limit.
        let _ = spawn(Role::End, None, || {
            std::thread::sleep(SAY_WITHIN);
            exit(EXIT_PANIC.into());
        });
        say(panic);
        exit(EXIT_PANIC.into());
    }));
}

fn say(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let who = TASK.try_with(|role| role.entry().name);
    let who = who.map_or_else(
        |_| thread.to_owned(),
        |task| format!("{thread}, task {task}"),
    );
    let place = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let message = panic.payload_as_str().unwrap_or("a value that is no text");
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(thread = who, place, message, "panicked: the process ends");
    } else {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(
            std::io::stderr(),
            "error: {who} panicked at {place}: {message}"
        );
    }
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        let _ = writeln!(std::io::stderr(), "{trace}");
    }
}
