//! The manifest of a part: what it takes to read a load's files without a catalog.
//!
//! `docs/chunk-file.md` describes the file. Its form is that of the types here and of [`TableSpec`]: a field that is added to
//! these has a default, so that older manifests stay readable, and whatever changes the meaning of one is a new version.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use catalog::{Chunk, LoadId, OverlapFile, TableSpec};
use serde::{Deserialize, Serialize};
use sky::ChunkId;
use xxhash_rust::xxh3::xxh3_64;

use crate::durable::TemporaryFile;
use crate::load_dir::{chunk_file_name, overlap_file_name};
use crate::{ChunkFile, StoreError};

/// The name of a manifest in the directory of its load.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The version that this program writes, and the highest that it reads.
const FORMAT_VERSION: u32 = 1;

/// What a manifest begins with: then the 16 digits of the checksum, then [`AFTER_CHECKSUM`], then what the checksum is of.
const BEFORE_CHECKSUM: &[u8] = b"{\"checksum\":\"";
const AFTER_CHECKSUM: &[u8] = b"\",\"manifest\":";

/// What one load of a table has written: its files, and what they hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartManifest {
    /// The version of the manifest's form.
    pub format: u32,
    /// The part: the number of the load that made it.
    pub part: LoadId,
    /// The table: its database, name, kind, columns, key and directors.
    pub table: TableSpec,
    /// How the sky is cut in its database.
    pub partitioning: PartPartitioning,
    /// Rows as a query counts them: a pair of a match table that is stored twice counts once.
    pub rows: u64,
    /// Its chunks, ascending.
    pub chunks: Vec<PartChunk>,
    /// Of a match table: pairs whose left key the left table lacked when they were loaded, and pairs whose right key the right one lacked.
    /// None of other tables, and of a part that an older version has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_ends: Option<[u64; 2]>,
}

/// How the sky is cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PartPartitioning {
    /// Stripes of equal height.
    pub stripes: u32,
    /// Sub-stripes of each stripe.
    pub sub_stripes: u32,
    /// The overlap radius in degrees.
    #[serde(with = "exact_double")]
    pub overlap_deg: f64,
}

/// The rows of one chunk, and the file that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PartChunk {
    /// Which chunk; [`catalog::REPLICATED_CHUNK`] for a replicated table.
    #[serde(with = "chunk_number")]
    pub chunk: ChunkId,
    /// The chunk after which its file is named.
    #[serde(with = "chunk_number")]
    pub file: ChunkId,
    /// Its rows.
    pub rows: u64,
    /// Rows of a director that are kept here though their positions lie elsewhere.
    #[serde(default, skip_serializing_if = "is_none_stray")]
    pub strays: u64,
    /// Its bytes in the file.
    pub bytes: u64,
    /// The checksum of the file.
    #[serde(with = "checksum_digits")]
    pub checksum: u64,
    /// `[ra_min, dec_min, ra_max, dec_max]` in degrees of the rows' own positions; `ra_min > ra_max` goes through 0.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        with = "exact_bounds"
    )]
    pub bounds: Option<[f64; 4]>,
    /// The rows of other chunks near this one, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<PartOverlap>,
}

/// The overlap of a chunk, in the file of overlap that is named like its own file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOverlap {
    /// Its rows.
    pub rows: u64,
    /// Its bytes in the file.
    pub bytes: u64,
    /// The checksum of the file.
    #[serde(with = "checksum_digits")]
    pub checksum: u64,
}

fn is_none_stray(strays: &u64) -> bool {
    *strays == 0
}

impl PartManifest {
    /// The manifest of a load that wrote these chunks.
    pub fn new(
        part: LoadId,
        table: TableSpec,
        partitioning: PartPartitioning,
        rows: u64,
        chunks: &[Chunk],
    ) -> Self {
        let mut chunks: Vec<PartChunk> = chunks.iter().map(PartChunk::from).collect();
        chunks.sort_by_key(|chunk| chunk.chunk);
        Self {
            format: FORMAT_VERSION,
            part,
            table,
            partitioning,
            rows,
            chunks,
            unknown_ends: None,
        }
    }

    /// The same with the numbers of pairs whose keys are unknown.
    pub fn with_unknown_ends(self, unknown_ends: Option<[u64; 2]>) -> Self {
        Self {
            unknown_ends,
            ..self
        }
    }

