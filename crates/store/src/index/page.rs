//! Pages of the director index: data, fences and the trailer, each with its own checksum.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Record;
use crate::StoreError;

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// Where a page's checksum is: its last eight bytes.
const CHECKSUM_AT: usize = PAGE - 8;

/// First keys in a fence page.
pub(super) const FENCES_PER_PAGE: usize = (CHECKSUM_AT - 8) / 8;

/// Bytes of a data page before its packed entries.
const DATA_HEADER: usize = 32;

/// Bits for packed entries in a data page.
const DATA_BITS: usize = (CHECKSUM_AT - DATA_HEADER) * 8;

/// The version of the index that this program writes, and the highest that it reads.
const FORMAT_VERSION: u32 = 1;

/// The first eight bytes of the last page.
const MAGIC: [u8; 8] = *b"MRDINDEX";

/// A page with some room behind it, so that any bit can be read as part of 16 bytes.
pub(super) type PageBuffer = [u8; PAGE + 16];

/// An empty page.
pub(super) fn blank() -> PageBuffer {
    [0; PAGE + 16]
}

/// Writes the checksum. It depends on the page's place, so a page that strays is found out.
pub(super) fn seal(page: &mut PageBuffer, place: u64) {
    let checksum = xxh3_64_with_seed(&page[..CHECKSUM_AT], place);
    page[CHECKSUM_AT..PAGE].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether the checksum is right.
pub(super) fn is_sound(page: &PageBuffer, place: u64) -> bool {
    u64::from_le_bytes(at(page, CHECKSUM_AT)) == xxh3_64_with_seed(&page[..CHECKSUM_AT], place)
}

fn at<const N: usize>(page: &PageBuffer, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&page[offset..offset + N]);
    bytes
}

fn put<const N: usize>(page: &mut PageBuffer, offset: usize, bytes: [u8; N]) {
    page[offset..offset + N].copy_from_slice(&bytes);
}

/// Bits that hold all numbers from 0 to `largest`.
fn width(largest: u64) -> usize {
    (u64::BITS - largest.leading_zeros()) as usize
}

/// The extent of one of the fields of a page's entries, which is stored as the difference from the
/// least.
#[derive(Debug, Clone, Copy)]
struct Extent<T> {
    least: T,
    greatest: T,
}

impl<T: Copy + Ord> Extent<T> {
    fn of(value: T) -> Self {
        Self {
            least: value,
            greatest: value,
        }
    }

    fn with(self, value: T) -> Self {
        Self {
            least: self.least.min(value),
            greatest: self.greatest.max(value),
        }
    }
}

/// The extents of all fields of a page's entries.
#[derive(Debug, Clone, Copy)]
struct Extents {
    /// Differences between neighbouring keys; none before there are two.
    step: Option<Extent<u64>>,
    chunk: Extent<i32>,
    sub_chunk: Extent<u32>,
    orphan: Extent<bool>,
}

impl Extents {
    fn of(record: Record) -> Self {
        Self {
            step: None,
            chunk: Extent::of(record.chunk),
            sub_chunk: Extent::of(record.sub_chunk()),
            orphan: Extent::of(record.orphan()),
        }
    }

    fn with(self, step: u64, record: Record) -> Self {
        Self {
            step: Some(
                self.step
                    .map_or(Extent::of(step), |extent| extent.with(step)),
            ),
            chunk: self.chunk.with(record.chunk),
            sub_chunk: self.sub_chunk.with(record.sub_chunk()),
            orphan: self.orphan.with(record.orphan()),
        }
    }

    fn least_step(&self) -> u64 {
        self.step.map_or(0, |step| step.least)
    }

    fn widths(&self) -> Widths {
        let chunks = i64::from(self.chunk.greatest) - i64::from(self.chunk.least);
        Widths {
            step: self
                .step
                .map_or(0, |step| width(step.greatest - step.least)),
            chunk: width(chunks.unsigned_abs()),
            sub_chunk: width(u64::from(self.sub_chunk.greatest - self.sub_chunk.least)),
            orphan: usize::from(self.orphan.least != self.orphan.greatest),
        }
    }
}

/// How many bits each field of an entry takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Widths {
    step: usize,
    chunk: usize,
    sub_chunk: usize,
    orphan: usize,
}

impl Widths {
    fn entry(self) -> usize {
        self.step + self.chunk + self.sub_chunk + self.orphan
    }
}

/// The data page under construction: takes records in ascending order of their keys while they fit.
#[derive(Debug, Default)]
pub(super) struct DataPage {
    records: Vec<Record>,
    extents: Option<Extents>,
}

impl DataPage {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn first_key(&self) -> Option<i64> {
        self.records.first().map(|record| record.key)
    }

