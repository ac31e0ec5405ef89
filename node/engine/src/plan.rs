//! Definitions, prepared for the loop over records; and what is the same for several pipelines,
//! found once.

use crate::decimal::Decimal;
use crate::dedup::held;
use crate::record::{Cell, Cells, Record};
use crate::spec::{Column, Expr, PipelineSpec, Takes, TimeSource};
use crate::stats::count;
use crate::value::{Input, TEXT_BYTES};

/// One field that values are computed from; fetched once for each record, however many values use
/// it.
#[derive(Debug)]
struct InputField {
    column: Column,
    /// Some value has no use for a text there.
    refuses_texts: bool,
    /// Some value has no use for a long text there.
    refuses_long_texts: bool,
    /// Some value has no use for a boolean there.
    refuses_booleans: bool,
    /// Some value has no use for an array or an object there.
    refuses_nested: bool,
    /// Some value looks at texts there.
    reads_texts: bool,
}

/// Where a value finds what it takes in.
#[derive(Debug)]
struct ValueField {
    /// The field's place in `fields`.
    field: usize,
    /// The value looks at texts.
    reads_texts: bool,
}

/// Which fields feed which values.
#[derive(Debug)]
struct Fields {
    fields: Vec<InputField>,
    /// For each value; `None`: it counts every record.
    value_fields: Vec<Option<ValueField>>,
    /// Columns of the group that no value uses: their unusable cells are counted apart.
    group_only: Vec<Column>,
}

/// What a record holds in a field. Borrows nothing, so that its memory serves record after record.
#[derive(Clone, Copy, Debug)]
enum Held {
    Null,
    Bool(bool),
    Number(Decimal),
    /// An array or an object.
    Nested,
    /// To be looked up in the record, if it is asked for.
    Text(Column),
}

/// What a record holds in the fields of a [`Program`]; its memory is used again for the next record.
#[derive(Debug, Default)]
pub(crate) struct Inputs(Vec<Held>);

/// A pipeline's definition with all that its lanes need: made once, the same on every lane.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) spec: PipelineSpec,
    /// Places in [`Common`].
    pub(crate) time: usize,
    pub(crate) filter: Option<usize>,
    pub(crate) groups: usize,
    /// Those that its groups and values use.
    pub(crate) derived: Vec<usize>,
    /// The decoded fields that it names anywhere.
    pub(crate) named: Vec<Column>,
    fields: Fields,
}

/// A record with what was derived of it.
#[derive(Clone, Copy)]
pub(crate) struct Derived<'a> {
    pub(crate) record: &'a Record<'a>,
    /// Of [`Common::derived`].
    pub(crate) cells: &'a Cells,
}

impl<'a> Derived<'a> {
    #[inline]
    pub(crate) fn cell(self, column: Column) -> Cell<'a> {
        match column.derived() {
            None => self.record.cell(column),
            // Nothing of it stands in the payload.
            Some(at) => self.cells.cell(Column(at), b""),
        }
    }
}

/// Times, conditions, derived columns and groups of a feed's pipelines, each once: what several pipelines ask of a
/// record is computed for the first of them.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) times: Vec<TimeSource>,
    pub(crate) filters: Vec<Expr>,
    pub(crate) derived: Vec<Expr>,
    pub(crate) groups: Vec<GroupKey>,
}

/// The fields of a group, and how many bytes their values may take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupKey {
    pub(crate) columns: Vec<Column>,
    pub(crate) most_bytes: usize,
}

fn place_of<T: PartialEq>(things: &mut Vec<T>, thing: T) -> usize {
    let found = things.iter().position(|known| *known == thing);
    found.unwrap_or_else(|| {
        let place = things.len();
        things.push(thing);
        place
    })
}

/// The decoded fields that a definition names.
fn named(spec: &PipelineSpec) -> Vec<Column> {
    let mut named = Vec::new();
    let mut spec = spec.clone();
    spec.move_columns(&mut |column| {
        named.push(column);
        Some(column)
    });
    named.retain(|column| column.derived().is_none());
    named.sort_unstable();
    named.dedup();
    named
}

impl Common {
    /// Prepares a definition. Its derived columns are from now on those of the feed.
    pub(crate) fn program(&mut self, mut spec: PipelineSpec) -> Program {
        let named = named(&spec);
        let derived = std::mem::take(&mut spec.derived).into_iter();
        let derived: Vec<usize> = derived
            .map(|expr| place_of(&mut self.derived, expr))
            .collect();
        spec.move_columns(&mut |column| {
            let place = column.derived().and_then(|at| derived.get(at));
            Some(place.map_or(column, |&place| Column::of_derived(place)))
        });
        let columns = spec.group_by.iter().map(|group| group.column).collect();
        let groups = GroupKey {
            columns,
            most_bytes: spec.group_bytes,
        };
        Program {
            time: place_of(&mut self.times, spec.time.clone()),
            filter: spec
                .filter
                .clone()
                .map(|filter| place_of(&mut self.filters, filter)),
            groups: place_of(&mut self.groups, groups),
            fields: Fields::new(&spec),
            derived,
            named,
            spec,
        }
    }
}

