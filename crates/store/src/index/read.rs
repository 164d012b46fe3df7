//! Looking keys up in a director index.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::filter::KeyFilter;
use super::page::{
    DataView, FENCES_PER_PAGE, PAGE, PageBuffer, Trailer, blank, fences, find, is_sound,
};
use super::tree::Tree;
use super::{IndexEntry, Record, index_path};
use crate::decoded_blocks::{CacheLookup, IndexSegments, SEGMENT_BYTES};
use crate::{DecodedBlocks, StoreError};

/// How many fence pages are kept in memory: a megabyte. They lead to 130,000 data pages, some hundred
/// million keys, with one more read for a key of any larger index up to fifty thousand million.
const RESIDENT_PAGES: u64 = 256;

/// Keys of an index up to which it tells from memory those that it does not have: that takes 400 kB. A table has few larger parts.
const FILTERED_KEYS: u64 = 1 << 18;

/// Pages that are kept together.
const SEGMENT: u64 = SEGMENT_BYTES / PAGE as u64;

/// An open director index. Cheap to clone; any number of lookups may run at a time.
#[derive(Clone)]
pub struct DirectorIndex {
    inner: Arc<Inner>,
}

struct Inner {
    file: File,
    path: PathBuf,
    tree: Tree,
    entries: u64,
    /// The level whose fences are in memory, all of them: those of the pages one level below.
    resident_level: usize,
    resident: Vec<i64>,
    /// What is in memory of the pages by which single keys are found.
    kept: Option<IndexSegments>,
    /// Tells keys that are not there, once it was requested; `None` where there is no telling.
    filter: OnceLock<Option<KeyFilter>>,
}

impl std::fmt::Debug for DirectorIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectorIndex")
            .field("path", &self.inner.path)
            .field("entries", &self.inner.entries)
            .finish_non_exhaustive()
    }
}

