//! Expressions over the columns of one record, as a definition means them.

use super::{Column, Timestamp};
use crate::decimal::Decimal;

/// An expression with SQL's three-valued logic: what is absent or null is unknown, and so is what
/// is computed of it, unless a rule says otherwise. A condition that is unknown does not select.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// Null: compared with anything, unknown.
    Null,
    /// True or false.
    Bool(bool),
    /// A number.
    Number(Decimal),
    /// A text.
    Text(String),
    /// A point in time.
    Time(Timestamp),
    /// A field of the record.
    Column(Column),
    /// A comparison.
    Compare {
        /// The left side.
        left: Box<Expr>,
        /// What is asked of the two.
        op: CompareOp,
        /// The right side.
        right: Box<Expr>,
    },
    /// `IS NULL`: true for an absent or null field, never unknown.
    IsNull(Box<Expr>),
    /// `NOT`; of unknown it is unknown.
    Not(Box<Expr>),
    /// `AND` of all; of none it is true.
    And(Vec<Expr>),
    /// `OR` of all; of none it is false.
    Or(Vec<Expr>),
    /// Anything else. The number of arguments is one that [`Call::signature`] allows.
    Call(Call, Vec<Expr>),
}

/// What a comparison asks. Values of different kinds are neither equal nor ordered: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `=`
    Eq,
    /// `<>`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// What an expression gives, as far as is known before a record comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unknown: a field, or null.
    Any,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A point in time.
    Time,
}

impl Kind {
    /// Whether a value of this kind can be one of the `wanted` kind.
    #[must_use]
    pub fn may_be(self, wanted: Self) -> bool {
        self == wanted || self == Self::Any || wanted == Self::Any
    }

    /// As messages name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "of any kind",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Time => "a time",
        }
    }
}

/// What a call takes and gives.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Fewest arguments.
    pub least: usize,
    /// Most arguments.
    pub most: usize,
    /// The arguments' kinds; the last one is that of all further ones.
    pub takes: &'static [Kind],
    /// The result's kind.
    pub gives: Gives,
}

/// The kind of a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Always this.
    Always(Kind),
    /// That of its arguments, which are of one kind.
    SameAsArguments,
    /// That of the second and each second argument from there, and of a last odd one.
    SameAsBranches,
}

/// What can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the function of SQL that has its name")]
pub enum Call {
    Negate,
    Add,
    Subtract,
    Multiply,
    Divide,
    Mod,
    Abs,
    Round,
    Floor,
    Ceil,
    IsTrue,
    IsFalse,
    /// `IS DISTINCT FROM`: null is equal to null.
    IsDistinct,
    /// Text, pattern and the escape character; pattern and escape are literals.
    Like,
    ILike,
    /// Text and a pattern, which is a literal.
    RegexpLike,
    /// Conditions and results by turns, then what is given where none holds.
    Case,
    Coalesce,
    NullIf,
    /// Whether the first is equal to one of the others.
    In,
    ToText,
    ToNumber,
    /// Rounds half away from zero.
    ToInteger,
    ToBool,
    ToTime,
    Upper,
    Lower,
    Trim,
    TrimStart,
    TrimEnd,
    Substr,
    /// Leaves nulls out.
    Concat,
    /// `||`: null with null.
    Join,
    StartsWith,
    EndsWith,
    Length,
    Replace,
    SplitPart,
    /// A unit, which is a literal, and a time.
    DateTrunc,
    Extract,
}

const ANY: Kind = Kind::Any;
const BOOL: Kind = Kind::Bool;
const NUMBER: Kind = Kind::Number;
const TEXT: Kind = Kind::Text;
const TIME: Kind = Kind::Time;
/// Most arguments of what takes any number.
const MANY: usize = 1000;

/// A call with its name in definitions, fewest and most arguments, their kinds and the result's.
type Known = (Call, &'static str, usize, usize, &'static [Kind], Gives);

