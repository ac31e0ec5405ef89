//! What one replica says is not enough: what a leader asks the others, and what it makes of their answers. Pure.

mod question;
mod seconds;

pub use question::{
    Answer, FeedAnswer, FeedQuestion, FeedState, LaneAnswer, LaneQuestion, Question, RowsAnswer,
    RowsQuestion, decode, encode,
};
pub use seconds::{Confirmed, Seconds};
