//! From an expression as it is meant to one that is quick to evaluate: what is the same for every
//! record is computed once, and what most conditions are made of has forms of its own.

use regex::bytes::Regex;

use super::constant;
use super::pattern::{Like, regular_expression};
use super::time::Unit;
use crate::decimal::Decimal;
use crate::spec::{Call, Column, CompareOp, Expr, Kind, Timestamp};

/// From so many texts on, one of them is looked for by halves.
const MANY_TEXTS: usize = 6;

/// Sites are places in [`super::Compiled::sites`].
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(Decimal),
    Text(Box<[u8]>),
    Time(Timestamp),
    Column(Column),
    CompareNumber {
        column: Column,
        op: CompareOp,
        number: Decimal,
        site: usize,
    },
    CompareText {
        column: Column,
        op: CompareOp,
        text: Box<[u8]>,
        site: usize,
    },
    /// Sorted.
    InTexts {
        column: Column,
        texts: Box<[Box<[u8]>]>,
        site: usize,
    },
    Compare {
        sides: Box<(Node, Node)>,
        op: CompareOp,
        site: usize,
    },
    IsNull(Box<Node>),
    Not(Box<Node>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    /// What is not known to be true or false, asked for its truth.
    Truth(Box<Node>, usize),
    Like {
        text: Box<Node>,
        like: Box<Like>,
        site: usize,
    },
    Regexp {
        text: Box<Node>,
        regex: Box<Regex>,
        site: usize,
    },
    /// Of two numbers.
    Arithmetic {
        call: Call,
        sides: Box<(Node, Node)>,
        site: usize,
    },
    /// Conditions and results by turns, then what is given where none holds.
    Case(Box<[Node]>),
    Coalesce(Box<[Node]>),
    DateTrunc {
        unit: Unit,
        time: Box<Node>,
        site: usize,
    },
    Extract {
        unit: Unit,
        time: Box<Node>,
        site: usize,
    },
    Call {
        call: Call,
        arguments: Box<[Node]>,
        site: usize,
    },
}

impl Node {
    fn is_literal(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Time(_)
        )
    }
}

fn literal(expr: &Expr) -> Option<Node> {
    Some(match expr {
        Expr::Null => Node::Null,
        Expr::Bool(value) => Node::Bool(*value),
        Expr::Number(number) => Node::Number(*number),
        Expr::Text(text) => Node::Text(text.as_bytes().into()),
        Expr::Time(time) => Node::Time(*time),
        _ => return None,
    })
}

/// An expression that is asked for its truth.
pub(super) fn condition(expr: &Expr, sites: &mut Vec<Expr>) -> Node {
    let node = value(expr, sites);
    let known = expr.kind() == Kind::Bool || matches!(node, Node::Bool(_) | Node::Null);
    match known {
        true => node,
        false => Node::Truth(Box::new(node), site(expr, sites)),
    }
}

pub(super) fn value(expr: &Expr, sites: &mut Vec<Expr>) -> Node {
    let node = match expr {
        Expr::Column(column) => return Node::Column(*column),
        Expr::Compare { left, op, right } => comparison(expr, (left, *op, right), sites),
        Expr::IsNull(inner) => Node::IsNull(Box::new(value(inner, sites))),
        Expr::Not(inner) => Node::Not(Box::new(condition(inner, sites))),
        Expr::And(parts) => Node::And(conditions(parts, sites)),
        Expr::Or(parts) => match one_of_texts(expr, parts, sites) {
            Some(node) => node,
            None => Node::Or(conditions(parts, sites)),
        },
        Expr::Call(call, arguments) => called(expr, *call, arguments, sites),
        literal_expr => return literal(literal_expr).unwrap_or(Node::Null),
    };
    folded(node, sites)
}

/// What is made of literals alone becomes one.
fn folded(node: Node, sites: &[Expr]) -> Node {
    let is_constant = match &node {
        Node::Compare { sides, .. } | Node::Arithmetic { sides, .. } => {
            sides.0.is_literal() && sides.1.is_literal()
        }
        Node::IsNull(inner)
        | Node::Not(inner)
        | Node::Like { text: inner, .. }
        | Node::Regexp { text: inner, .. }
        | Node::DateTrunc { time: inner, .. }
        | Node::Extract { time: inner, .. } => inner.is_literal(),
        Node::And(parts) | Node::Or(parts) | Node::Case(parts) | Node::Coalesce(parts) => {
            parts.iter().all(Node::is_literal)
        }
        Node::Call { arguments, .. } => arguments.iter().all(Node::is_literal),
        _ => false,
    };
    let found = match is_constant {
        true => constant(&node, sites.len()),
        false => None,
    };
    found.as_ref().and_then(literal).unwrap_or(node)
}

fn site(expr: &Expr, sites: &mut Vec<Expr>) -> usize {
    sites.push(expr.clone());
    sites.len().saturating_sub(1)
}

