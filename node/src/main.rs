//! The program `unisono`.

use std::process::ExitCode;

fn main() -> ExitCode {
    unisono::cli::run(std::env::args_os())
}
