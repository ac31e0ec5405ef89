//! A state that becomes wrong, on request, for tests alone: this file is not compiled unless the feature `faults` or
//! `simulation` is chosen. A record that is taken in twice stands for a bit that flipped in memory.
//!
//! `UNISONO_WRONG=FILE`: once FILE is there it is removed, and the next record is taken in twice.

#[cfg(feature = "simulation")]
thread_local! {
    static NODES: std::cell::RefCell<std::collections::BTreeSet<usize>> = const {
        std::cell::RefCell::new(std::collections::BTreeSet::new())
    };
}

/// The next record that this node of the simulation takes in, it takes in twice.
#[cfg(feature = "simulation")]
pub(crate) fn take_twice(node: unisono_replication::rt::simulated::Node) {
    NODES.with_borrow_mut(|nodes| nodes.insert(node));
}

/// Forgets what was asked for and not done.
#[cfg(feature = "simulation")]
pub(crate) fn forget() {
    NODES.with_borrow_mut(std::collections::BTreeSet::clear);
}

/// Whether this record is to be taken in twice.
pub(super) fn takes_twice() -> bool {
    #[cfg(feature = "simulation")]
    if NODES.with_borrow(|nodes| !nodes.is_empty()) {
        let node = unisono_replication::rt::simulated::current_node();
        return NODES.with_borrow_mut(|nodes| nodes.remove(&node));
    }
    #[cfg(feature = "faults")]
    {
        static FILE: std::sync::OnceLock<Option<std::path::PathBuf>> = std::sync::OnceLock::new();
        let file = FILE.get_or_init(|| std::env::var_os("UNISONO_WRONG").map(Into::into));
        return file
            .as_ref()
            .is_some_and(|file| std::fs::remove_file(file).is_ok());
    }
    #[allow(unreachable_code)]
    false
}