    /// A chunk; `None` if the part has no rows there.
    pub fn chunk(&self, chunk: ChunkId) -> Option<&PartChunk> {
        let at = self.chunks.binary_search_by_key(&chunk, |it| it.chunk);
        at.ok().and_then(|at| self.chunks.get(at))
    }

    /// Writes it into the directory of its load, where it appears complete or not at all.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        let (temporary, file) = self.write_temporary(dir)?;
        temporary.publish(&file)
    }

    /// The same, but for [`crate::LoadDir::sync`], which is for the caller to call.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn write_unsynced(&self, dir: &Path) -> Result<(), StoreError> {
        let (temporary, _) = self.write_temporary(dir)?;
        temporary.publish_unsynced()
    }

    fn write_temporary(&self, dir: &Path) -> Result<(TemporaryFile, File), StoreError> {
        let path = dir.join(MANIFEST_FILE);
        let bytes = self.encode(&path)?;
        let (temporary, mut file) = TemporaryFile::create(&path)?;
        file.write_all(&bytes)
            .map_err(StoreError::io("write", &path))?;
        Ok((temporary, file))
    }

    /// Reads the manifest in the directory of a load.
    ///
    /// # Errors
    /// [`StoreError::Missing`], as for a load from before there were manifests; those of [`Self::decode`].
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(MANIFEST_FILE);
        let bytes = std::fs::read(&path).map_err(StoreError::io("open", &path))?;
        Self::decode(&bytes, &path)
    }

    /// The manifest as it is written; `name` is for messages.
    ///
    /// # Errors
    /// [`StoreError::Io`], for a table of which there is no JSON.
    pub fn encode(&self, name: &Path) -> Result<Vec<u8>, StoreError> {
        let manifest = serde_json::to_vec(self)
            .map_err(|error| StoreError::io("write", name)(std::io::Error::from(error)))?;
        let mut covered = AFTER_CHECKSUM.to_vec();
        covered.extend_from_slice(&manifest);
        covered.extend_from_slice(b"}\n");
        let mut bytes = BEFORE_CHECKSUM.to_vec();
        bytes.extend_from_slice(format!("{:016x}", xxh3_64(&covered)).as_bytes());
        bytes.extend_from_slice(&covered);
        Ok(bytes)
    }

    /// A manifest from its bytes, verified; `name` is for messages.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::NewerFormat`].
    pub fn decode(bytes: &[u8], name: &Path) -> Result<Self, StoreError> {
        let damaged = |what: String| StoreError::damaged(name, what);
        let json = verified(bytes).map_err(|what| damaged(what.to_owned()))?;
        let unreadable =
            |error: serde_json::Error| damaged(format!("it is no manifest of a part: {error}"));
        let Version { format } = serde_json::from_slice(json).map_err(unreadable)?;
        if format == 0 || format > FORMAT_VERSION {
            return Err(StoreError::NewerFormat {
                path: name.to_owned(),
                found: format,
                supported: FORMAT_VERSION,
            });
        }
        let manifest: Self = serde_json::from_slice(json).map_err(unreadable)?;
        if !manifest.chunks.is_sorted_by(|a, b| a.chunk < b.chunk) {
            return Err(damaged("its chunks are not in order".to_owned()));
        }
        Ok(manifest)
    }
}

/// All that is read of a manifest before it is known that it can be read.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

/// What a manifest says, without the checksum, which fits; or why not.
fn verified(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let digits = bytes.strip_prefix(BEFORE_CHECKSUM);
    let Some((digits, covered)) = digits.and_then(|rest| rest.split_at_checked(16)) else {
        return Err("it does not begin as a manifest does");
    };
    if digits != format!("{:016x}", xxh3_64(covered)).as_bytes() {
        return Err("its checksum is wrong");
    }
    let json = covered.strip_prefix(AFTER_CHECKSUM);
    json.and_then(|json| json.strip_suffix(b"}\n"))
        .ok_or("it is not written as a manifest is")
}

impl PartChunk {
    /// The name of the file of its own rows, in the directory of the load.
    pub fn file_name(&self) -> String {
        chunk_file_name(self.file)
    }

    /// The name of the file of its overlap, if it has any.
    pub fn overlap_file_name(&self) -> Option<String> {
        self.overlap.map(|_| overlap_file_name(self.file))
    }

