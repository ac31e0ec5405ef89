//! The used fields as a tree of keys.

use unisono_engine::spec::Column;

use crate::definition::{FieldSet, Key};

/// The node of the payload itself.
pub const ROOT: u32 = 0;

/// The keys of one object that lead to used fields, for each object on the way to one; and the
/// places of arrays that do.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<Node>,
    places: Vec<Place>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<Child>,
    /// All columns at or below the children.
    below: Vec<Column>,
}

/// One place of an array.
#[derive(Clone, Debug, Default)]
struct Place {
    element: Child,
    /// The place behind it, if that or a later one is on the way to a used field.
    next: Option<u32>,
    /// Of the first place: all columns in the array.
    below: Vec<Column>,
}

/// One key, or one place of an array: a used field, or on the way to one, or both.
#[derive(Clone, Debug, Default)]
pub struct Child {
    key: Box<[u8]>,
    pub column: Option<Column>,
    /// The node of the object under this key.
    pub inner: Option<u32>,
    /// The first place of the array under this key.
    pub elements: Option<u32>,
}

/// Where a child is kept.
#[derive(Clone, Copy)]
enum At {
    Node(u32, usize),
    Place(u32),
}

impl Paths {
    /// The tree of all of `fields`.
    pub fn new(fields: &FieldSet) -> Self {
        let mut paths = Self {
            nodes: vec![Node::default()],
            places: Vec::new(),
        };
        for (index, path) in fields.paths().iter().enumerate() {
            paths.insert(path.keys(), Column(index));
        }
        paths
    }

    fn insert(&mut self, keys: &[Key], column: Column) {
        let mut within: Option<At> = None;
        for key in keys {
            let at = match key {
                Key::Name(name) => {
                    let node = within.map_or(ROOT, |at| self.inner(at));
                    self.nodes[node as usize].below.push(column);
                    At::Node(node, self.child(node, name.as_bytes()))
                }
                Key::Index(index) => {
                    // A path begins with a name.
                    let Some(within) = within else { return };
                    let first = self.elements(within);
                    self.places[first as usize].below.push(column);
                    At::Place((0..*index).fold(first, |place, _| self.after(place)))
                }
            };
            within = Some(at);
        }
        if let Some(at) = within {
            self.at(at).column = Some(column);
        }
    }

    fn at(&mut self, at: At) -> &mut Child {
        match at {
            At::Node(node, child) => &mut self.nodes[node as usize].children[child],
            At::Place(place) => &mut self.places[place as usize].element,
        }
    }

    fn add_place(&mut self) -> u32 {
        let place = u32::try_from(self.places.len()).expect("places are fewer than 2^30");
        self.places.push(Place::default());
        place
    }

    /// The first place of the array under a child, which is added if there is none.
    fn elements(&mut self, at: At) -> u32 {
        if let Some(first) = self.at(at).elements {
            return first;
        }
        let first = self.add_place();
        self.at(at).elements = Some(first);
        first
    }

    /// The place behind another, which is added if there is none.
    fn after(&mut self, place: u32) -> u32 {
        if let Some(next) = self.places[place as usize].next {
            return next;
        }
        let next = self.add_place();
        self.places[place as usize].next = Some(next);
        next
    }

    /// The place of the child under `key`, which is added if there is none.
    fn child(&mut self, node: u32, key: &[u8]) -> usize {
        let children = &mut self.nodes[node as usize].children;
        if let Some(at) = children.iter().position(|child| *child.key == *key) {
            return at;
        }
        children.push(Child {
            key: key.into(),
            ..Child::default()
        });
        children.len() - 1
    }

    /// The node under a child, which is added if there is none.
    fn inner(&mut self, at: At) -> u32 {
        if let Some(inner) = self.at(at).inner {
            return inner;
        }
        let inner = u32::try_from(self.nodes.len()).expect("fields are fewer than 2^30");
        self.nodes.push(Node::default());
        self.at(at).inner = Some(inner);
        inner
    }

    /// The child of `node` under `key`, if it is used. Few fields are: comparing lengths first,
    /// this beats a hash map.
    pub fn find(&self, node: u32, key: &[u8]) -> Option<&Child> {
        let children = &self.nodes[node as usize].children;
        children.iter().find(|child| *child.key == *key)
    }

    /// The element at a place of an array.
    pub fn element(&self, place: u32) -> &Child {
        &self.places[place as usize].element
    }

    /// The place behind another, if it is on the way to a used field.
    pub fn next(&self, place: u32) -> Option<u32> {
        self.places[place as usize].next
    }

    /// All columns in the array whose first place this is.
    pub fn in_array(&self, first: u32) -> &[Column] {
        &self.places[first as usize].below
    }

    /// All columns below `node`.
    pub fn below(&self, node: u32) -> &[Column] {
        &self.nodes[node as usize].below
    }
}
