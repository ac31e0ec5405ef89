//! What stands between two scalars of a payload: brackets, commas, keys and whitespace.
//!
//! This pass decides everything; what [`super::shape`] remembers are its results. It does not call
//! itself, so nesting exhausts no stack.

use unisono_engine::spec::Column;

use super::nest::{Frame, Nest};
use super::paths::{Child, Paths, ROOT};
use super::scan;

/// What is kept of the room for keys: one huge key must not stay in memory.
const KEPT_SCRATCH: usize = 64 * 1024;

/// What the structure says of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The way to it ends here: the same key came before, and the last one counts.
    Missing(Column),
    /// It is an array or an object.
    Nested(Column),
}

/// Where structure ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Where a scalar begins, of this column if it is used.
    Scalar(usize, Option<Column>),
    /// At the end of the payload.
    End,
}

/// Goes from one scalar of a payload to the next.
pub struct Walk<'a> {
    pub paths: &'a Paths,
    pub nest: &'a mut Nest,
    /// What the walk finds, in order.
    pub effects: &'a mut Vec<Effect>,
    /// Room for keys with escapes.
    pub scratch: &'a mut Vec<u8>,
    pub doc: &'a [u8],
}

impl<'a> Walk<'a> {
    /// From the start of the payload to its first scalar.
    pub fn start(&mut self) -> Option<Stop> {
        self.value(0, None)
    }

    /// From behind a scalar to the next one.
    pub fn go_on(&mut self, at: usize) -> Option<Stop> {
        self.after_value(at)
    }

    /// A value was read; what closes, and what follows.
    fn after_value(&mut self, mut at: usize) -> Option<Stop> {
        loop {
            at = scan::whitespace(self.doc, at);
            let Some(frame) = self.nest.innermost() else {
                return (at == self.doc.len()).then_some(Stop::End);
            };
            let array = frame.is_array();
            match *self.doc.get(at)? {
                b',' if array => {
                    let child = self.next_element(frame);
                    return self.value(at + 1, child);
                }
                b',' => {
                    let (at, child) = self.key(scan::whitespace(self.doc, at + 1), frame)?;
                    return self.value(at, child);
                }
                b']' if array => self.nest.close(),
                b'}' if !array => self.nest.close(),
                _ => return None,
            }
            at += 1;
        }
    }

    /// A value is to come, that of `child` if it is used.
    fn value(&mut self, mut at: usize, mut child: Option<&'a Child>) -> Option<Stop> {
        loop {
            at = scan::whitespace(self.doc, at);
            let opened = *self.doc.get(at)?;
            if scan::begins_scalar(opened) {
                self.clear_below(child);
                return Some(Stop::Scalar(at, child.and_then(|child| child.column)));
            }
            let frame = self.frame_of(opened, child)?;
            if let Some(column) = child.and_then(|child| child.column) {
                self.effects.push(Effect::Nested(column));
            }
            self.clear_below(child);
            self.nest.open(frame)?;
            at = scan::whitespace(self.doc, at + 1);
            // Both closing brackets stand two places behind their opening ones.
            if *self.doc.get(at)? == opened + 2 {
                self.nest.close();
                return self.after_value(at + 1);
            }
            (at, child) = if frame.is_array() {
                (at, self.element(frame))
            } else {
                self.key(at, frame)?
            };
        }
    }

    fn frame_of(&self, opened: u8, child: Option<&Child>) -> Option<Frame> {
        let outermost = self.nest.innermost().is_none();
        match opened {
            b'[' => {
                let first = child.and_then(|child| child.elements);
                Some(first.map_or(Frame::ARRAY, Frame::place))
            }
            b'{' if outermost => Some(Frame::used(ROOT)),
            b'{' => {
                let node = child.and_then(|child| child.inner);
                Some(node.map_or(Frame::UNUSED, Frame::used))
            }
            _ => None,
        }
    }

    fn element(&self, frame: Frame) -> Option<&'a Child> {
        let place = frame.array_place()?;
        Some(self.paths.element(place))
    }

    /// Goes on to the next place of the innermost array.
    fn next_element(&mut self, frame: Frame) -> Option<&'a Child> {
        let place = frame.array_place()?;
        let next = self.paths.next(place).map_or(Frame::ARRAY, Frame::place);
        self.nest.close();
        self.nest.open(next)?;
        self.element(next)
    }

    fn clear_below(&mut self, child: Option<&Child>) {
        if let Some(first) = child.and_then(|child| child.elements) {
            let inside = self.paths.in_array(first).iter();
            self.effects
                .extend(inside.map(|&column| Effect::Missing(column)));
        }
        if let Some(node) = child.and_then(|child| child.inner) {
            let below = self.paths.below(node).iter();
            self.effects
                .extend(below.map(|&column| Effect::Missing(column)));
        }
    }

    /// The key at `at` and its colon, in the object `frame`: where its value is to come, and what
    /// it leads to.
    fn key(&mut self, at: usize, frame: Frame) -> Option<(usize, Option<&'a Child>)> {
        if *self.doc.get(at)? != b'"' {
            return None;
        }
        let key = scan::string(self.doc, at + 1)?;
        let colon = scan::whitespace(self.doc, key.end + 1);
        if *self.doc.get(colon)? != b':' {
            return None;
        }
        let child = match frame.node() {
            Some(node) if key.escaped => self.escaped_key(node, at + 1..key.end),
            Some(node) => self.paths.find(node, &self.doc[at + 1..key.end]),
            None => None,
        };
        Some((colon + 1, child))
    }

    /// A key with half of a surrogate pair is none that is used: names of fields have none.
    fn escaped_key(&mut self, node: u32, key: std::ops::Range<usize>) -> Option<&'a Child> {
        self.scratch.clear();
        self.scratch.shrink_to(KEPT_SCRATCH);
        if scan::unescape(&self.doc[key], self.scratch) {
            return self.paths.find(node, self.scratch);
        }
        None
    }
}