    /// Whether an open file of the chunk's own rows is the one that the load wrote.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is another.
    pub fn expect(&self, file: &ChunkFile) -> Result<(), StoreError> {
        if file.checksum() == self.checksum {
            return Ok(());
        }
        let what = "it is not the file that was published";
        Err(StoreError::damaged(file.path(), what))
    }
}

impl From<&Chunk> for PartChunk {
    fn from(chunk: &Chunk) -> Self {
        Self {
            chunk: chunk.chunk,
            file: chunk.file,
            rows: chunk.rows,
            strays: chunk.strays,
            bytes: chunk.bytes,
            checksum: chunk.checksum,
            bounds: chunk.bounds,
            overlap: chunk.overlap.map(PartOverlap::from),
        }
    }
}

impl From<&PartChunk> for Chunk {
    fn from(chunk: &PartChunk) -> Self {
        Self {
            chunk: chunk.chunk,
            file: chunk.file,
            rows: chunk.rows,
            strays: chunk.strays,
            bytes: chunk.bytes,
            checksum: chunk.checksum,
            overlap: chunk.overlap.map(|overlap| OverlapFile {
                rows: overlap.rows,
                bytes: overlap.bytes,
                checksum: overlap.checksum,
            }),
            bounds: chunk.bounds,
        }
    }
}

impl From<OverlapFile> for PartOverlap {
    fn from(file: OverlapFile) -> Self {
        Self {
            rows: file.rows,
            bytes: file.bytes,
            checksum: file.checksum,
        }
    }
}

/// A chunk as its number.
mod chunk_number {
    use serde::{Deserialize, Deserializer, Serializer};
    use sky::ChunkId;

    pub fn serialize<S: Serializer>(chunk: &ChunkId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i32(chunk.0)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ChunkId, D::Error> {
        i32::deserialize(from).map(ChunkId)
    }
}

/// A checksum as 16 hexadecimal digits: many readers of JSON take numbers for doubles.
mod checksum_digits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(checksum: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{checksum:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(from)?;
        u64::from_str_radix(&digits, 16).map_err(D::Error::custom)
    }
}

/// A double as text: as a number it would be read back to within a unit in its last place, and bounds must not shrink.
mod exact_double {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Bounds as texts, for the same reason.
mod exact_bounds {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(bounds: &Option<[f64; 4]>, to: S) -> Result<S::Ok, S::Error> {
        bounds
            .map(|bounds| bounds.map(|degrees| degrees.to_string()))
            .serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 4]>, D::Error> {
        let Some(texts) = Option::<[String; 4]>::deserialize(from)? else {
            return Ok(None);
        };
        let mut bounds = [0.0; 4];
        for (degrees, text) in bounds.iter_mut().zip(texts) {
            *degrees = text.parse().map_err(D::Error::custom)?;
        }
        Ok(Some(bounds))
    }
}

#[cfg(test)]
mod tests {
    use catalog::{Column, ColumnType, Position, TableKind};
    use proptest::prelude::*;

    use super::*;

    fn manifest(chunks: Vec<PartChunk>) -> PartManifest {
        PartManifest {
            format: FORMAT_VERSION,
            part: LoadId(17),
            table: TableSpec {
                database: "sky".to_owned(),
                name: "Object \"B\"".to_owned(),
                kind: TableKind::Director,
                columns: vec![Column {
                    name: "price".to_owned(),
                    ty: ColumnType::Decimal {
                        precision: 10,
                        scale: 2,
                    },
                    nullable: true,
                    declared: None,
                }],
                key: Some("objectId".to_owned()),
                position: Some(Position {
                    ra: "ra".to_owned(),
                    dec: "dec".to_owned(),
                }),
                directors: Vec::new(),
                scan_rating: 3,
            },
            partitioning: PartPartitioning {
                stripes: 85,
                sub_stripes: 12,
                overlap_deg: 1.0 / 60.0,
            },
            rows: 5,
            chunks,
            unknown_ends: None,
        }
    }

    fn chunk(number: i32) -> PartChunk {
        PartChunk {
            chunk: ChunkId(number),
            file: ChunkId(number),
            rows: 5,
            strays: 0,
            bytes: 1000,
            checksum: 0x0123_4567_89ab_cdef,
            bounds: Some([359.5, -0.1, 0.3, 1e-7]),
            overlap: Some(PartOverlap {
                rows: 2,
                bytes: 600,
                checksum: u64::MAX,
            }),
        }
    }

