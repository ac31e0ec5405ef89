//! How the leader's questions come to the others, and who answers them there. What they mean is in [`crate::confirm`].

mod answers;
mod lines;
mod silences;

pub use answers::{Asked, answer_all};
pub use lines::{Heard, Lines, Sent};
pub use silences::Silences;