impl DirectorIndex {
    /// Opens the index in this directory; reads its last page and at most a megabyte of fences.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`], [`StoreError::Damaged`], [`StoreError::NewerFormat`].
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_with(dir, RESIDENT_PAGES, None)
    }

    /// The same; of an index that is requested single keys again and again the pages are kept within the budget of decoded blocks.
    /// So nobody who requests one object waits for a disk, whatever else the machine wants its page cache for.
    ///
    /// # Errors
    ///
    /// Those of [`DirectorIndex::open`].
    pub fn open_keeping(dir: &Path, decoded: Arc<DecodedBlocks>) -> Result<Self, StoreError> {
        Self::open_with(dir, RESIDENT_PAGES, Some(decoded))
    }

    /// Opens the index and has in memory the fences of the lowest level that has no more than so many pages.
    pub(super) fn open_with(
        dir: &Path,
        resident_pages: u64,
        decoded: Option<Arc<DecodedBlocks>>,
    ) -> Result<Self, StoreError> {
        let path = index_path(dir);
        let file = File::open(&path).map_err(StoreError::io("open", &path))?;
        let len = file
            .metadata()
            .map_err(StoreError::io("open", &path))?
            .len();
        if len == 0 || len % PAGE as u64 != 0 {
            let what = format!("{len} bytes are not a whole number of pages: cut short?");
            return Err(StoreError::damaged(&path, what));
        }
        let last = len / PAGE as u64 - 1;
        let mut page = blank();
        file.read_exact_at(&mut page[..PAGE], last * PAGE as u64)
            .map_err(StoreError::io("read", &path))?;
        let trailer = Trailer::decode(&page, last, &path)?;
        // Checked before the tree is made of it.
        if trailer.data_pages > last || Tree::new(trailer.data_pages).total() != last {
            return Err(StoreError::damaged(
                &path,
                "its length is not what its last page says",
            ));
        }
        let mut inner = Inner {
            file,
            path,
            tree: Tree::new(trailer.data_pages),
            entries: trailer.entries,
            resident_level: 0,
            resident: Vec::new(),
            kept: decoded.map(|decoded| IndexSegments::new(decoded, len)),
            filter: OnceLock::new(),
        };
        inner.load_fences(resident_pages)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Keys in the index.
    pub fn len(&self) -> u64 {
        self.inner.entries
    }

    /// Whether the index has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest key; `None` if there is no key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if the last page does not bear out its checksum.
    pub fn largest_key(&self) -> Result<Option<i64>, StoreError> {
        match self.inner.tree.pages(0).checked_sub(1) {
            Some(last) if !self.is_empty() => Ok(self.inner.data_page(last)?.keys.last().copied()),
            _ => Ok(None),
        }
    }

    /// The index's file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The entries of these keys, in their order; None for a key that is not there. The keys may come
    /// in any order and more than once; a page is read only once for all of them. Reads on the calling
    /// thread: some microseconds for one key whose page is in the page cache.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] if a page that was read does not bear out its checksum.
    pub fn lookup(&self, keys: &[i64]) -> Result<Vec<Option<IndexEntry>>, StoreError> {
        let mut found = vec![None; keys.len()];
        if self.is_empty() {
            return Ok(found);
        }
        if let [key] = keys {
            found[0] = self.get(*key)?;
            return Ok(found);
        }
        let mut cursor = Cursor::new(&self.inner);
        if keys.is_sorted() {
            for (key, slot) in keys.iter().zip(&mut found) {
                *slot = cursor.find(*key)?.map(Record::entry);
            }
            return Ok(found);
        }
        let mut order: Vec<(i64, usize)> = keys.iter().copied().zip(0..).collect();
        order.sort_unstable();
        for (key, at) in order {
            found[at] = cursor.find(key)?.map(Record::entry);
        }
        Ok(found)
    }

    /// The entry of one key.
    ///
    /// # Errors
    ///
    /// Those of [`DirectorIndex::lookup`].
    pub fn get(&self, key: i64) -> Result<Option<IndexEntry>, StoreError> {
        if self.is_empty() {
            return Ok(None);
        }
        let number = Cursor::of_one_key(&self.inner).data_page_of(key)?;
        let record = match number {
            Some(number) => self.inner.find_in(number, key)?,
            None => None,
        };
        Ok(record.map(Record::entry))
    }

    /// Whether the key may be there, as told from memory: for who has many indexes, of which one has the key. The first time the
    /// whole index is read, unless it is large: then every key may be there.
    pub fn may_have(&self, key: i64) -> bool {
        let filter = self.inner.filter.get_or_init(|| self.make_filter());
        match filter {
            Some(filter) => filter.may_have(key),
            None => !self.is_empty(),
        }
    }

    /// A filter of all keys; `None` if they are many, or a page is damaged: who requests a key of it is told.
    fn make_filter(&self) -> Option<KeyFilter> {
        if self.len() > FILTERED_KEYS {
            return None;
        }
        let mut filter = KeyFilter::new(self.len());
        for entry in self.iter() {
            filter.insert(entry.ok()?.0);
        }
        Some(filter)
    }

    /// The number of the data page that may hold a key.
    #[cfg(test)]
    pub(super) fn data_page_of(&self, key: i64) -> u64 {
        let page = Cursor::new(&self.inner).data_page_of(key);
        page.unwrap().unwrap()
    }

    /// All keys with their entries, ascending.
    pub fn iter(&self) -> IndexEntries {
        IndexEntries {
            inner: Arc::clone(&self.inner),
            next_page: 0,
            page: None,
            next_entry: 0,
        }
    }

    /// Reads the whole index and checks every page, the order of the keys over all pages, every
    /// fence, and the number of keys.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] names the first page that is wrong.
    pub fn verify(&self) -> Result<(), StoreError> {
        let inner = &self.inner;
        let mut entries = 0;
        let mut last: Option<i64> = None;
        let mut first_keys: Vec<i64> = Vec::new();
        for number in 0..inner.tree.pages(0) {
            let page = inner.data_page(number)?;
            if last >= page.keys.first().copied() {
                return Err(inner.damaged_page(
                    0,
                    number,
                    "its keys do not follow those before it",
                ));
            }
            last = page.keys.last().copied();
            entries += page.keys.len() as u64;
            first_keys.extend(page.keys.first());
        }
        if entries != inner.entries {
            let what = format!(
                "it has {entries} keys, but its last page says {}",
                inner.entries
            );
            return Err(StoreError::damaged(&inner.path, what));
        }
        for level in 1..inner.tree.height() {
            let mut above: Vec<i64> = Vec::new();
            for (number, expected) in (0..).zip(first_keys.chunks(FENCES_PER_PAGE)) {
                if inner.fence_page(level, number)? != expected {
                    return Err(inner.damaged_page(
                        level,
                        number,
                        "its keys are not those below it",
                    ));
                }
                above.extend(expected.first());
            }
            first_keys = above;
        }
        Ok(())
    }
}

