//! The encoding of a file scan: the file's path, under which the process that runs the scan must find the same file.
//!
//! A file that was sent to this process is encoded too, so that a plan which reads it has a digest; it is decoded nowhere.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use ingest::{FileFormat, RowFile};
use prost::Message;

use crate::FileScanExec;
use crate::error::external;

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileScanMessage {
    #[prost(string, tag = "1")]
    path: String,
    /// What people call its format.
    #[prost(string, tag = "2")]
    format: String,
    #[prost(uint64, repeated, tag = "3")]
    columns: Vec<u64>,
    /// Whether it was sent to this process.
    #[prost(bool, tag = "4")]
    is_received: bool,
    /// Whether columns that the file says are geometry are.
    #[prost(bool, tag = "5")]
    has_geometry: bool,
}

impl FileScanMessage {
    pub fn of(scan: &FileScanExec) -> Result<Self> {
        let file = scan.file();
        let path = std::path::absolute(file.path())?;
        Ok(Self {
            path: path.to_string_lossy().into_owned(),
            format: file.format().name().to_owned(),
            columns: scan.columns().iter().map(|at| *at as u64).collect(),
            is_received: file.budget().is_limited(),
            has_geometry: scan.has_geometry(),
        })
    }

    pub fn into_scan(self) -> Result<FileScanExec> {
        if self.is_received {
            return internal_err!(
                "a file that was sent is read by the process that it was sent to"
            );
        }
        let mut formats = FileFormat::ALL.into_iter();
        let Some(format) = formats.find(|format| format.name() == self.format) else {
            return internal_err!(
                "a scan of a file of an unknown format {} arrived",
                self.format
            );
        };
        let file = RowFile::open(Path::new(&self.path), format).map_err(external)?;
        let columns = self.columns.into_iter().map(|at| at as usize).collect();
        FileScanExec::try_new(Arc::new(file), columns, self.has_geometry)
    }
}
