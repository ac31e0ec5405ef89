//! Definitions, prepared for the loop over records; and what is the same for several pipelines,
//! found once.

use crate::record::{Cell, Cells, Record};
use crate::spec::{Column, Expr, Function, PipelineSpec, TimeSource};
use crate::stats::count;
use crate::value::Input;

/// One field that values are computed from; fetched once for each record, however many values use
/// it.
#[derive(Debug)]
struct InputField {
    column: Column,
    /// Some value needs a number there.
    numeric: bool,
}

/// Which fields feed which values.
#[derive(Debug)]
struct Fields {
    fields: Vec<InputField>,
    /// For each value, its field's place in `fields`; `None`: it counts every record.
    value_fields: Vec<Option<usize>>,
    /// Columns of the group that no value uses: their unusable cells are counted apart.
    group_only: Vec<Column>,
}

/// What a record holds in the fields of a [`Program`]; its memory is used again for the next record.
#[derive(Debug, Default)]
pub(crate) struct Inputs(Vec<Input>);

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
    /// Reads the fields of a record that values use; gives how many of them are unusable:
    /// what is beyond the limits anywhere; texts, booleans, arrays and objects where a number is
    /// needed.
    /// A field counts once, however many values use it.
    #[inline]
    pub(crate) fn read(&self, record: Derived<'_>, inputs: &mut Inputs) -> u64 {
        let mut bad = 0;
        inputs.0.clear();
        for field in &self.fields.fields {
            let input = match record.cell(field.column) {
                Cell::Missing | Cell::Null => Input::Null,
                Cell::Number(number) => Input::Number(number),
                Cell::Text(_) | Cell::Bool(_) | Cell::Nested => {
                    count(&mut bad, u64::from(field.numeric));
                    Input::Other
                }
                Cell::Bad => {
                    count(&mut bad, 1);
                    Input::Null
                }
            };
            inputs.0.push(input);
        }
        for &column in &self.fields.group_only {
            count(&mut bad, u64::from(record.cell(column) == Cell::Bad));
        }
        bad
    }

    /// What value `value` takes in of the record.
    #[inline]
    pub(crate) fn input(&self, value: usize, inputs: &Inputs) -> Input {
        match self.fields.value_fields[value] {
            Some(field) => inputs.0[field],
            // Anything but null: the record itself is counted.
            None => Input::Other,
        }
    }
}

impl Fields {
    fn new(spec: &PipelineSpec) -> Self {
        let mut fields: Vec<InputField> = Vec::new();
        let mut value_fields = Vec::with_capacity(spec.values.len());
        for value in &spec.values {
            let (column, numeric) = match value.function {
                Function::CountAll => {
                    value_fields.push(None);
                    continue;
                }
                Function::Count(column) => (column, false),
                Function::Sum(column)
                | Function::Avg(column)
                | Function::Min(column)
                | Function::Max(column) => (column, true),
            };
            let at = fields
                .iter()
                .position(|field| field.column == column)
                .unwrap_or_else(|| {
                    let place = fields.len();
                    fields.push(InputField {
                        column,
                        numeric: false,
                    });
                    place
                });
            fields[at].numeric |= numeric;
            value_fields.push(Some(at));
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