impl Inner {
    fn load_fences(&mut self, resident_pages: u64) -> Result<(), StoreError> {
        self.resident_level = (1..self.tree.height())
            .find(|level| self.tree.pages(*level) <= resident_pages)
            .unwrap_or(0);
        if self.resident_level > 0 {
            for number in 0..self.tree.pages(self.resident_level) {
                let mut page = self.fence_page(self.resident_level, number)?;
                self.resident.append(&mut page);
            }
        }
        Ok(())
    }

    fn damaged_page(&self, level: usize, number: u64, what: &str) -> StoreError {
        let offset = self.tree.place(level, number) * PAGE as u64;
        StoreError::damaged(
            &self.path,
            format!("page of {PAGE} bytes at offset {offset}: {what}"),
        )
    }

    fn page(&self, level: usize, number: u64) -> Result<Box<PageBuffer>, StoreError> {
        let place = self.tree.place(level, number);
        let mut page = Box::new(blank());
        self.file
            .read_exact_at(&mut page[..PAGE], place * PAGE as u64)
            .map_err(StoreError::io("read", &self.path))?;
        if is_sound(&page, place) {
            Ok(page)
        } else {
            Err(self.damaged_page(level, number, "its checksum is wrong"))
        }
    }

    fn data_page(&self, number: u64) -> Result<DataView, StoreError> {
        DataView::new(self.page(0, number)?).map_err(|what| self.damaged_page(0, number, &what))
    }

    /// The first keys of the pages below a fence page.
    fn fence_page(&self, level: usize, number: u64) -> Result<Vec<i64>, StoreError> {
        self.fences_of(level, number, &*self.page(level, number)?)
    }

    fn fences_of(
        &self,
        level: usize,
        number: u64,
        page: &PageBuffer,
    ) -> Result<Vec<i64>, StoreError> {
        let keys = fences(page);
        let children = self.tree.children(level, number);
        if keys.len() as u64 == children.end - children.start {
            Ok(keys)
        } else {
            Err(self.damaged_page(level, number, "it has too many or too few keys"))
        }
    }

    /// The record of a key in the only data page that may hold it.
    fn find_in(&self, number: u64, key: i64) -> Result<Option<Record>, StoreError> {
        let page = self.page_at_hand(0, number)?;
        find(&page, key).map_err(|what| self.damaged_page(0, number, &what))
    }

    /// A page, from memory where its segment is kept there.
    fn page_at_hand(&self, level: usize, number: u64) -> Result<PageBuffer, StoreError> {
        let place = self.tree.place(level, number);
        match self.kept_page(place) {
            Some(page) => Ok(page),
            None => Ok(*self.page(level, number)?),
        }
    }

    /// A page out of memory, into which its segment is read if that is worth it.
    fn kept_page(&self, place: u64) -> Option<PageBuffer> {
        let kept = self.kept.as_ref()?;
        let (segment, at) = (place / SEGMENT, (place % SEGMENT) as usize * PAGE);
        let bytes = match kept.look(u32::try_from(segment).ok()?) {
            CacheLookup::Rows(bytes) => bytes,
            CacheLookup::ToKeep(segment) => match self.read_segment(segment) {
                Some(bytes) => kept.keep(segment, bytes),
                None => {
                    kept.put_off(segment);
                    return None;
                }
            },
            CacheLookup::ToShare(_) | CacheLookup::No => return None,
        };
        let mut page = blank();
        page[..PAGE].copy_from_slice(bytes.values().get(at..at + PAGE)?);
        Some(page)
    }

