//! Expressions as SQL again, for messages.

use unisono_engine::spec::{Call, CompareOp, Expr};
use unisono_engine::timestamp;

/// The expression with `name` for its columns.
pub fn show(expr: &Expr, name: &dyn Fn(usize) -> String) -> String {
    let inner = |expr: &Expr| match expr {
        Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::Compare { .. } => {
            format!("({})", show(expr, name))
        }
        _ => show(expr, name),
    };
    let list = |parts: &[Expr], by: &str| {
        let parts: Vec<String> = parts.iter().map(inner).collect();
        parts.join(by)
    };
    match expr {
        Expr::Null => "null".to_owned(),
        Expr::Bool(value) => value.to_string(),
        Expr::Number(number) => number.to_string(),
        Expr::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Expr::Time(time) => format!("timestamp '{}'", timestamp::format(*time)),
        Expr::Column(column) => name(column.0),
        Expr::Compare { left, op, right } => {
            format!("{} {} {}", inner(left), sign(*op), inner(right))
        }
        Expr::IsNull(tested) => format!("{} is null", inner(tested)),
        Expr::Not(tested) => match &**tested {
            Expr::IsNull(tested) => format!("{} is not null", inner(tested)),
            tested => format!("not {}", inner(tested)),
        },
        Expr::And(parts) => list(parts, " and "),
        Expr::Or(parts) => list(parts, " or "),
        Expr::Call(call, arguments) => {
            let infix = match call {
                Call::Add => " + ",
                Call::Subtract => " - ",
                Call::Multiply => " * ",
                Call::Divide => " / ",
                Call::Mod => " % ",
                Call::Join => " || ",
                Call::Like => " like ",
                Call::ILike => " ilike ",
                Call::IsDistinct => " is distinct from ",
                _ => {
                    let arguments: Vec<String> =
                        arguments.iter().map(|part| show(part, name)).collect();
                    return format!("{}({})", call.name(), arguments.join(", "));
                }
            };
            format!("({})", list(arguments, infix))
        }
    }
}

fn sign(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::Ne => "<>",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}
