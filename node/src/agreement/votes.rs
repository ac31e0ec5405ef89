//! What the voters' files have, as far as they were heard.

use std::collections::BTreeMap;

use super::{FileDefinition, Kind};

/// The definitions in the files of the voters that were heard lately.
pub struct Votes {
    voters: usize,
    files: BTreeMap<u16, Vec<FileDefinition>>,
}

impl Votes {
    /// Of the agreed voters; what others say does not count.
    #[must_use]
    pub fn new(
        voters: &[u16],
        heard: impl IntoIterator<Item = (u16, Vec<FileDefinition>)>,
    ) -> Self {
        let files = heard.into_iter();
        Self {
            voters: voters.len(),
            files: files
                .filter(|(number, _)| voters.contains(number))
                .collect(),
        }
    }

    /// The definition that more than half of the voters have in their files.
    #[must_use]
    pub fn majority(&self, kind: Kind, name: &str) -> Option<u128> {
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        for found in self.all().filter(|it| it.kind == kind && it.name == name) {
            *counts.entry(found.hash).or_default() += 1;
        }
        let most = counts
            .into_iter()
            .find(|(_, count)| count * 2 > self.voters);
        most.map(|(hash, _)| hash)
    }

    /// The names of this kind that a majority has with the same definition, and its hash.
    #[must_use]
    pub fn agreed_on(&self, kind: Kind) -> BTreeMap<String, u128> {
        let names = self.all().filter(|it| it.kind == kind);
        names
            .filter_map(|it| Some((it.name.clone(), self.majority(kind, &it.name)?)))
            .collect()
    }

    /// Voters whose file has exactly this definition.
    #[must_use]
    pub fn holders(&self, kind: Kind, name: &str, hash: u128) -> Vec<u16> {
        let has = |file: &[FileDefinition]| {
            let mut found = file.iter();
            found.any(|it| it.kind == kind && it.name == name && it.hash == hash)
        };
        let holders = self.files.iter().filter(|(_, file)| has(file));
        holders.map(|(&number, _)| number).collect()
    }

    /// Whether no voter's file names it. Silence is no evidence: all must have been heard.
    #[must_use]
    pub fn none_names(&self, kind: Kind, name: &str) -> bool {
        self.files.len() == self.voters && !self.all().any(|it| it.kind == kind && it.name == name)
    }

    fn all(&self) -> impl Iterator<Item = &FileDefinition> {
        self.files.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(definitions: &[(&str, u128)]) -> Vec<FileDefinition> {
        let define = |&(name, hash): &(&str, u128)| FileDefinition {
            kind: Kind::Pipeline,
            name: name.to_owned(),
            hash,
        };
        definitions.iter().map(define).collect()
    }

    #[test]
    fn a_majority_is_of_all_voters_heard_or_not() {
        let votes = |heard: &[(u16, u128)]| {
            let heard = heard.iter().map(|&(n, hash)| (n, file(&[("p", hash)])));
            Votes::new(&[1, 2, 3], heard).majority(Kind::Pipeline, "p")
        };
        assert_eq!(votes(&[(1, 7)]), None, "one of three");
        assert_eq!(votes(&[(1, 7), (2, 8)]), None);
        assert_eq!(votes(&[(1, 7), (3, 7)]), Some(7));
        assert_eq!(votes(&[(1, 8), (2, 7), (3, 7)]), Some(7));
        assert_eq!(
            votes(&[(1, 7), (4, 7), (5, 7)]),
            None,
            "4 and 5 do not vote"
        );
    }

    #[test]
    fn that_nobody_names_it_takes_everybodys_word() {
        let votes = |heard: &[u16], name: &str| {
            let heard = heard.iter().map(|&n| (n, file(&[("p", 7)])));
            Votes::new(&[1, 2, 3], heard).none_names(Kind::Pipeline, name)
        };
        assert!(!votes(&[1, 2], "q"), "3 was not heard");
        assert!(votes(&[1, 2, 3], "q"));
        assert!(!votes(&[1, 2, 3], "p"));
    }

    #[test]
    fn another_kind_of_the_same_name_is_something_else() {
        let votes = Votes::new(&[1], [(1, file(&[("p", 7)]))]);
        assert_eq!(votes.majority(Kind::Sink, "p"), None);
        assert_eq!(votes.holders(Kind::Pipeline, "p", 7), [1]);
        assert!(votes.holders(Kind::Pipeline, "p", 8).is_empty());
    }
}
