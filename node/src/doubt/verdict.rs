//! Whose rows are right: pure.

use std::collections::{BTreeMap, BTreeSet};

/// What follows from what all say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Most voters have what this one has.
    Right,
    /// These have what is right, and this one has not.
    Odd(BTreeSet<u16>),
    /// There is no majority, or not enough of them tell.
    Open,
}

/// What this replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// Nothing: it computes it again.
    Nothing,
    /// A digest.
    Digest(u128),
    /// Computed again it was the second one, so its own word is worth nothing; but another one's that is either, is.
    Twice(u128, u128),
}

/// Judges by the digests that other voters told, of so many voters.
pub fn judge(own: Own, told: &BTreeMap<u16, u128>, voters: usize) -> Verdict {
    let majority = voters / 2 + 1;
    let mut having: BTreeMap<u128, BTreeSet<u16>> = BTreeMap::new();
    for (&number, &digest) in told {
        having.entry(digest).or_default().insert(number);
    }
    if let Own::Digest(own) = own
        && having.get(&own).map_or(0, BTreeSet::len) + 1 >= majority
    {
        return Verdict::Right;
    }
    let most = having.iter().find(|(_, numbers)| numbers.len() >= majority);
    if let Some((_, numbers)) = most {
        return Verdict::Odd(numbers.clone());
    }
    if let Own::Twice(before, now) = own {
        let known = [before, now]
            .into_iter()
            .find_map(|digest| having.remove(&digest));
        return known.map_or(Verdict::Open, Verdict::Odd);
    }
    Verdict::Open
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(of: &[(u16, u128)]) -> BTreeMap<u16, u128> {
        of.iter().copied().collect()
    }

    fn odd(of: &[u16]) -> Verdict {
        Verdict::Odd(of.iter().copied().collect())
    }

    #[test]
    fn most_voters_are_right_not_most_of_those_who_answer() {
        let own = Own::Digest(7);
        assert_eq!(judge(own, &told(&[(2, 7), (3, 9)]), 3), Verdict::Right);
        assert_eq!(judge(own, &told(&[(2, 9), (3, 9)]), 3), odd(&[2, 3]));
        assert_eq!(judge(own, &told(&[(2, 9)]), 3), Verdict::Open);
        assert_eq!(judge(own, &told(&[(2, 8), (3, 9)]), 3), Verdict::Open);
        assert_eq!(judge(own, &told(&[(2, 9), (3, 9)]), 5), Verdict::Open);
        assert_eq!(
            judge(own, &told(&[(2, 9), (3, 9), (4, 7), (5, 9)]), 5),
            odd(&[2, 3, 5])
        );
        assert_eq!(judge(own, &told(&[]), 1), Verdict::Right);
        assert_eq!(judge(own, &told(&[(2, 9)]), 2), Verdict::Open);
    }

    #[test]
    fn who_has_nothing_is_judged_by_the_others() {
        assert_eq!(
            judge(Own::Nothing, &told(&[(2, 9), (3, 9)]), 3),
            odd(&[2, 3])
        );
        assert_eq!(judge(Own::Nothing, &told(&[(2, 9)]), 3), Verdict::Open);
    }

    #[test]
    fn who_computed_two_things_believes_one_other_that_has_either() {
        let own = Own::Twice(7, 8);
        assert_eq!(judge(own, &told(&[(2, 8)]), 2), odd(&[2]));
        assert_eq!(judge(own, &told(&[(2, 7)]), 3), odd(&[2]));
        assert_eq!(judge(own, &told(&[(2, 9)]), 2), Verdict::Open);
        assert_eq!(judge(own, &told(&[(2, 9), (3, 9)]), 3), odd(&[2, 3]));
    }
}
