//! How the leader's questions come to the others, and who answers them there. What they mean is in [`crate::confirm`].

mod answers;
mod doubts;
mod lines;

pub use answers::{Asked, answer_all};
pub use doubts::Doubts;
pub use lines::{Heard, Lines, Sent};
