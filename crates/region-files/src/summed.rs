//! Files whose checksums are taken while they are written or read.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::RegionFilesError;

/// Bytes that are read at a time.
const BLOCK: usize = 1 << 20;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct SummedFile {
    path: PathBuf,
    file: BufWriter<File>,
    sum: Sha256,
    bytes: u64,
}

impl SummedFile {
    /// Makes a file.
    pub fn create(path: PathBuf) -> Result<Self, RegionFilesError> {
        let file = File::create(&path).map_err(RegionFilesError::io("make", &path))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            sum: Sha256::new(),
            bytes: 0,
        })
    }

    /// Ends the file, which is then on disk: its bytes and its checksum.
    pub fn finish(mut self) -> Result<(u64, String), RegionFilesError> {
        let failed = || RegionFilesError::io("write", &self.path);
        self.file.flush().map_err(failed())?;
        self.file.get_ref().sync_all().map_err(failed())?;
        Ok((self.bytes, in_digits(self.sum)))
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file that has to have so many bytes.
pub(crate) fn open(path: &Path, expected: u64) -> Result<File, RegionFilesError> {
    let file = File::open(path).map_err(RegionFilesError::io("read", path))?;
    let found = file
        .metadata()
        .map_err(RegionFilesError::io("read", path))?;
    match found.len() == expected {
        true => Ok(file),
        false => Err(RegionFilesError::Size {
            path: path.to_path_buf(),
            found: found.len(),
            expected,
        }),
    }
}

/// Compares a file's checksum, reading all of it.
pub(crate) fn verify(path: &Path, expected: u64, sum: &str) -> Result<(), RegionFilesError> {
    let mut file = open(path, expected)?;
    let mut found = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        match file
            .read(&mut block)
            .map_err(RegionFilesError::io("read", path))?
        {
            0 => break,
            read => found.update(&block[..read]),
        }
    }
    match in_digits(found) == sum {
        true => Ok(()),
        false => Err(RegionFilesError::damaged(
            path,
            "its checksum is not that of the index",
        )),
    }
}

pub(crate) fn in_digits(sum: Sha256) -> String {
    let sum = sum.finalize();
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}
