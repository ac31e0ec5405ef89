//! Payloads of a lane look alike: between their scalars stand the same brackets, keys and commas.
//!
//! What [`super::structure`] found between two scalars depends on nothing but the context it
//! started in and the bytes it read. So it is remembered as an *edge* from one scalar to the next:
//! where the same bytes stand in the same context again, the walk would find the same, keys and
//! validity included. Each edge also remembers which edges came after it: one comparison of bytes
//! mostly replaces the walk. Fields may be missing, and arrays may have any length: an edge knows
//! nothing of the way that led to it.
//!
//! What is remembered decides how long a payload takes, never what its cells are.

use unisono_engine::spec::Column;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::nest::Context;
use super::scan;
use super::structure::{Effect, Stop};

/// An edge's place.
pub type EdgeId = u16;

/// The edge that leads to the start of every payload.
pub const START: EdgeId = 0;
/// No edge: the way here is not remembered.
pub const NOWHERE: EdgeId = EdgeId::MAX;

pub const MAX_EDGES: usize = 512;
/// Twice the edges, so that few of them share a place.
const INDEX_LEN: usize = 1024;
/// How far from its place an edge is looked for.
const PROBES: usize = 8;
const MAX_TEXT: usize = 4096;
const MAX_ALL_TEXT: usize = 64 * 1024;
const MAX_EFFECTS: usize = 64;
const HEAD: usize = 16;
/// How many edges are tried after one.
const NEXT: usize = 4;
/// Refusals after which all is forgotten for the first time; then after twice as many each time.
const FIRST_PATIENCE: u32 = 1024;
pub const LAST_PATIENCE: u32 = 1 << 22;

/// From behind one scalar to the next, or to the end.
#[derive(Clone, Debug)]
struct Edge {
    /// The first bytes, as two numbers.
    head: [u64; 2],
    /// Which of their bits are part of the text.
    mask: [u64; 2],
    len: usize,
    /// Where the bytes behind the head begin in `Shapes::tails`.
    tail: usize,
    from: Context,
    /// The context behind this edge.
    to: Context,
    ends: bool,
    /// The field that the scalar behind this edge is.
    column: Option<Column>,
    effects: Box<[Effect]>,
    /// The edges that came after this one, the last one first.
    next: [EdgeId; NEXT],
}

/// A place of the index.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Part of the hash of the edge's context and text, to be compared before these are.
    tag: u32,
    /// The edge, or `NOWHERE`.
    edge: EdgeId,
}

const FREE: Place = Place {
    tag: 0,
    edge: NOWHERE,
};

/// The edges that are remembered.
#[derive(Clone, Debug)]
pub struct Shapes {
    edges: Vec<Edge>,
    tails: Vec<u8>,
    /// A table with open addressing. Empty before the first edge.
    index: Vec<Place>,
    capacity: usize,
    refusals: u32,
    patience: u32,
}

/// An edge that leads on.
pub struct Followed<'a> {
    pub edge: EdgeId,
    pub effects: &'a [Effect],
    pub stop: Stop,
}

/// What the walk found, to be remembered.
pub struct Lesson<'a> {
    /// The edge before.
    pub before: EdgeId,
    /// Where the walk started and ended; `None` if that has no context.
    pub from: Option<Context>,
    pub to: Option<Context>,
    pub text: &'a [u8],
    pub stop: Stop,
    pub effects: &'a [Effect],
}

impl Shapes {
    /// A memory without any edge; one that stays so unless `learns`.
    pub fn new(learns: bool) -> Self {
        let mut shapes = Self {
            edges: Vec::new(),
            tails: Vec::new(),
            index: Vec::new(),
            capacity: if learns { MAX_EDGES } else { 0 },
            refusals: 0,
            patience: FIRST_PATIENCE,
        };
        shapes.forget();
        shapes
    }

    /// Whether edges that are of no use fill the memory, so that it is time to begin anew.
    #[inline]
    pub fn is_tired(&self) -> bool {
        self.refusals >= self.patience
    }

    /// Forgets all edges. The patience doubles: where payloads never repeat, learning must not
    /// cost.
    pub fn forget(&mut self) {
        if self.is_tired() {
            self.patience = (self.patience * 2).min(LAST_PATIENCE);
        }
        self.refusals = 0;
        self.tails.clear();
        self.index.clear();
        self.edges.clear();
        self.edges.push(Edge {
            head: [0; 2],
            mask: [0; 2],
            len: 0,
            tail: 0,
            from: super::nest::OUTSIDE,
            to: super::nest::OUTSIDE,
            ends: false,
            column: None,
            effects: Box::default(),
            next: [NOWHERE; NEXT],
        });
    }

