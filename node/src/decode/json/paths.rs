//! The used fields as a tree of keys.

use unisono_engine::spec::Column;

use crate::definition::FieldSet;

/// The node of the payload itself.
pub const ROOT: u32 = 0;

/// The keys of one object that lead to used fields, for each object on the way to one.
#[derive(Clone, Debug)]
pub struct Paths {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<Child>,
    /// All columns at or below the children.
    below: Vec<Column>,
}

/// One key: a used field, or an object on the way to one, or both.
#[derive(Clone, Debug)]
pub struct Child {
    key: Box<[u8]>,
    pub column: Option<Column>,
    /// The node of the object under this key.
    pub inner: Option<u32>,
}

impl Paths {
    /// The tree of all of `fields`.
    pub fn new(fields: &FieldSet) -> Self {
        let mut paths = Self {
            nodes: vec![Node::default()],
        };
        for (index, path) in fields.paths().iter().enumerate() {
            paths.insert(path.keys(), Column(index));
        }
        paths
    }

    fn insert(&mut self, keys: &[String], column: Column) {
        let mut node = ROOT;
        for (depth, key) in keys.iter().enumerate() {
            self.nodes[node as usize].below.push(column);
            let at = self.child(node, key.as_bytes());
            if depth + 1 == keys.len() {
                self.nodes[node as usize].children[at].column = Some(column);
                return;
            }
            node = self.inner(node, at);
        }
    }

    /// The place of the child under `key`, which is added if there is none.
    fn child(&mut self, node: u32, key: &[u8]) -> usize {
        let children = &mut self.nodes[node as usize].children;
        if let Some(at) = children.iter().position(|child| *child.key == *key) {
            return at;
        }
        children.push(Child {
            key: key.into(),
            column: None,
            inner: None,
        });
        children.len() - 1
    }

    /// The node under a child, which is added if there is none.
    fn inner(&mut self, node: u32, child: usize) -> u32 {
        if let Some(inner) = self.nodes[node as usize].children[child].inner {
            return inner;
        }
        let inner = u32::try_from(self.nodes.len()).expect("fields are fewer than 2^32");
        self.nodes.push(Node::default());
        self.nodes[node as usize].children[child].inner = Some(inner);
        inner
    }

    /// The child of `node` under `key`, if it is used. Few fields are: comparing lengths first,
    /// this beats a hash map.
    pub fn find(&self, node: u32, key: &[u8]) -> Option<&Child> {
        let children = &self.nodes[node as usize].children;
        children.iter().find(|child| *child.key == *key)
    }

    /// All columns below `node`.
    pub fn below(&self, node: u32) -> &[Column] {
        &self.nodes[node as usize].below
    }
}
