//! Who is publishing, so that a leader that gives the lead away can wait for what has begun.

use tokio::sync::watch;

/// Who is publishing, and whether anybody may begin.
#[derive(Debug)]
pub struct Transit(watch::Sender<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    publishing: usize,
    closed: usize,
}

/// As long as it is there, a publisher is waited for.
#[derive(Debug)]
pub struct Publishing<'a>(&'a Transit);

/// As long as it is there, nobody begins to publish.
#[derive(Debug)]
pub struct Closed<'a>(&'a Transit);

impl Default for Transit {
    fn default() -> Self {
        Self(watch::Sender::new(State::default()))
    }
}

impl Transit {
    /// Leave to publish; `None`: the lead is being given away, look again soon.
    #[must_use]
    pub fn enter(&self) -> Option<Publishing<'_>> {
        let entered = self.0.send_if_modified(|state| {
            let free = state.closed == 0;
            state.publishing += usize::from(free);
            free
        });
        entered.then(|| Publishing(self))
    }

    /// Nobody begins to publish any more.
    #[must_use]
    pub fn close(&self) -> Closed<'_> {
        self.0.send_modify(|state| state.closed += 1);
        Closed(self)
    }

    /// Waits until nobody publishes.
    pub async fn is_empty(&self) {
        let mut state = self.0.subscribe();
        // Its sender lives as long as `self`.
        let _ = state.wait_for(|state| state.publishing == 0).await;
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.publishing -= 1);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.closed -= 1);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_has_begun_is_waited_for_and_nothing_begins_meanwhile() {
        let transit = Transit::default();
        let begun = transit.enter().unwrap();
        let closed = transit.close();
        assert!(transit.enter().is_none());
        let soon = Duration::from_millis(1);
        assert!(
            tokio::time::timeout(soon, transit.is_empty())
                .await
                .is_err()
        );
        drop(begun);
        transit.is_empty().await;
        assert!(transit.enter().is_none());
        drop(closed);
        assert!(transit.enter().is_some());
    }
}
