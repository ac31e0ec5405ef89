//! The objects and arrays that are open at a place of a payload.
//!
//! Payloads of a lane nest alike, so each nesting that occurs gets a number: a *context*, which
//! knows the one around it. What is deeper than any sensible payload, or beyond the number of
//! contexts, goes to a stack instead.

/// An open array or object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame(u32);

/// Frames from here on are places of arrays; nodes of objects are fewer.
const FIRST_PLACE: u32 = 1 << 31;

impl Frame {
    pub const ARRAY: Self = Self(0);
    /// An object of which nothing is used.
    pub const UNUSED: Self = Self(1);

    /// The object of this node of [`super::paths::Paths`].
    pub fn used(node: u32) -> Self {
        Self(node + 2)
    }

    /// An array, at this place of [`super::paths::Paths`].
    pub fn place(place: u32) -> Self {
        Self(place + FIRST_PLACE)
    }

    pub fn is_array(self) -> bool {
        self == Self::ARRAY || self.0 >= FIRST_PLACE
    }

    /// The node, of a used object.
    pub fn node(self) -> Option<u32> {
        self.0.checked_sub(2).filter(|_| self.0 < FIRST_PLACE)
    }

    /// Where it stands in an array on the way to used fields.
    pub fn array_place(self) -> Option<u32> {
        self.0.checked_sub(FIRST_PLACE)
    }
}

/// A nesting that has occurred.
pub type Context = u16;

/// Nothing is open: the payload begins, or has ended.
pub const OUTSIDE: Context = 0;

const MAX_CONTEXTS: usize = 256;
const MAX_DEPTH: u8 = 32;
/// Arrays and objects within each other, the outermost counted. It decides which records count: the same for all replicas.
pub const MOST_DEPTH: usize = 512;
/// What is kept of the stack's memory from payload to payload.
const KEPT_FRAMES: usize = 1024;

#[derive(Clone, Debug)]
struct Known {
    around: Context,
    frame: Frame,
    depth: u8,
    /// The contexts directly within.
    within: Vec<Context>,
}

/// Where a payload's pass stands.
#[derive(Clone, Debug)]
pub struct Nest {
    known: Vec<Known>,
    context: Context,
    /// What is open within `context` and has no context of its own.
    beyond: Vec<Frame>,
    /// The last walk came deeper than is read.
    too_deep: bool,
}

impl Nest {
    pub fn new() -> Self {
        let outside = Known {
            around: OUTSIDE,
            frame: Frame::ARRAY,
            depth: 0,
            within: Vec::new(),
        };
        Self {
            known: vec![outside],
            context: OUTSIDE,
            beyond: Vec::new(),
            too_deep: false,
        }
    }

    /// Forgets all contexts; those given out are void.
    pub fn forget(&mut self) {
        *self = Self::new();
    }

    /// Goes to a context that [`Nest::context`] gave.
    pub fn go_to(&mut self, context: Context) {
        self.context = context;
        self.beyond.clear();
        if self.beyond.capacity() > KEPT_FRAMES {
            self.beyond = Vec::new();
        }
    }

    /// The context, if there is one for all that is open.
    pub fn context(&self) -> Option<Context> {
        self.beyond.is_empty().then_some(self.context)
    }

    /// The innermost open array or object.
    pub fn innermost(&self) -> Option<Frame> {
        let last = self.beyond.last().copied();
        last.or_else(|| {
            (self.context != OUTSIDE).then(|| self.known[usize::from(self.context)].frame)
        })
    }

    /// Opens an array or an object; `None` if that is too deep.
    pub fn open(&mut self, frame: Frame) -> Option<()> {
        match self.beyond.is_empty().then(|| self.within(frame)).flatten() {
            Some(context) => self.context = context,
            None => {
                let depth = usize::from(self.known[usize::from(self.context)].depth);
                if depth + self.beyond.len() >= MOST_DEPTH {
                    self.too_deep = true;
                    return None;
                }
                self.beyond.push(frame);
            }
        }
        Some(())
    }

    /// Whether a walk came too deep since this was asked last.
    pub fn take_too_deep(&mut self) -> bool {
        std::mem::take(&mut self.too_deep)
    }

    pub fn close(&mut self) {
        if self.beyond.pop().is_none() {
            self.context = self.known[usize::from(self.context)].around;
        }
    }

    /// The context of `frame` directly within the present one, which is added if there is room.
    fn within(&mut self, frame: Frame) -> Option<Context> {
        let around = &self.known[usize::from(self.context)];
        let mut within = around.within.iter().copied();
        if let Some(found) = within.find(|&context| self.known[usize::from(context)].frame == frame)
        {
            return Some(found);
        }
        let depth = around.depth + 1;
        if depth > MAX_DEPTH || self.known.len() >= MAX_CONTEXTS {
            return None;
        }
        let context = Context::try_from(self.known.len()).ok()?;
        self.known.push(Known {
            around: self.context,
            frame,
            depth,
            within: Vec::new(),
        });
        self.known[usize::from(self.context)].within.push(context);
        Some(context)
    }
}
