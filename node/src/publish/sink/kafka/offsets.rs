//! Where rows came to lie: a topic whose offsets begin anew was deleted and made again, and the rows that were in it are
//! gone. Publishing goes on all the same, for it is not known who has read them; but it is said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::threads::lock;

/// The last offsets in each partition of the sink's topics.
#[derive(Debug, Default)]
pub(super) struct Offsets(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: BTreeMap<String, BTreeMap<i32, i64>>,
    /// Topics that were made again while this process published to them.
    made_again: BTreeSet<String>,
    /// A topic in which rows are missing that were published earlier: how many were, and how many it can hold.
    short: Option<(String, u64, u64)>,
}

impl Offsets {
    /// A record lies there.
    pub(super) fn note(&self, topic: &str, partition: i32, offset: i64) {
        let mut known = lock(&self.0);
        if !known.last.contains_key(topic) {
            known.last.insert(topic.to_owned(), BTreeMap::new());
        }
        let Some(partitions) = known.last.get_mut(topic) else {
            return;
        };
        let before = partitions.insert(partition, offset);
        if before.is_some_and(|before| offset <= before) {
            known.made_again.insert(topic.to_owned());
        }
    }

    /// So many rows were published to the topic, and so many records were appended to it.
    pub(super) fn compare(&self, topic: &str, published: u64, appended: Option<u64>) {
        if let Some(appended) = appended.filter(|&appended| appended < published) {
            lock(&self.0).short = Some((topic.to_owned(), published, appended));
        }
    }

    /// What people should know.
    pub(super) fn notice(&self) -> Option<String> {
        let known = lock(&self.0);
        let gone =
            "rows that were published before are not in it; publishing goes on with the next ones";
        if !known.made_again.is_empty() {
            let topics: Vec<&str> = known.made_again.iter().map(String::as_str).collect();
            let topics = topics.join(", ");
            return Some(format!("topic {topics} was deleted and made again: {gone}"));
        }
        let (topic, published, appended) = known.short.as_ref()?;
        Some(format!(
            "{published} rows were published, but only {appended} records were ever appended to topic {topic}: it was deleted and \
             made again, or the sink was routed to it later: {gone}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_begin_anew_are_noticed_in_whatever_partition() {
        let offsets = Offsets::default();
        for (partition, offset) in [(0, 0), (1, 0), (0, 3), (1, 9)] {
            offsets.note("rows", partition, offset);
        }
        offsets.note("letters", 0, 0);
        assert_eq!(offsets.notice(), None);
        offsets.note("rows", 1, 0);
        let notice = offsets.notice().unwrap_or_default();
        assert!(
            notice.starts_with("topic rows was deleted and made again"),
            "{notice}"
        );
    }

    #[test]
    fn fewer_records_than_published_rows_are_noticed() {
        let offsets = Offsets::default();
        offsets.compare("rows", 48, None);
        offsets.compare("rows", 48, Some(60));
        assert_eq!(offsets.notice(), None);
        offsets.compare("rows", 48, Some(0));
        let notice = offsets.notice().unwrap_or_default();
        assert!(
            notice.contains("48 rows") && notice.contains("only 0 records"),
            "{notice}"
        );
    }
}