    /// Adds a record if there is room for it.
    pub fn push(&mut self, record: Record) -> bool {
        let extents = match (self.extents, self.records.last()) {
            (Some(extents), Some(last)) => extents.with(distance(last.key, record.key), record),
            _ => Extents::of(record),
        };
        let count = self.records.len() + 1;
        if count > usize::from(u16::MAX) || count * extents.widths().entry() > DATA_BITS {
            return false;
        }
        self.extents = Some(extents);
        self.records.push(record);
        true
    }

    /// The page as it is stored, without its checksum; the next one starts empty.
    pub fn take(&mut self) -> PageBuffer {
        let mut page = blank();
        let Some((extents, first)) = self.extents.take().zip(self.records.first()) else {
            return page;
        };
        let widths = extents.widths();
        let count = u16::try_from(self.records.len()).unwrap_or(u16::MAX);
        put(&mut page, 0, count.to_le_bytes());
        for (offset, bits) in
            (2..).zip([widths.step, widths.chunk, widths.sub_chunk, widths.orphan])
        {
            page[offset] = u8::try_from(bits).unwrap_or(u8::MAX);
        }
        page[6] = u8::from(extents.orphan.least);
        put(&mut page, 8, first.key.to_le_bytes());
        put(&mut page, 16, extents.least_step().to_le_bytes());
        put(&mut page, 24, extents.chunk.least.to_le_bytes());
        put(&mut page, 28, extents.sub_chunk.least.to_le_bytes());
        let mut bits = BitWriter {
            page: &mut page,
            at: DATA_HEADER * 8,
        };
        let mut previous = None;
        for record in self.records.drain(..) {
            let step = previous.map_or(0, |key| distance(key, record.key) - extents.least_step());
            previous = Some(record.key);
            let chunk = i64::from(record.chunk) - i64::from(extents.chunk.least);
            bits.put(step, widths.step);
            bits.put(chunk.unsigned_abs(), widths.chunk);
            bits.put(
                u64::from(record.sub_chunk() - extents.sub_chunk.least),
                widths.sub_chunk,
            );
            bits.put(
                u64::from(record.orphan() != extents.orphan.least),
                widths.orphan,
            );
        }
        page
    }
}

/// How far apart two keys are; right even where the difference does not fit into an `i64`.
fn distance(from: i64, to: i64) -> u64 {
    to.wrapping_sub(from).cast_unsigned()
}

struct BitWriter<'a> {
    page: &'a mut PageBuffer,
    /// In bits.
    at: usize,
}

impl BitWriter<'_> {
    fn put(&mut self, value: u64, bits: usize) {
        if bits == 0 {
            return;
        }
        let (byte, shift) = (self.at / 8, self.at % 8);
        let word = u128::from_le_bytes(at(self.page, byte)) | u128::from(value) << shift;
        put(self.page, byte, word.to_le_bytes());
        self.at += bits;
    }
}

/// What the head of a data page says, and with it the entries behind it.
#[derive(Debug, Clone, Copy)]
struct Head {
    count: usize,
    widths: Widths,
    first_key: i64,
    least_step: u64,
}

impl Head {
    /// What is wrong with it, if it is not that of a data page.
    fn read(page: &PageBuffer) -> Result<Self, String> {
        let count = usize::from(u16::from_le_bytes(at(page, 0)));
        let widths = Widths {
            step: usize::from(page[2]),
            chunk: usize::from(page[3]),
            sub_chunk: usize::from(page[4]),
            orphan: usize::from(page[5]),
        };
        let too_wide = widths.step > 64 || widths.chunk > 32 || widths.sub_chunk > 31;
        if too_wide || widths.orphan > 1 || count == 0 || count * widths.entry() > DATA_BITS {
            return Err(format!("{count} entries of widths {widths:?}"));
        }
        Ok(Self {
            count,
            widths,
            first_key: i64::from_le_bytes(at(page, 8)),
            least_step: u64::from_le_bytes(at(page, 16)),
        })
    }

    /// The keys, unpacked one after another.
    fn keys(self, page: &PageBuffer) -> impl Iterator<Item = i64> {
        let (entry_bits, step_bits) = (self.widths.entry(), self.widths.step);
        let mut key = self.first_key;
        let rest = (1..self.count).map(move |entry| {
            let packed = bits(page, DATA_HEADER * 8 + entry * entry_bits, step_bits);
            key = key.wrapping_add_unsigned(self.least_step.wrapping_add(packed));
            key
        });
        std::iter::once(self.first_key).chain(rest)
    }

    /// The record at a position, whose key is known.
    fn record(self, page: &PageBuffer, entry: usize, key: i64) -> Record {
        let widths = self.widths;
        let mut from = DATA_HEADER * 8 + entry * widths.entry() + widths.step;
        let mut take = |width: usize| {
            let value = bits(page, from, width);
            from += width;
            value
        };
        let chunk = take(widths.chunk);
        let sub_chunk = take(widths.sub_chunk);
        let orphan = take(widths.orphan);
        let chunk_base = i64::from(i32::from_le_bytes(at(page, 24)));
        let sub_base = u64::from(u32::from_le_bytes(at(page, 28)));
        // Sums that do not fit come only from a page whose checksum someone has forged.
        let chunk = i32::try_from(chunk_base.wrapping_add_unsigned(chunk)).unwrap_or(i32::MAX);
        let sub_chunk = u32::try_from(sub_base + sub_chunk).unwrap_or(u32::MAX) & (u32::MAX >> 1);
        let orphan = orphan != u64::from(page[6] & 1);
        Record {
            key,
            chunk,
            place: sub_chunk << 1 | u32::from(orphan),
        }
    }
}

