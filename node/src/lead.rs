//! What one replica says is not enough: the leader asks the others whether they hold the same records before it proposes a
//! cut, and whether they computed the same rows before it publishes them.

mod answers;
mod lines;
mod question;
mod seconds;

pub use answers::{Asked, answer_all};
pub use lines::{Heard, Lines, Sent};
pub use question::{
    Answer, FeedAnswer, FeedQuestion, FeedState, LaneAnswer, LaneQuestion, Question, RowsAnswer,
    RowsQuestion,
};
pub use seconds::{Confirmed, Seconds};
