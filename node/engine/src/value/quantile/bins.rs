//! How many numbers each bin holds: few bins in a sorted list, more in pages of 64.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    reason = "places among at most 13,581 bins, and halves of counts"
)]

use super::mapping::ALL_BINS;

/// So many bins at most are kept in a list.
const MOST_LISTED: usize = 32;
const PAGE_BITS: u32 = 6;
const PAGE: usize = 1 << PAGE_BITS;
const PAGES: usize = ALL_BINS.div_ceil(PAGE);

/// Counts by bin. At most 213 pages of 256 bytes.
#[derive(Clone, Debug)]
pub(super) enum Bins {
    /// Ascending.
    Listed(Vec<(u16, u32)>),
    Paged(Box<Paged>),
}

#[derive(Clone, Debug)]
pub(super) struct Paged {
    /// For each page, its place plus one; 0: it holds nothing.
    directory: [u8; PAGES],
    counts: Vec<[u32; PAGE]>,
    /// What does not fit: of a bin, how often 2^32 more.
    overflow: Vec<(u16, u32)>,
}

impl Default for Bins {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl Bins {
    #[inline]
    pub(super) fn add(&mut self, bin: u16, times: u64) {
        match self {
            Self::Paged(paged) => paged.add(bin, times),
            Self::Listed(bins) => match bins.binary_search_by_key(&bin, |(bin, _)| *bin) {
                Ok(at) => match u64::from(bins[at].1).checked_add(times).map(u32::try_from) {
                    Some(Ok(sum)) => bins[at].1 = sum,
                    _ => self.paged().add(bin, times),
                },
                Err(at) => match u32::try_from(times) {
                    Ok(times) if bins.len() < MOST_LISTED => bins.insert(at, (bin, times)),
                    _ => self.paged().add(bin, times),
                },
            },
        }
    }

    #[cold]
    fn paged(&mut self) -> &mut Paged {
        if let Self::Listed(bins) = self {
            let mut paged = Box::new(Paged {
                directory: [0; PAGES],
                counts: Vec::new(),
                overflow: Vec::new(),
            });
            bins.iter()
                .for_each(|&(bin, times)| paged.add(bin, u64::from(times)));
            *self = Self::Paged(paged);
        }
        match self {
            Self::Paged(paged) => paged,
            Self::Listed(_) => unreachable!("it was paged just now"),
        }
    }

    /// The bins that hold something, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let (listed, paged) = match self {
            Self::Listed(bins) => (&bins[..], None),
            Self::Paged(paged) => (&[][..], Some(paged)),
        };
        let listed = listed.iter().map(|&(bin, times)| (bin, u64::from(times)));
        listed.chain(paged.into_iter().flat_map(|paged| paged.iter()))
    }

    pub(super) fn heap(&self) -> usize {
        match self {
            Self::Listed(bins) => bins.capacity() * size_of::<(u16, u32)>(),
            Self::Paged(paged) => {
                size_of::<Paged>()
                    + paged.counts.capacity() * size_of::<[u32; PAGE]>()
                    + paged.overflow.capacity() * size_of::<(u16, u32)>()
            }
        }
    }
}

impl Paged {
    #[inline]
    fn add(&mut self, bin: u16, times: u64) {
        let page = match self.directory[usize::from(bin) >> PAGE_BITS] {
            0 => self.new_page(bin),
            place => usize::from(place) - 1,
        };
        let count = &mut self.counts[page][usize::from(bin) % PAGE];
        match u64::from(*count).checked_add(times).map(u32::try_from) {
            Some(Ok(sum)) => *count = sum,
            _ => {
                let (sum, carry) = count.overflowing_add(times as u32);
                *count = sum;
                self.carry(bin, (times >> 32) as u32, carry);
            }
        }
    }

    #[cold]
    fn new_page(&mut self, bin: u16) -> usize {
        self.counts.push([0; PAGE]);
        // There are fewer than 255 pages.
        self.directory[usize::from(bin) >> PAGE_BITS] = self.counts.len() as u8;
        self.counts.len() - 1
    }

    #[cold]
    fn carry(&mut self, bin: u16, high: u32, carry: bool) {
        let high = high.saturating_add(u32::from(carry));
        match self.overflow.iter_mut().find(|(of, _)| *of == bin) {
            Some((_, all)) => *all = all.saturating_add(high),
            None => self.overflow.push((bin, high)),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let pages = self
            .directory
            .iter()
            .enumerate()
            .filter(|(_, place)| **place > 0);
        let bins = pages.flat_map(move |(page, place)| {
            let counts = self.counts[usize::from(*place) - 1].iter().enumerate();
            counts.map(move |(at, &count)| ((page * PAGE + at) as u16, count))
        });
        bins.map(|(bin, low)| {
            let high = self.overflow.iter().find(|(of, _)| *of == bin);
            let high = high.map_or(0, |(_, high)| u64::from(*high));
            (bin, high << 32 | u64::from(low))
        })
        .filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_beyond_32_bits_are_kept() {
        let most = u64::from(u32::MAX);
        for other_bins in [0, 100] {
            let mut bins = Bins::default();
            (0..other_bins).for_each(|bin| bins.add(bin, 1));
            for times in [most, 1, most, 3, 5 << 32] {
                bins.add(7000, times);
            }
            bins.add(7001, 1 << 40);
            let found: Vec<(u16, u64)> = bins.iter().filter(|(bin, _)| *bin >= 7000).collect();
            assert_eq!(found, [(7000, 2 * most + 4 + (5 << 32)), (7001, 1 << 40)]);
            assert_eq!(bins.iter().count(), usize::from(other_bins) + 2);
        }
    }

    #[test]
    fn all_bins_take_less_than_sixty_kilobytes() {
        let mut bins = Bins::default();
        (0..ALL_BINS as u16).rev().for_each(|bin| bins.add(bin, 1));
        assert_eq!(bins.iter().count(), ALL_BINS);
        assert!(bins.iter().map(|(bin, _)| bin).eq(0..ALL_BINS as u16));
        let Bins::Paged(paged) = &bins else {
            panic!("that many are not listed")
        };
        assert!(paged.counts.len() * size_of::<[u32; PAGE]>() < 60 << 10);
    }
}
