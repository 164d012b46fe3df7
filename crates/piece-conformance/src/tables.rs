//! The table that the cases read: few rows in so many chunks that there are a dozen pieces.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use ingest::{LoadRequest, Progress};
use tempfile::TempDir;

/// Rows of the table `Object`, whose keys are `0..OBJECTS`.
pub const OBJECTS: i64 = 6_000;
/// Stripes and sub-stripes: hundreds of chunks, as opening each counts as some hundred rows when chunks are joined to pieces.
const CUT: (u32, u32) = (32, 2);

/// A data directory with the table `Object` in the database `sky`.
#[derive(Debug)]
pub struct Tables {
    dir: TempDir,
}

impl Tables {
    /// Loads the table.
    pub async fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("object.csv");
        std::fs::write(&file, lines()).unwrap();
        let data = dir.path().join("data");
        let request = LoadRequest {
            files: vec![file],
            threads: Some(1),
            key: vec!["id".to_owned()],
            ra: Some("ra".to_owned()),
            dec: Some("decl".to_owned()),
            stripes: Some(CUT.0),
            sub_stripes: Some(CUT.1),
            overlap_deg: Some(0.1),
            ..LoadRequest::new(&data, "sky", "Object")
        };
        ingest::load(request, Arc::new(Progress::default()))
            .await
            .unwrap();
        Self { dir }
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A directory beside it that does not exist yet.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Objects spread evenly over the sky by the golden angle.
fn lines() -> String {
    let mut text = "id,ra,decl,flux\n".to_owned();
    for n in 0..OBJECTS {
        let z = 1.0 - (2 * n + 1) as f64 / OBJECTS as f64;
        let ra = (n as f64 * 137.507_764_05).rem_euclid(360.0);
        let flux = 1.0 / (n + 3) as f64;
        writeln!(text, "{n},{ra},{},{flux}", z.asin().to_degrees()).unwrap();
    }
    text
}
