//! Where in a file a problem lies: the line of its key, and the name of the source, sink or pipeline that it belongs to.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::problem::ConfigProblem;

/// Lists whose tables have names, which people know better than numbers.
const NAMED: [&str; 3] = ["source", "sink", "pipeline"];

/// The lines of a file's keys and the names of its tables.
#[derive(Default)]
pub struct Places {
    /// Lines by the path of the key, as problems write it.
    lines: BTreeMap<String, usize>,
    /// `source[0]` → `orders`.
    names: BTreeMap<String, String>,
}

impl Places {
    /// Of a file's text; of one that is not TOML nothing is known.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut places = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
            places.walk("", table.get_ref(), &starts.collect::<Vec<_>>());
        }
        places
    }

    fn walk(&mut self, path: &str, table: &DeTable<'_>, starts: &[usize]) {
        for (key, value) in table {
            let path = join(path, key.get_ref());
            let line = starts.partition_point(|start| *start <= key.span().start);
            self.lines.insert(path.clone(), line);
            match value.get_ref() {
                DeValue::Table(table) => self.walk(&path, table, starts),
                DeValue::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        let line = starts.partition_point(|start| *start <= item.span().start);
                        self.item(&format!("{path}[{index}]"), line, item.get_ref(), starts);
                    }
                }
                _ => {}
            }
        }
    }

    fn item(&mut self, path: &str, line: usize, item: &DeValue<'_>, starts: &[usize]) {
        self.lines.insert(path.to_owned(), line);
        if let DeValue::Table(table) = item {
            if let Some(DeValue::String(name)) = table.get("name").map(|name| name.get_ref()) {
                self.names.insert(path.to_owned(), name.to_string());
            }
            self.walk(path, table, starts);
        }
    }

    /// Gives a problem of this file its line, and a name in place of a number.
    pub fn locate(&self, problem: &mut ConfigProblem) {
        problem.line = problem.line.or_else(|| self.line(&problem.key));
        let (head, rest) = match problem.key.split_once('.') {
            Some((head, rest)) => (head, Some(rest)),
            None => (problem.key.as_str(), None),
        };
        let list = head.split('[').next().unwrap_or(head);
        if let Some(name) = self.names.get(head).filter(|_| NAMED.contains(&list)) {
            problem.key = match rest {
                Some(rest) => format!("{list} \"{name}\": {rest}"),
                None => format!("{list} \"{name}\""),
            };
        }
    }

    /// The line of the key, or of the nearest table above it that is there.
    fn line(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(line) = self.lines.get(key) {
                return Some(*line);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }
}

/// The path of `key` in the table at `path`, as problems write it: in quotes unless it is plain.
pub fn join(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_plain = !key.is_empty() && key.split('[').next().unwrap_or(key).chars().all(plain);
    let dot = if path.is_empty() { "" } else { "." };
    if is_plain {
        format!("{path}{dot}{key}")
    } else {
        format!("{path}{dot}\"{key}\"")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = "data_dir = 1\n\n[cluster]\npeers = {\n  1 = \"a\",\n}\n[[sink]]\nname = \"out\"\n\
                        [sink.kafka]\ntopic = \"t\"\nproperties.\"a.b\" = 1\n[[sink]]\nkafka = 1\n";

    #[track_caller]
    fn check(key: &str, expected: (Option<usize>, &str)) {
        let mut problem = ConfigProblem::new("u.toml", key, "");
        Places::of(TEXT).locate(&mut problem);
        assert_eq!((problem.line, problem.key.as_str()), expected, "{key}");
    }

    #[test]
    fn a_problem_has_the_line_of_its_key_and_the_name_of_its_table() {
        check("data_dir", (Some(1), "data_dir"));
        check("cluster.peers[1]", (Some(4), "cluster.peers[1]"));
        check(
            "sink[0].kafka.topic",
            (Some(10), "sink \"out\": kafka.topic"),
        );
        check(
            "sink[0].kafka.properties.\"a.b\"",
            (Some(11), "sink \"out\": kafka.properties.\"a.b\""),
        );
        check("sink[0]", (Some(7), "sink \"out\""));
    }

    #[test]
    fn what_is_missing_has_the_line_of_the_table_that_lacks_it() {
        check("cluster.heartbeat", (Some(3), "cluster.heartbeat"));
        check("sink[1].name", (Some(12), "sink[1].name"));
        check("node", (None, "node"));
        check("", (None, ""));
    }

    #[test]
    fn a_file_that_is_not_toml_has_no_places() {
        assert!(Places::of("a = = 1").lines.is_empty());
    }
}