impl Program {
    /// Reads the fields of a record that values use; gives how many of them are unusable: what is
    /// beyond the limits anywhere; texts, booleans, arrays and objects where some value has no use
    /// for them. A field counts once, however many values use it.
    #[inline]
    pub(crate) fn read(&self, record: Derived<'_>, inputs: &mut Inputs) -> u64 {
        let mut bad = 0;
        inputs.0.clear();
        for field in &self.fields.fields {
            let held = match record.cell(field.column) {
                Cell::Missing | Cell::Null => Held::Null,
                Cell::Number(number) => Held::Number(number),
                Cell::Text(text) => {
                    let is_bad = field.refuses_texts
                        || (field.refuses_long_texts && text.len() > TEXT_BYTES);
                    count(&mut bad, u64::from(is_bad));
                    Held::Text(field.column)
                }
                Cell::Nested => {
                    count(&mut bad, u64::from(field.refuses_nested));
                    Held::Nested
                }
                Cell::Bool(value) => {
                    count(&mut bad, u64::from(field.refuses_booleans));
                    Held::Bool(value)
                }
                Cell::Bad => {
                    count(&mut bad, 1);
                    Held::Null
                }
            };
            inputs.0.push(held);
        }
        for &column in &self.fields.group_only {
            count(&mut bad, u64::from(record.cell(column) == Cell::Bad));
        }
        bad
    }

    /// How many of the fields that the definition names hold a number that was rounded.
    #[cold]
    pub(crate) fn rounded(&self, record: &Record<'_>) -> u64 {
        let named = self.named.iter();
        named.filter(|&&column| record.is_rounded(column)).count() as u64
    }

    /// What value `value` takes in of the record, which was read last.
    #[inline]
    pub(crate) fn input<'a>(
        &self,
        value: usize,
        inputs: &Inputs,
        record: Derived<'a>,
    ) -> Input<'a> {
        // Without a field the record itself is counted.
        let Some(of) = &self.fields.value_fields[value] else {
            return Input::Other;
        };
        match inputs.0[of.field] {
            Held::Null => Input::Null,
            Held::Number(number) => Input::Number(number),
            Held::Bool(value) => Input::Bool(value),
            Held::Text(column) if of.reads_texts => match record.cell(column) {
                Cell::Text(text) => Input::Text(text),
                _ => Input::Null,
            },
            Held::Text(_) | Held::Nested => Input::Other,
        }
    }
}

/// Records that wait.
impl Program {
    /// How many fields a waiting record holds.
    pub(crate) fn held_fields(&self) -> usize {
        self.fields.fields.len()
    }

    /// Appends what the record, which was read last, holds in the fields that values use.
    pub(crate) fn hold(&self, inputs: &Inputs, record: Derived<'_>, out: &mut Vec<u8>) {
        for (held, field) in inputs.0.iter().zip(&self.fields.fields) {
            let input = match *held {
                Held::Null => Input::Null,
                Held::Number(number) => Input::Number(number),
                Held::Bool(value) => Input::Bool(value),
                Held::Text(column) if field.reads_texts => match record.cell(column) {
                    Cell::Text(text) => Input::Text(text),
                    _ => Input::Null,
                },
                Held::Text(_) | Held::Nested => Input::Other,
            };
            held::push(input, out);
        }
    }

    /// What value `value` takes in of a record that waited, whose fields are `held`.
    pub(crate) fn input_of_held<'a>(&self, value: usize, held: &[Input<'a>]) -> Input<'a> {
        let Some(Some(of)) = self.fields.value_fields.get(value) else {
            return Input::Other;
        };
        match held.get(of.field) {
            Some(Input::Text(_)) if !of.reads_texts => Input::Other,
            Some(input) => *input,
            None => Input::Null,
        }
    }
}

impl Fields {
    fn new(spec: &PipelineSpec) -> Self {
        let mut fields: Vec<InputField> = Vec::new();
        let mut value_fields = Vec::with_capacity(spec.values.len());
        for value in &spec.values {
            let Some(column) = value.function.column() else {
                value_fields.push(None);
                continue;
            };
            let found = fields.iter().position(|field| field.column == column);
            let field = found.unwrap_or_else(|| {
                let place = fields.len();
                fields.push(InputField::new(column));
                place
            });
            let takes = value.function.takes();
            fields[field].refuse(takes);
            let reads_texts = !matches!(takes, Takes::Presence | Takes::Numbers);
            fields[field].reads_texts |= reads_texts;
            value_fields.push(Some(ValueField { field, reads_texts }));
        }
        let mut group_only: Vec<Column> = spec.group_by.iter().map(|group| group.column).collect();
        group_only.retain(|&column| !fields.iter().any(|field| field.column == column));
        group_only.sort_unstable();
        group_only.dedup();
        Self {
            fields,
            value_fields,
            group_only,
        }
    }
}

impl InputField {
    fn new(column: Column) -> Self {
        Self {
            column,
            refuses_texts: false,
            refuses_long_texts: false,
            refuses_booleans: false,
            refuses_nested: false,
            reads_texts: false,
        }
    }

    /// One more value uses it.
    fn refuse(&mut self, takes: Takes) {
        self.refuses_texts |= takes == Takes::Numbers;
        self.refuses_long_texts |= matches!(takes, Takes::Shown | Takes::Ordered);
        self.refuses_nested |= takes != Takes::Presence;
        self.refuses_booleans |= matches!(takes, Takes::Numbers | Takes::Ordered);
    }
}
