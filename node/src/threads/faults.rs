//! Panics and deaths on request, for tests alone: this file is not compiled unless the feature `faults` is chosen.
//!
//! `UNISONO_PANIC=NAME` or `NAME@N`: the thread or task of this name in the table panics when it comes by for the first, or the N-th,
//! time. With `UNISONO_PANIC_WHEN=FILE` only what comes after that file exists counts, so that a test can wait until the
//! replica leads.
//!
//! `UNISONO_DIE_IN_TRANSACTION=FILE`: once that file exists, the next process that has given all rows of a transaction to a sink
//! that is outside, and not ended the transaction yet, takes the file away and kills itself.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

use super::Role;

struct Plan {
    role: Role,
    /// How often it may still come by.
    left: AtomicU64,
    when: Option<PathBuf>,
}

impl Plan {
    fn from_environment() -> Option<Self> {
        let text = std::env::var("UNISONO_PANIC").ok()?;
        let (name, count) = text.split_once('@').unwrap_or((&text, "1"));
        let role = Role::ALL.iter().find(|role| role.entry().name == name);
        let count = count.parse();
        let (Some(&role), Ok(count)) = (role, count) else {
            panic!("UNISONO_PANIC={text}: not NAME or NAME@N");
        };
        Some(Self {
            role,
            left: AtomicU64::new(count),
            when: std::env::var_os("UNISONO_PANIC_WHEN").map(PathBuf::from),
        })
    }
}

/// Panics if this thread or task is asked to, now.
///
/// # Panics
/// That is what it is for.
pub fn test_panic(role: Role) {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    let Some(plan) = PLAN.get_or_init(Plan::from_environment) else {
        return;
    };
    if plan.role != role || plan.when.as_ref().is_some_and(|file| !file.exists()) {
        return;
    }
    if plan.left.fetch_sub(1, Ordering::Relaxed) == 1 {
        panic!("asked for by UNISONO_PANIC");
    }
}

/// Kills this process, if one is asked for that is within a transaction.
///
/// # Panics
/// The system does not let it.
pub fn test_death_in_transaction() {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || std::env::var_os("UNISONO_DIE_IN_TRANSACTION").map(PathBuf::from);
    let Some(file) = FILE.get_or_init(named) else {
        return;
    };
    // Whoever takes it away is the one.
    if std::fs::remove_file(file).is_ok() {
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    }
}