/// All calls.
const CALLS: [Known; 42] = {
    use Call as C;
    use Gives::{Always as Is, SameAsArguments, SameAsBranches};
    [
        (C::Negate, "-", 1, 1, &[NUMBER], Is(NUMBER)),
        (C::Add, "add", 2, 2, &[NUMBER], Is(NUMBER)),
        (C::Subtract, "subtract", 2, 2, &[NUMBER], Is(NUMBER)),
        (C::Multiply, "multiply", 2, 2, &[NUMBER], Is(NUMBER)),
        (C::Divide, "divide", 2, 2, &[NUMBER], Is(NUMBER)),
        (C::Mod, "mod", 2, 2, &[NUMBER], Is(NUMBER)),
        (C::Abs, "abs", 1, 1, &[NUMBER], Is(NUMBER)),
        (C::Round, "round", 1, 2, &[NUMBER], Is(NUMBER)),
        (C::Floor, "floor", 1, 1, &[NUMBER], Is(NUMBER)),
        (C::Ceil, "ceil", 1, 1, &[NUMBER], Is(NUMBER)),
        (C::IsTrue, "is_true", 1, 1, &[BOOL], Is(BOOL)),
        (C::IsFalse, "is_false", 1, 1, &[BOOL], Is(BOOL)),
        (C::IsDistinct, "is_distinct", 2, 2, &[ANY], Is(BOOL)),
        (C::Like, "like", 2, 3, &[TEXT], Is(BOOL)),
        (C::ILike, "ilike", 2, 3, &[TEXT], Is(BOOL)),
        (C::RegexpLike, "regexp_like", 2, 2, &[TEXT], Is(BOOL)),
        (C::Case, "case", 2, MANY, &[ANY], SameAsBranches),
        (C::Coalesce, "coalesce", 1, MANY, &[ANY], SameAsArguments),
        (C::In, "in", 2, MANY, &[ANY], Is(BOOL)),
        (C::NullIf, "nullif", 2, 2, &[ANY], SameAsArguments),
        (C::ToText, "to_text", 1, 1, &[ANY], Is(TEXT)),
        (C::ToNumber, "to_number", 1, 1, &[ANY], Is(NUMBER)),
        (C::ToInteger, "to_integer", 1, 1, &[ANY], Is(NUMBER)),
        (C::ToBool, "to_boolean", 1, 1, &[ANY], Is(BOOL)),
        (C::ToTime, "to_timestamp", 1, 1, &[ANY], Is(TIME)),
        (C::Upper, "upper", 1, 1, &[TEXT], Is(TEXT)),
        (C::Lower, "lower", 1, 1, &[TEXT], Is(TEXT)),
        (C::Trim, "trim", 1, 2, &[TEXT], Is(TEXT)),
        (C::TrimStart, "ltrim", 1, 2, &[TEXT], Is(TEXT)),
        (C::TrimEnd, "rtrim", 1, 2, &[TEXT], Is(TEXT)),
        (C::Substr, "substr", 2, 3, &[TEXT, NUMBER], Is(TEXT)),
        (C::Concat, "concat", 1, MANY, &[ANY], Is(TEXT)),
        (C::Join, "join", 2, MANY, &[ANY], Is(TEXT)),
        (C::StartsWith, "starts_with", 2, 2, &[TEXT], Is(BOOL)),
        (C::EndsWith, "ends_with", 2, 2, &[TEXT], Is(BOOL)),
        (C::Length, "length", 1, 1, &[TEXT], Is(NUMBER)),
        (C::Replace, "replace", 3, 3, &[TEXT], Is(TEXT)),
        (
            C::SplitPart,
            "split_part",
            3,
            3,
            &[TEXT, TEXT, NUMBER],
            Is(TEXT),
        ),
        (C::DateTrunc, "date_trunc", 2, 2, &[TEXT, TIME], Is(TIME)),
        (C::Extract, "extract", 2, 2, &[TEXT, TIME], Is(NUMBER)),
        // What follows has no name of its own in SQL, or another one.
        (C::Substr, "substring", 2, 3, &[TEXT, NUMBER], Is(TEXT)),
        (C::Ceil, "ceiling", 1, 1, &[NUMBER], Is(NUMBER)),
    ]
};

