//! Where the pages of an index lie.
//!
//! Level 0 are the data pages; a page of level `l + 1` holds the first keys of up to
//! [`FENCES_PER_PAGE`] pages of level `l` and is written right after the last of them. So a page's
//! place follows from its level and number alone, and writing needs no more memory than one page for
//! each level.

use super::page::FENCES_PER_PAGE;

const FAN_OUT: u64 = FENCES_PER_PAGE as u64;

/// The number of pages of each level, data pages first. The last level has one page; there is no
/// level without pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    levels: Vec<u64>,
}

impl Tree {
    /// The tree above this many data pages.
    pub fn new(data_pages: u64) -> Self {
        let mut levels = Vec::new();
        let mut pages = data_pages;
        while pages > 0 {
            levels.push(pages);
            pages = if pages == 1 {
                0
            } else {
                pages.div_ceil(FAN_OUT)
            };
        }
        Self { levels }
    }

    pub fn height(&self) -> usize {
        self.levels.len()
    }

    /// Pages of a level; 0 if there is no such level.
    pub fn pages(&self, level: usize) -> u64 {
        self.levels.get(level).copied().unwrap_or(0)
    }

    /// Pages of all levels.
    pub fn total(&self) -> u64 {
        self.levels.iter().sum()
    }

    /// The numbers of the pages of the level below that a page stands above.
    pub fn children(&self, level: usize, page: u64) -> std::ops::Range<u64> {
        let below = level.checked_sub(1).map_or(0, |below| self.pages(below));
        page * FAN_OUT..((page + 1) * FAN_OUT).min(below)
    }

    /// The place in the file, in pages, of page `page` of `level`.
    pub fn place(&self, level: usize, page: u64) -> u64 {
        // The page follows its last descendant, and that one its own, down to a data page.
        let mut last = page;
        for below in (0..level).rev() {
            last = ((last + 1) * FAN_OUT - 1).min(self.pages(below).saturating_sub(1));
        }
        // Before a data page lie the data pages before it and every fence page that was full then.
        let mut place = last + level as u64;
        let mut full = last / FAN_OUT;
        while full > 0 {
            place += full;
            full /= FAN_OUT;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of pages as a writer makes it: after each data page, every level that is full.
    fn written(data_pages: u64) -> Vec<(usize, u64)> {
        let tree = Tree::new(data_pages);
        let mut done = vec![0_u64; tree.height()];
        let mut order = Vec::new();
        for page in 0..data_pages {
            order.push((0, page));
            done[0] += 1;
            let last = page + 1 == data_pages;
            for level in 1..tree.height() {
                let waiting = done[level - 1] - done[level] * FAN_OUT;
                if waiting == FAN_OUT || (last && waiting > 0) {
                    order.push((level, done[level]));
                    done[level] += 1;
                }
            }
        }
        order
    }

    #[test]
    fn places_are_those_of_the_writer() {
        for data_pages in [
            0,
            1,
            2,
            509,
            510,
            511,
            1020,
            1021,
            510 * 510,
            510 * 510 + 1,
            300_000,
        ] {
            let tree = Tree::new(data_pages);
            let order = written(data_pages);
            assert_eq!(order.len() as u64, tree.total(), "{data_pages}");
            for (place, (level, page)) in order.into_iter().enumerate() {
                assert_eq!(
                    tree.place(level, page),
                    place as u64,
                    "{data_pages} {level} {page}"
                );
            }
        }
    }

    #[test]
    fn children_cover_the_level_below() {
        let tree = Tree::new(1021);
        assert_eq!(tree.height(), 3);
        assert_eq!(tree.children(1, 2), 1020..1021);
        assert_eq!(tree.children(2, 0), 0..3);
        assert_eq!(tree.children(0, 0), 0..0);
    }
}
