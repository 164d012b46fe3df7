//! Reads a file within a budget, and measures what that takes.

use std::path::Path;
use std::time::Duration;

use meridian_ingest::{
    BytePool, DecodeBudget, DecodeLimits, FileFormat, FitsHeaders, IngestError, RowFile, RowSource,
};

/// What may be decoded of a file.
pub const LIMITS: DecodeLimits = DecodeLimits {
    bytes: 16 << 20,
    row_bytes: 2 << 20,
    columns: 500,
};

/// Bytes of memory that a reader may take beside what it decodes.
pub const MEMORY: u64 = 160 << 20;

/// The processor time that a reader may take for a file, without optimisation.
pub const LONGEST: Duration = Duration::from_secs(20);

/// What reading a file comes to: how many rows and bytes, or why not.
pub fn read(path: &Path, format: FileFormat) -> Result<(usize, usize), IngestError> {
    let budget = DecodeBudget::new(LIMITS, &BytePool::new(LIMITS.bytes));
    let file = RowFile::open_within(path, format, None, &budget)?;
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut read = (0, 0);
    for batch in file.rows(&columns)? {
        let batch = batch?;
        read.0 += batch.num_rows();
        let bytes = batch
            .columns()
            .iter()
            .map(|it| it.to_data().get_slice_memory_size().unwrap());
        read.1 += bytes.sum::<usize>();
        assert!(read.1 as u64 <= LIMITS.bytes, "it gave {} bytes", read.1);
    }
    Ok(read)
}

/// What reading a file of the operator's comes to, and its headers if it is one of FITS.
pub fn read_own(path: &Path, format: FileFormat) -> Result<(usize, usize), IngestError> {
    if format == FileFormat::Fits {
        let headers = FitsHeaders::of(&[path.to_path_buf()], &[])?;
        for part in 0..headers.parts() {
            for batch in headers.make_part(part) {
                // What is wrong with a header, the rows are read all the same.
                let _ = batch;
            }
        }
    }
    let file = RowFile::open(path, format)?;
    let columns: Vec<usize> = (0..file.schema().fields().len()).collect();
    let mut read = (0, 0);
    for batch in file.rows(&columns)? {
        let batch = batch?;
        read.0 += batch.num_rows();
        read.1 += batch.get_array_memory_size();
    }
    Ok(read)
}

/// The processor time that this thread has taken.
pub fn taken() -> Duration {
    let fields = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = fields.split(' ').next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

/// The largest memory that this process has held so far, in bytes.
pub fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line
        .split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kibibytes << 10
}
