//! Which records are copies of others.

use unisono_engine::spec::{DedupSpec, LateSpec, WindowSpec};

use crate::config::section::Section;
use crate::definition::{Format, Names, dedup_clash, parse_group};

/// Longer than any window: what was counted is remembered so long.
const MOST_WITHIN_MS: i64 = 366 * 86_400_000;

/// Reports what copies cannot be told of.
pub(super) fn check_dedup(
    section: &mut Section<'_>,
    window: Option<&WindowSpec>,
    late: Option<LateSpec>,
    format: Option<&Format>,
) {
    let (Some(window), Some(late), Some(format)) = (window, late, format) else {
        return;
    };
    if let Some(message) = dedup_clash(window, late, format) {
        section.problem("dedup", message);
    }
}

pub(super) fn read_dedup(section: &mut Section<'_>, names: &mut Names) -> Option<DedupSpec> {
    let table = section.table("dedup")?;
    let mut dedup = section.section("dedup", table);
    dedup.require("key", "key = \"event_id\"");
    dedup.require("within", "within = \"10m\"");
    let within_ms = dedup.positive_ms("within");
    if within_ms.is_some_and(|within| !(1..=MOST_WITHIN_MS).contains(&within)) {
        dedup.problem("within", "must be 1ms to 366d");
    }
    let mut key = Vec::new();
    let texts = dedup.one_or_more("key");
    if texts.as_ref().is_some_and(Vec::is_empty) {
        dedup.problem("key", "is empty; name at least one field");
    }
    for text in texts.unwrap_or_default() {
        match parse_group(&text, names) {
            Ok((_, column)) => key.push(column),
            Err(message) => dedup.problem("key", format!("\"{text}\" {message}")),
        }
    }
    dedup.finish();
    Some(DedupSpec {
        key,
        within_ms: within_ms?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::definition::PipelineDefinition;

    fn parse(rest: &str) -> Result<PipelineDefinition, String> {
        let text = format!(
            "name='p'\nsources=['s']\ntime={{field='t'}}\nvalues={{n='count()'}}\ngroup_by=['g']\n{rest}"
        );
        PipelineDefinition::parse("p.toml", &text).map_err(|errors| errors.to_string())
    }

    #[track_caller]
    fn refused(rest: &str, message: &str) {
        let errors = parse(rest).unwrap_err();
        assert!(errors.contains(message), "{errors}");
    }

    #[test]
    fn what_tells_copies_stands_in_the_agreed_text() {
        let text = "window={size='1m'}\ndedup={key=['id', 'lower(kind)'], within='10m'}";
        let definition = parse(text).unwrap();
        let dedup = definition.spec.dedup.clone().unwrap();
        assert_eq!((dedup.key.len(), dedup.within_ms), (2, 600_000));
        let again = PipelineDefinition::from_canonical(&definition.canonical, "builtin").unwrap();
        assert_eq!(again.spec.dedup, Some(dedup));
    }

    #[test]
    fn what_copies_cannot_be_told_of_is_refused() {
        refused(
            "window={size='1m'}\ndedup={within='1m'}",
            "dedup.key: is missing",
        );
        refused(
            "window={size='1m'}\ndedup={key='id'}",
            "dedup.within: is missing",
        );
        refused(
            "window={size='1m'}\ndedup={key=[], within='1m'}",
            "dedup.key: is empty",
        );
        refused(
            "window={size='1m'}\ndedup={key='id', within='0s'}",
            "dedup.within: must be",
        );
        refused(
            "window={session='1m'}\ndedup={key='id', within='1m'}",
            "dedup: does not go with sessions",
        );
        refused(
            "window={size='1m'}\nlate={policy='revise', keep='1h'}\ndedup={key='id', within='1m'}",
            "dedup: does not go with late.policy",
        );
        refused(
            "window={size='1m'}\nformat={kind='json', array=true}\ndedup={key='id', within='1m'}",
            "dedup: does not go with arrays",
        );
    }
}