    /// The pages of a segment; `None` if one of them cannot be read or is not sound, which whoever requests it alone is told.
    fn read_segment(&self, segment: u32) -> Option<Vec<u8>> {
        let first = u64::from(segment) * SEGMENT;
        // The last page, which is none of the tree, may go with them: its checksum is like theirs.
        let pages = (self.tree.total() + 1).saturating_sub(first).min(SEGMENT);
        let mut bytes = vec![0; pages as usize * PAGE];
        self.file
            .read_exact_at(&mut bytes, first * PAGE as u64)
            .ok()?;
        let mut page = blank();
        for (place, read) in (first..).zip(bytes.chunks_exact(PAGE)) {
            page[..PAGE].copy_from_slice(read);
            if !is_sound(&page, place) {
                return None;
            }
        }
        Some(bytes)
    }
}

/// Finds keys, keeping the pages it came by last.
struct Cursor<'a> {
    inner: &'a Inner,
    /// The last fence page of each level below the resident one, by number.
    fences: Vec<Option<(u64, Vec<i64>)>>,
    data: Option<(u64, DataView)>,
    /// Whether fence pages are taken from memory where they are there.
    at_hand: bool,
}

impl<'a> Cursor<'a> {
    fn new(inner: &'a Inner) -> Self {
        let levels = inner.resident_level;
        Self {
            inner,
            fences: (0..levels).map(|_| None).collect(),
            data: None,
            at_hand: false,
        }
    }

    /// For one key, of many that are requested one by one.
    fn of_one_key(inner: &'a Inner) -> Self {
        Self {
            at_hand: true,
            ..Self::new(inner)
        }
    }

    fn find(&mut self, key: i64) -> Result<Option<Record>, StoreError> {
        let Some(number) = self.data_page_of(key)? else {
            return Ok(None);
        };
        if self
            .data
            .as_ref()
            .is_none_or(|(current, _)| *current != number)
        {
            self.data = Some((number, self.inner.data_page(number)?));
        }
        Ok(self.data.as_ref().and_then(|(_, page)| page.find(key)))
    }

    /// The number of the only data page that may hold a key; None if it is below all of them.
    fn data_page_of(&mut self, key: i64) -> Result<Option<u64>, StoreError> {
        let top = self.inner.resident_level;
        if top == 0 {
            return Ok(Some(0));
        }
        let Some(mut number) = last_not_above(&self.inner.resident, key) else {
            return Ok(None);
        };
        for level in (1..top).rev() {
            let cached = &mut self.fences[level];
            if cached
                .as_ref()
                .is_none_or(|(current, _)| *current != number)
            {
                let keys = match self.at_hand {
                    true => {
                        let page = self.inner.page_at_hand(level, number)?;
                        self.inner.fences_of(level, number, &page)?
                    }
                    false => self.inner.fence_page(level, number)?,
                };
                *cached = Some((number, keys));
            }
            let child = cached
                .as_ref()
                .and_then(|(_, keys)| last_not_above(keys, key));
            let Some(child) = child else {
                return Ok(None);
            };
            number = number * FENCES_PER_PAGE as u64 + child;
        }
        Ok(Some(number))
    }
}

/// The position of the last of these ascending first keys that is not above `key`.
fn last_not_above(first_keys: &[i64], key: i64) -> Option<u64> {
    first_keys
        .partition_point(|first| *first <= key)
        .checked_sub(1)
        .map(|at| at as u64)
}

/// The entries of an index, ascending by key. An error is its last item.
pub struct IndexEntries {
    inner: Arc<Inner>,
    next_page: u64,
    page: Option<DataView>,
    next_entry: usize,
}

impl Iterator for IndexEntries {
    type Item = Result<(i64, IndexEntry), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(page) = &self.page
                && self.next_entry < page.keys.len()
            {
                let record = page.record(self.next_entry);
                self.next_entry += 1;
                return Some(Ok((record.key, record.entry())));
            }
            if self.next_page >= self.inner.tree.pages(0) {
                return None;
            }
            match self.inner.data_page(self.next_page) {
                Ok(page) => {
                    self.page = Some(page);
                    self.next_page += 1;
                    self.next_entry = 0;
                }
                Err(error) => {
                    self.next_page = u64::MAX;
                    self.page = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