    fn decode(bytes: &[u8]) -> Result<PartManifest, StoreError> {
        PartManifest::decode(bytes, Path::new("m"))
    }

    /// The bytes of version 1, which every later version has to read.
    #[test]
    fn the_first_version_is_read_for_ever() {
        let bytes = manifest(vec![chunk(3)]).encode(Path::new("m")).unwrap();
        let text = concat!(
            r#"{"checksum":"@","manifest":{"format":1,"part":17,"table":{"database":"sky","name":"Object \"B\"","#,
            r#""kind":"director","columns":[{"name":"price","ty":"decimal(10,2)","nullable":true,"declared":null}],"#,
            r#""key":"objectId","position":{"ra":"ra","dec":"dec"},"directors":[],"scan_rating":3},"#,
            r#""partitioning":{"stripes":85,"sub_stripes":12,"overlap_deg":"0.016666666666666666"},"#,
            r#""rows":5,"chunks":[{"chunk":3,"file":3,"rows":5,"bytes":1000,"checksum":"0123456789abcdef","#,
            r#""bounds":["359.5","-0.1","0.3","0.0000001"],"#,
            r#""overlap":{"rows":2,"bytes":600,"checksum":"ffffffffffffffff"}}]}}"#,
            "\n"
        );
        let text = text.replace('@', "f0");
        let (before, after) = text.split_once("f0").unwrap();
        let text = format!("{before}{:016x}{after}", xxh3_64(after.as_bytes()));
        assert_eq!(decode(text.as_bytes()).unwrap(), manifest(vec![chunk(3)]));
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }

    #[test]
    fn unknown_ends_are_told_apart() {
        let written = manifest(vec![chunk(3)]).with_unknown_ends(Some([4, 0]));
        let bytes = written.encode(Path::new("m")).unwrap();
        assert_eq!(decode(&bytes).unwrap(), written);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = manifest(vec![chunk(3), chunk(4)])
            .encode(Path::new("m"))
            .unwrap();
        assert!(decode(&good).is_ok());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&good[..at]).is_err(), "{at} bytes");
        }
        assert!(decode(&[&good[..], b" "].concat()).is_err());
    }

    #[test]
    fn a_later_version_is_named_and_disorder_rejected() {
        let mut later = manifest(vec![chunk(3)]);
        later.format = 9;
        let error = decode(&later.encode(Path::new("m")).unwrap()).unwrap_err();
        assert!(error.to_string().contains("format version 9"), "{error}");
        for chunks in [vec![chunk(4), chunk(3)], vec![chunk(3), chunk(3)]] {
            let bytes = manifest(chunks).encode(Path::new("m")).unwrap();
            assert!(matches!(decode(&bytes), Err(StoreError::Damaged { .. })));
        }
    }

    #[test]
    fn it_appears_whole_under_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let missing = PartManifest::read(dir.path()).unwrap_err();
        assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
        let written = manifest((0..50).map(chunk).collect());
        written.write(dir.path()).unwrap();
        let read = PartManifest::read(dir.path()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.chunk(ChunkId(7)), Some(&chunk(7)));
        assert_eq!(read.chunk(ChunkId(50)), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn doubles_come_back_to_the_last_bit(
            bounds in [any::<f64>(), any::<f64>(), any::<f64>(), any::<f64>()]
        ) {
            prop_assume!(bounds.iter().all(|degrees| degrees.is_finite()));
            let mut odd = chunk(1);
            odd.bounds = Some(bounds);
            let written = manifest(vec![odd]);
            let read = decode(&written.encode(Path::new("m")).unwrap()).unwrap();
            let bits = |manifest: &PartManifest| manifest.chunks[0].bounds.unwrap().map(f64::to_bits);
            prop_assert_eq!(bits(&read), bits(&written));
        }

        #[test]
        fn garbage_is_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes).is_err());
            let covered = [AFTER_CHECKSUM, &bytes, b"}\n"].concat();
            let digits = format!("{:016x}", xxh3_64(&covered));
            let signed = [BEFORE_CHECKSUM, digits.as_bytes(), &covered].concat();
            prop_assert!(decode(&signed).is_err());
        }
    }
}