    /// How many edges are remembered.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.edges.len() - 1
    }

    /// Whether a known edge leads into `doc`.
    #[cfg(test)]
    pub fn follows_from_start(&mut self, doc: &[u8]) -> bool {
        self.follow(START, doc, 0).is_some()
    }

    /// The context behind an edge.
    pub fn context(&self, edge: EdgeId) -> Context {
        self.edges[usize::from(edge)].to
    }

    /// The edge after `before` whose text stands at `at`, if it is one of those that came there
    /// lately.
    #[inline]
    pub fn follow(&mut self, before: EdgeId, doc: &[u8], at: usize) -> Option<Followed<'_>> {
        let candidates = self.edges.get(usize::from(before))?.next;
        let tries = candidates.iter().enumerate();
        let (place, edge, stop) = tries
            .map_while(|(place, &edge)| (edge != NOWHERE).then_some((place, edge)))
            .find_map(|(place, edge)| Some((place, edge, self.stop_of(edge, doc, at)?)))?;
        if place > 0 {
            self.edges[usize::from(before)].next[..=place].rotate_right(1);
        }
        Some(Followed {
            edge,
            effects: &self.edges[usize::from(edge)].effects,
            stop,
        })
    }

    /// Where `edge` leads to from `at`; `None` if its text does not stand there.
    #[inline]
    fn stop_of(&self, edge: EdgeId, doc: &[u8], at: usize) -> Option<Stop> {
        let edge = self.edges.get(usize::from(edge))?;
        let rest = doc.get(at..)?;
        let text = rest.get(..edge.len)?;
        match rest.first_chunk::<HEAD>() {
            Some(head) => {
                let [low, high] = scan::halves(head);
                let low = (low ^ edge.head[0]) & edge.mask[0];
                let high = (high ^ edge.head[1]) & edge.mask[1];
                if low | high != 0 {
                    return None;
                }
            }
            None if padded(text) != edge.head => return None,
            None => {}
        }
        if edge.len > HEAD {
            let tail = &self.tails[edge.tail..edge.tail + (edge.len - HEAD)];
            if text[HEAD..] != *tail {
                return None;
            }
        }
        // A longer edge may begin like this one: in it, brackets or spaces stand where the scalar
        // would.
        match rest.get(edge.len) {
            None => edge.ends.then_some(Stop::End),
            Some(&byte) => (!edge.ends && scan::begins_scalar(byte))
                .then(|| Stop::Scalar(at + edge.len, edge.column)),
        }
    }

    /// Remembers what the walk found; gives the edge, or `NOWHERE`.
    ///
    /// An edge is followed only once it has come a second time: keys that never come again would
    /// else stand in the way of those that do.
    pub fn learn(&mut self, lesson: &Lesson<'_>) -> EdgeId {
        if self.capacity == 0 {
            return NOWHERE;
        }
        let known = self.edges.len();
        let edge = self.edge_of(lesson);
        let before = self.edges.get_mut(usize::from(lesson.before));
        if edge == NOWHERE {
            self.refusals = self.refusals.saturating_add(1);
            // Where strangers come, the edge that came last of all is not worth a try.
            if let Some(before) = before {
                let last = before.next.iter_mut().rfind(|next| **next != NOWHERE);
                if let Some(last) = last {
                    *last = NOWHERE;
                }
            }
        } else if let Some(before) = before
            && usize::from(edge) < known
        {
            before.next.rotate_right(1);
            before.next[0] = edge;
        }
        edge
    }

    fn edge_of(&mut self, lesson: &Lesson<'_>) -> EdgeId {
        let (Some(from), Some(to)) = (lesson.from, lesson.to) else {
            return NOWHERE;
        };
        if self.index.is_empty() {
            self.index.resize(INDEX_LEN, FREE);
        }
        let hash = xxh3_64_with_seed(lesson.text, u64::from(from));
        // The two halves.
        #[allow(clippy::cast_possible_truncation)]
        let (first, tag) = ((hash >> 32) as usize, hash as u32);
        for place in (first..first + PROBES).map(|place| place % INDEX_LEN) {
            let Place { tag: known, edge } = self.index[place];
            if edge == NOWHERE {
                let edge = self.add(lesson, from, to);
                self.index[place] = Place { tag, edge };
                return edge;
            }
            if known == tag && self.is(edge, from, lesson.text) {
                return edge;
            }
        }
        NOWHERE
    }

    fn is(&self, edge: EdgeId, from: Context, text: &[u8]) -> bool {
        let edge = &self.edges[usize::from(edge)];
        edge.from == from
            && edge.len == text.len()
            && edge.head == padded(text)
            && text
                .get(HEAD..)
                .is_none_or(|tail| self.tails[edge.tail..].starts_with(tail))
    }

    /// Adds an edge, if there is room.
    fn add(&mut self, lesson: &Lesson<'_>, from: Context, to: Context) -> EdgeId {
        let text = lesson.text;
        let tail = text.get(HEAD..).unwrap_or_default();
        if self.edges.len() >= self.capacity
            || text.len() > MAX_TEXT
            || self.tails.len() + tail.len() > MAX_ALL_TEXT
            || lesson.effects.len() > MAX_EFFECTS
        {
            return NOWHERE;
        }
        let Ok(id) = EdgeId::try_from(self.edges.len()) else {
            return NOWHERE;
        };
        self.edges.push(Edge {
            head: padded(text),
            mask: padded(&[0xff; HEAD][..text.len().min(HEAD)]),
            len: text.len(),
            tail: self.tails.len(),
            from,
            to,
            ends: lesson.stop == Stop::End,
            column: match lesson.stop {
                Stop::Scalar(_, column) => column,
                Stop::End => None,
            },
            effects: lesson.effects.into(),
            next: [NOWHERE; NEXT],
        });
        self.tails.extend_from_slice(tail);
        id
    }
}

/// The first bytes of `text` as two numbers, filled up with zeros.
fn padded(text: &[u8]) -> [u64; 2] {
    let mut head = [0; HEAD];
    let len = text.len().min(HEAD);
    head[..len].copy_from_slice(&text[..len]);
    scan::halves(&head)
}