fn conditions(parts: &[Expr], sites: &mut Vec<Expr>) -> Box<[Node]> {
    parts.iter().map(|part| condition(part, sites)).collect()
}

fn values(parts: &[Expr], sites: &mut Vec<Expr>) -> Box<[Node]> {
    parts.iter().map(|part| value(part, sites)).collect()
}

fn comparison(
    expr: &Expr,
    (left, op, right): (&Expr, CompareOp, &Expr),
    sites: &mut Vec<Expr>,
) -> Node {
    let turned = match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        same => same,
    };
    let sides = (value(left, sites), value(right, sites));
    let site = site(expr, sites);
    match sides {
        (Node::Column(column), Node::Number(number)) => Node::CompareNumber {
            column,
            op,
            number,
            site,
        },
        (Node::Number(number), Node::Column(column)) => Node::CompareNumber {
            column,
            op: turned,
            number,
            site,
        },
        (Node::Column(column), Node::Text(text)) => Node::CompareText {
            column,
            op,
            text,
            site,
        },
        (Node::Text(text), Node::Column(column)) => Node::CompareText {
            column,
            op: turned,
            text,
            site,
        },
        sides => Node::Compare {
            sides: Box::new(sides),
            op,
            site,
        },
    }
}

/// `column = 'a' or column = 'b' or …`, as `in` is written.
fn one_of_texts(expr: &Expr, parts: &[Expr], sites: &mut Vec<Expr>) -> Option<Node> {
    if parts.len() < MANY_TEXTS {
        return None;
    }
    let mut texts: Vec<Box<[u8]>> = Vec::with_capacity(parts.len());
    let mut tested = None;
    for part in parts {
        let Expr::Compare {
            left,
            op: CompareOp::Eq,
            right,
        } = part
        else {
            return None;
        };
        let (Expr::Column(column), Expr::Text(text)) = (&**left, &**right) else {
            return None;
        };
        if tested.is_some_and(|known| known != *column) {
            return None;
        }
        tested = Some(*column);
        texts.push(text.as_bytes().into());
    }
    texts.sort_unstable();
    Some(Node::InTexts {
        column: tested?,
        texts: texts.into(),
        site: site(expr, sites),
    })
}

/// Patterns and units are literals, which the config has checked; where they are none, the result
/// is null.
fn called(expr: &Expr, call: Call, arguments: &[Expr], sites: &mut Vec<Expr>) -> Node {
    match (call, arguments) {
        (Call::Like | Call::ILike, [text, Expr::Text(pattern), escape @ ..]) => {
            let escape = match escape {
                [Expr::Text(escape), ..] => escape.chars().next(),
                _ => Some('\\'),
            };
            let like = Like::new(pattern, escape, call == Call::ILike);
            like.map_or(Node::Null, |like| Node::Like {
                text: Box::new(value(text, sites)),
                like: Box::new(like),
                site: site(expr, sites),
            })
        }
        (Call::RegexpLike, [text, Expr::Text(pattern)]) => match regular_expression(pattern) {
            Err(_) => Node::Null,
            Ok(regex) => Node::Regexp {
                text: Box::new(value(text, sites)),
                regex: Box::new(regex),
                site: site(expr, sites),
            },
        },
        (Call::DateTrunc | Call::Extract, [Expr::Text(unit), time]) => {
            let Some(unit) = Unit::of_name(unit) else {
                return Node::Null;
            };
            let (time, site) = (Box::new(value(time, sites)), site(expr, sites));
            match call {
                Call::DateTrunc => Node::DateTrunc { unit, time, site },
                _ => Node::Extract { unit, time, site },
            }
        }
        (Call::Like | Call::ILike | Call::RegexpLike | Call::DateTrunc | Call::Extract, _) => {
            Node::Null
        }
        (Call::Case, parts) => {
            let last = parts.len().saturating_sub(1);
            let nodes = parts.iter().enumerate().map(|(at, part)| {
                let is_condition = at % 2 == 0 && at != last;
                match is_condition {
                    true => condition(part, sites),
                    false => value(part, sites),
                }
            });
            Node::Case(nodes.collect())
        }
        (Call::Coalesce, parts) => Node::Coalesce(values(parts, sites)),
        (Call::Add | Call::Subtract | Call::Multiply | Call::Divide | Call::Mod, [left, right]) => {
            Node::Arithmetic {
                call,
                sides: Box::new((value(left, sites), value(right, sites))),
                site: site(expr, sites),
            }
        }
        (Call::IsTrue | Call::IsFalse, [inner]) => Node::Call {
            call,
            arguments: Box::new([condition(inner, sites)]),
            site: site(expr, sites),
        },
        (call, arguments) => Node::Call {
            call,
            arguments: values(arguments, sites),
            site: site(expr, sites),
        },
    }
}
