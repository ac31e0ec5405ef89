//! Channels between threads: those of the standard library, whose receivers give way in a simulation.

#[cfg(not(feature = "simulation"))]
pub use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError};

#[cfg(feature = "simulation")]
pub use simulated::{Receiver, Sender, SyncSender, channel, sync_channel};

#[cfg(feature = "simulation")]
mod simulated {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{RecvError, RecvTimeoutError, SendError, TryRecvError};
    use crate::rt::simulated::{Waiters, is_active};

    macro_rules! sender {
        ($name:ident) => {
            /// The standard library's, which also wakes a simulated receiver.
            #[derive(Debug)]
            pub struct $name<T> {
                // Dropped before the receiver is woken.
                real: Option<mpsc::$name<T>>,
                waiters: Arc<Waiters>,
            }

            impl<T> $name<T> {
                /// As the standard library's.
                ///
                /// # Errors
                /// The receiver is gone.
                pub fn send(&self, value: T) -> Result<(), SendError<T>> {
                    let Some(real) = &self.real else {
                        return Err(SendError(value));
                    };
                    let sent = real.send(value);
                    self.waiters.wake();
                    sent
                }
            }

            impl<T> Clone for $name<T> {
                fn clone(&self) -> Self {
                    Self {
                        real: self.real.clone(),
                        waiters: Arc::clone(&self.waiters),
                    }
                }
            }

            impl<T> Drop for $name<T> {
                fn drop(&mut self) {
                    self.real = None;
                    self.waiters.wake();
                }
            }
        };
    }

    sender!(Sender);
    sender!(SyncSender);

    /// The standard library's, which gives way in a simulation.
    #[derive(Debug)]
    pub struct Receiver<T> {
        real: mpsc::Receiver<T>,
        waiters: Arc<Waiters>,
    }

    impl<T> Receiver<T> {
        /// As the standard library's.
        ///
        /// # Errors
        /// There is nothing, or nothing will come.
        pub fn try_recv(&self) -> Result<T, TryRecvError> {
            self.real.try_recv()
        }

        /// As the standard library's.
        ///
        /// # Errors
        /// Nothing will come.
        pub fn recv(&self) -> Result<T, RecvError> {
            if !is_active() {
                return self.real.recv();
            }
            self.wait(None).map_err(|_| RecvError)
        }

        /// As the standard library's.
        ///
        /// # Errors
        /// Nothing came in time, or will come.
        pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
            if !is_active() {
                return self.real.recv_timeout(timeout);
            }
            self.wait(Some(timeout))
        }

        fn wait(&self, timeout: Option<Duration>) -> Result<T, RecvTimeoutError> {
            let received = self.waiters.wait(timeout, || match self.real.try_recv() {
                Ok(value) => Some(Ok(value)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Err(RecvTimeoutError::Disconnected)),
            });
            received.unwrap_or(Err(RecvTimeoutError::Timeout))
        }
    }

    /// As the standard library's.
    #[must_use]
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let waiters: Arc<Waiters> = Arc::default();
        let (sender, real) = mpsc::channel();
        let sender = Sender {
            real: Some(sender),
            waiters: Arc::clone(&waiters),
        };
        (sender, Receiver { real, waiters })
    }

    /// As the standard library's; in a simulation no sender may find it full.
    #[must_use]
    pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
        let waiters: Arc<Waiters> = Arc::default();
        let (sender, real) = mpsc::sync_channel(bound);
        let sender = SyncSender {
            real: Some(sender),
            waiters: Arc::clone(&waiters),
        };
        (sender, Receiver { real, waiters })
    }
}