/// The record of a key in a data page, or what is wrong with the page: for one key, unpacking those before it is enough.
pub(super) fn find(page: &PageBuffer, wanted: i64) -> Result<Option<Record>, String> {
    let head = Head::read(page)?;
    let mut last = None;
    for (entry, key) in head.keys(page).enumerate() {
        ascends(last, key)?;
        if key >= wanted {
            return Ok((key == wanted).then(|| head.record(page, entry, key)));
        }
        last = Some(key);
    }
    Ok(None)
}

fn ascends(last: Option<i64>, next: i64) -> Result<(), String> {
    match last {
        Some(key) if next <= key => Err(format!("key {next} after {key}")),
        _ => Ok(()),
    }
}

/// A data page that was read: its keys unpacked, the rest unpacked when requested.
pub(super) struct DataView {
    pub keys: Vec<i64>,
    page: Box<PageBuffer>,
    head: Head,
}

impl DataView {
    /// The page if it is a data page whose keys ascend, or what is wrong with it.
    pub fn new(page: Box<PageBuffer>) -> Result<Self, String> {
        let head = Head::read(&page)?;
        let mut keys: Vec<i64> = Vec::with_capacity(head.count);
        for next in head.keys(&page) {
            ascends(keys.last().copied(), next)?;
            keys.push(next);
        }
        Ok(Self { keys, page, head })
    }

    /// The record at a position below `keys.len()`.
    pub fn record(&self, entry: usize) -> Record {
        self.head.record(&self.page, entry, self.keys[entry])
    }

    /// The record of a key, if it is here.
    pub fn find(&self, key: i64) -> Option<Record> {
        let entry = self.keys.binary_search(&key).ok()?;
        Some(self.record(entry))
    }
}

fn bits(page: &PageBuffer, from: usize, width: usize) -> u64 {
    if width == 0 {
        return 0;
    }
    let word = u128::from_le_bytes(at(page, from / 8)) >> (from % 8);
    // At most 64 bits are requested: the cast drops only what the mask would.
    #[expect(clippy::cast_possible_truncation)]
    let word = word as u64;
    word & (u64::MAX >> (64 - width))
}

/// A page of first keys, without its checksum. There are at most [`FENCES_PER_PAGE`].
pub(super) fn fence_page(keys: &[i64]) -> PageBuffer {
    let mut page = blank();
    put(
        &mut page,
        0,
        u16::try_from(keys.len()).unwrap_or(u16::MAX).to_le_bytes(),
    );
    for (place, key) in page[8..CHECKSUM_AT]
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(keys)
    {
        *place = key.to_le_bytes();
    }
    page
}

/// The first keys of a fence page.
pub(super) fn fences(page: &PageBuffer) -> Vec<i64> {
    let count = usize::from(u16::from_le_bytes(at(page, 0)));
    let keys = page[8..CHECKSUM_AT].as_chunks::<8>().0;
    keys.iter()
        .take(count)
        .map(|key| i64::from_le_bytes(*key))
        .collect()
}

/// What the last page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trailer {
    pub entries: u64,
    pub data_pages: u64,
}

impl Trailer {
    pub fn encode(&self) -> PageBuffer {
        let mut page = blank();
        put(&mut page, 0, MAGIC);
        put(&mut page, 8, FORMAT_VERSION.to_le_bytes());
        put(&mut page, 12, (PAGE as u32).to_le_bytes());
        put(&mut page, 16, self.entries.to_le_bytes());
        put(&mut page, 24, self.data_pages.to_le_bytes());
        page
    }

    /// The trailer from the last page, at this place.
    pub fn decode(page: &PageBuffer, place: u64, path: &Path) -> Result<Self, StoreError> {
        if page[..8] != MAGIC {
            let what =
                "it does not end as a director index does: cut short, or another kind of file";
            return Err(StoreError::damaged(path, what));
        }
        if !is_sound(page, place) {
            return Err(StoreError::damaged(
                path,
                "the checksum of its last page is wrong",
            ));
        }
        let version = u32::from_le_bytes(at(page, 8));
        if version != FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                path: path.to_owned(),
                found: version,
                supported: FORMAT_VERSION,
            });
        }
        Ok(Self {
            entries: u64::from_le_bytes(at(page, 16)),
            data_pages: u64::from_le_bytes(at(page, 24)),
        })
    }
}
