//! What is odd about a definition, given the records that it met: mostly a typo, or a text that is
//! compared with a number. Nothing of it is wrong, so nothing else would say it.

use unisono_engine::Observed;
use unisono_engine::spec::Expr;

use super::{FieldSet, show};

/// One sentence for each oddity; `fields` are those that were decoded.
#[must_use]
pub fn notes(observed: &Observed, fields: &FieldSet) -> Vec<String> {
    let name = |at: usize| {
        let path = fields.paths().get(at);
        path.map_or_else(String::new, ToString::to_string)
    };
    let unseen = observed.unseen.iter().map(|column| {
        let name = name(column.0);
        format!("no record so far has a field {name}")
    });
    let misfits = observed.misfits.iter().map(|(expr, number)| {
        let times = match number {
            1 => "once".to_owned(),
            number => format!("{number} times"),
        };
        let what = match expr {
            Expr::Column(_) => "is not true or false",
            Expr::Compare { .. } | Expr::Or(_) => {
                "compares values of different kinds, which is never true"
            }
            _ => "has a value that it cannot use, and gives null",
        };
        format!("{} {what}: {times}", show(expr, &name))
    });
    unseen.chain(misfits).collect()
}
