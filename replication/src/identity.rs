//! Who a node is: its number in the config, and the incarnation of its disk.

use crate::rt;

/// A Raft node id: the number in the upper 16 bits, 48 random bits below.
///
/// The random bits are drawn when the disk is first used. A node whose disk was wiped is therefore
/// somebody else: it cannot vote under the identity whose votes it has forgotten.
pub(crate) fn new_node_id(number: u16) -> u64 {
    const RANDOM_BITS: u64 = (1 << 48) - 1;
    (u64::from(number) << 48) | (rt::random() & RANDOM_BITS)
}

/// A name for a new cluster.
#[must_use]
pub fn new_cluster_id() -> u128 {
    (u128::from(rt::random()) << 64) | u128::from(rt::random())
}

/// The number of a node id.
pub(crate) fn number_of(id: u64) -> u16 {
    (id >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_disk_of_the_same_number_is_somebody_else() {
        let (first, second) = (new_node_id(65535), new_node_id(65535));
        assert_ne!(first, second);
        assert_eq!((number_of(first), number_of(second)), (65535, 65535));
        assert_eq!(number_of(new_node_id(1)), 1);
    }
}
