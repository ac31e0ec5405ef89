//! Values that one writer owns and readers look at: shared when somebody asks, cloned by the next
//! write if a reader still holds it.

use std::sync::Arc;

/// A value with one writer. Without readers a write costs one branch.
#[derive(Debug)]
pub(crate) enum Shared<T> {
    Own(T),
    Lent(Arc<T>),
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Self::Own(T::default())
    }
}

impl<T: Clone + Default> Shared<T> {
    #[inline]
    pub(crate) fn get(&self) -> &T {
        match self {
            Self::Own(value) => value,
            Self::Lent(value) => value,
        }
    }

    /// The value, for a write that readers must not see.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        if matches!(self, Self::Lent(_)) {
            self.take_back();
        }
        match self {
            Self::Own(value) => value,
            Self::Lent(_) => unreachable!("it was taken back"),
        }
    }

    #[cold]
    fn take_back(&mut self) {
        if let Self::Lent(value) = std::mem::take(self) {
            *self = Self::Own(Arc::unwrap_or_clone(value));
        }
    }

    /// The value as it is now, for a reader.
    pub(crate) fn share(&mut self) -> Arc<T> {
        let shared = match std::mem::take(self) {
            Self::Own(value) => Arc::new(value),
            Self::Lent(value) => value,
        };
        *self = Self::Lent(Arc::clone(&shared));
        shared
    }

    /// The value for a reader, whom its writer leaves it to.
    pub(crate) fn give_away(self) -> Arc<T> {
        match self {
            Self::Own(value) => Arc::new(value),
            Self::Lent(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_was_there_when_it_asked() {
        let mut shared = Shared::Own(vec![1]);
        shared.get_mut().push(2);
        let seen = shared.share();
        shared.get_mut().push(3);
        assert_eq!((&*seen, shared.get()), (&vec![1, 2], &vec![1, 2, 3]));
    }

    #[test]
    fn what_nobody_looks_at_any_more_is_written_in_place() {
        let mut shared = Shared::Own(vec![1; 8]);
        let place = shared.get().as_ptr();
        drop(shared.share());
        shared.get_mut()[0] = 2;
        assert_eq!(shared.get().as_ptr(), place);
    }
}
