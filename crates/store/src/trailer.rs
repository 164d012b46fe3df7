//! The last 64 bytes of a chunk file, from which everything else in it is found and verified.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::StoreError;

/// Bytes of the trailer.
pub(crate) const TRAILER_LEN: usize = 64;

/// The version of a file that holds one chunk.
pub(crate) const OF_ONE_CHUNK: u32 = 1;
/// The version of a file that says which chunks it holds, and the highest that this program reads.
pub(crate) const OF_CHUNKS: u32 = 2;

/// The last eight bytes of every chunk file.
const MAGIC: [u8; 8] = *b"MRDCHUNK";

/// Bytes before the trailer's checksum.
const CHECKED_LEN: usize = TRAILER_LEN - 16;

/// What the trailer says. `docs/chunk-file.md` gives the offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Bytes of the Vortex file, which starts at offset 0.
    pub vortex_len: u64,
    /// Bytes of the directory, which follows the Vortex file.
    pub directory_len: u64,
    /// Rows in the file.
    pub rows: u64,
    /// How far before the end of the file the metadata of the Vortex file begin: what must be read
    /// to open it.
    pub tail_len: u64,
    /// Bytes for each checksum.
    pub block_size: u32,
    /// [`OF_ONE_CHUNK`] or [`OF_CHUNKS`].
    pub version: u32,
    /// Checksum of the table of checksums, which follows the directory.
    pub table_checksum: u64,
}

impl Trailer {
    /// Bytes that the table of checksums covers: the Vortex file and the directory.
    pub fn body_len(&self) -> u64 {
        self.vortex_len + self.directory_len
    }

    /// Number of checksums in the table.
    pub fn blocks(&self) -> u64 {
        self.body_len().div_ceil(u64::from(self.block_size))
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> u64 {
        self.body_len() + self.blocks() * 8 + TRAILER_LEN as u64
    }

    pub fn encode(&self) -> [u8; TRAILER_LEN] {
        let mut bytes = [0; TRAILER_LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.vortex_len.to_le_bytes());
        put(&self.directory_len.to_le_bytes());
        put(&self.rows.to_le_bytes());
        put(&self.tail_len.to_le_bytes());
        put(&self.block_size.to_le_bytes());
        put(&self.version.to_le_bytes());
        put(&self.table_checksum.to_le_bytes());
        let checksum = xxh3_64(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..CHECKED_LEN + 8].copy_from_slice(&checksum.to_le_bytes());
        bytes[CHECKED_LEN + 8..].copy_from_slice(&MAGIC);
        bytes
    }

    /// The file's checksum: that of the trailer, which covers the table's, which covers each block's.
    pub fn checksum(&self) -> u64 {
        xxh3_64(&self.encode()[..CHECKED_LEN])
    }

    /// Reads a trailer and checks it against the length of its file.
    pub fn decode(
        bytes: &[u8; TRAILER_LEN],
        path: &Path,
        file_len: u64,
    ) -> Result<Self, StoreError> {
        let damaged = |what: &str| StoreError::damaged(path, what);
        if bytes[CHECKED_LEN + 8..] != MAGIC {
            return Err(damaged(
                "it does not end as a chunk file does: cut short, or another kind of file",
            ));
        }
        if u64_at(bytes, CHECKED_LEN) != xxh3_64(&bytes[..CHECKED_LEN]) {
            return Err(damaged(
                "the checksum of the trailer in its last 64 bytes is wrong",
            ));
        }
        let version = u32_at(bytes, 36);
        if version == 0 || version > OF_CHUNKS {
            return Err(StoreError::NewerFormat {
                path: path.to_owned(),
                found: version,
                supported: OF_CHUNKS,
            });
        }
        let trailer = Self {
            vortex_len: u64_at(bytes, 0),
            directory_len: u64_at(bytes, 8),
            rows: u64_at(bytes, 16),
            tail_len: u64_at(bytes, 24),
            block_size: u32_at(bytes, 32),
            version,
            table_checksum: u64_at(bytes, 40),
        };
        if trailer.block_size == 0 || !trailer.fits(file_len) {
            return Err(damaged("its length is not what its trailer says"));
        }
        Ok(trailer)
    }

    /// Whether the lengths add up to the file's, without overflow, and the tail lies within it.
    fn fits(&self, file_len: u64) -> bool {
        let body = self.vortex_len.checked_add(self.directory_len);
        body.is_some_and(|body| body < file_len)
            && self.file_len() == file_len
            && self.tail_len <= file_len
            && self.tail_len >= file_len - self.vortex_len
    }
}

fn u64_at(bytes: &[u8; TRAILER_LEN], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

fn u32_at(bytes: &[u8; TRAILER_LEN], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailer() -> Trailer {
        Trailer {
            vortex_len: 1_000_000,
            directory_len: 128,
            rows: 5000,
            tail_len: 10_000,
            block_size: 16_384,
            version: OF_ONE_CHUNK,
            table_checksum: 0x0123_4567_89ab_cdef,
        }
    }

    #[test]
    fn written_is_read() {
        let trailer = trailer();
        let read = Trailer::decode(&trailer.encode(), Path::new("f"), trailer.file_len());
        assert_eq!(read.unwrap(), trailer);
        assert_eq!(trailer.blocks(), 62);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = trailer().encode();
        for bit in 0..TRAILER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let result = Trailer::decode(&bad, Path::new("f"), trailer().file_len());
            assert!(result.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = trailer().encode();
        bytes[36] = 9;
        let checksum = xxh3_64(&bytes[..CHECKED_LEN]);
        bytes[CHECKED_LEN..CHECKED_LEN + 8].copy_from_slice(&checksum.to_le_bytes());
        let error = Trailer::decode(&bytes, Path::new("f"), trailer().file_len()).unwrap_err();
        assert!(error.to_string().contains("format version 9"), "{error}");
    }
}