impl Call {
    /// The call that definitions know by this name, in lower case.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let found = CALLS.iter().find(|(_, known, ..)| *known == name);
        found.map(|&(call, ..)| call)
    }

    /// Its name in definitions.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = CALLS.iter().find(|(call, ..)| *call == self);
        found.map_or("", |&(_, name, ..)| name)
    }

    /// What it takes and gives.
    #[must_use]
    pub fn signature(self) -> Signature {
        let found = CALLS.iter().find(|(call, ..)| *call == self);
        let &(_, _, least, most, takes, gives) = found.unwrap_or(&CALLS[0]);
        Signature {
            least,
            most,
            takes,
            gives,
        }
    }
}

impl Signature {
    /// The kind that the argument at `at` must be of.
    #[must_use]
    pub fn wants(&self, at: usize) -> Kind {
        let given = self.takes.get(at).or(self.takes.last());
        given.copied().unwrap_or(Kind::Any)
    }
}

impl Expr {
    /// Whether it is the same for every record.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Time(_)
        )
    }

    /// The kind of what it gives.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Null | Self::Column(_) => Kind::Any,
            Self::Number(_) => Kind::Number,
            Self::Text(_) => Kind::Text,
            Self::Time(_) => Kind::Time,
            Self::Bool(_)
            | Self::Compare { .. }
            | Self::IsNull(_)
            | Self::Not(_)
            | Self::And(_)
            | Self::Or(_) => Kind::Bool,
            Self::Call(call, arguments) => match call.signature().gives {
                Gives::Always(kind) => kind,
                Gives::SameAsArguments => common_kind(arguments.iter()),
                Gives::SameAsBranches => common_kind(branches(arguments)),
            },
        }
    }

    /// What it is made of.
    #[must_use]
    pub fn children(&self) -> Vec<&Self> {
        match self {
            Self::Compare { left, right, .. } => vec![left, right],
            Self::IsNull(inner) | Self::Not(inner) => vec![inner],
            Self::And(parts) | Self::Or(parts) | Self::Call(_, parts) => parts.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The columns that it names, as often as it does.
    pub fn columns(&self, found: &mut Vec<Column>) {
        if let Self::Column(column) = self {
            found.push(*column);
        }
        for child in self.children() {
            child.columns(found);
        }
    }

    /// Puts other columns in the place of its own; `None` if `moved` has none for some.
    pub fn move_columns(&mut self, moved: &mut dyn FnMut(Column) -> Option<Column>) -> Option<()> {
        match self {
            Self::Column(column) => *column = moved(*column)?,
            Self::Compare { left, right, .. } => {
                left.move_columns(moved)?;
                right.move_columns(moved)?;
            }
            Self::IsNull(inner) | Self::Not(inner) => inner.move_columns(moved)?,
            Self::And(parts) | Self::Or(parts) | Self::Call(_, parts) => {
                for part in parts {
                    part.move_columns(moved)?;
                }
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Time(_) => {}
        }
        Some(())
    }
}

/// The results among the arguments of `case`.
pub(crate) fn branches(arguments: &[Expr]) -> impl Iterator<Item = &Expr> {
    let last = arguments.len().saturating_sub(1);
    let is_result = move |at: usize| at % 2 == 1 || (at == last && at.is_multiple_of(2));
    let numbered = arguments.iter().enumerate();
    numbered.filter_map(move |(at, argument)| is_result(at).then_some(argument))
}

/// The first kind that is known.
fn common_kind<'a>(mut exprs: impl Iterator<Item = &'a Expr>) -> Kind {
    let known = exprs.find_map(|expr| Some(expr.kind()).filter(|kind| *kind != Kind::Any));
    known.unwrap_or(Kind::Any)
}
