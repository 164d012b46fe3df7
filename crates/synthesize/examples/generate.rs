//! Writes a generated catalogue: `generate DIR OBJECTS [none|snappy|lz4|zstd] [EPOCHS [FORCED_EPOCHS]]`.
#![expect(clippy::print_stdout, reason = "an example speaks")]

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use meridian_synthesize::{
    Extent, GenerateOptions, GeneratedCatalogue, Progress, WriteOptions, write_parquet,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| arguments.get(at).map(String::as_str);
    let objects = word(1).unwrap_or("1000000").parse()?;
    let mut options = GenerateOptions::new(Extent::new(Some(objects), None, None)?, 57);
    options.epochs = word(3).unwrap_or("0").parse()?;
    options.forced_epochs = word(4).unwrap_or("0").parse()?;
    let write = WriteOptions {
        dir: word(0).ok_or("which directory?")?.into(),
        chunks: None,
        compression: word(2).unwrap_or("zstd").parse()?,
        threads: 2,
        replace: true,
    };
    let started = Instant::now();
    let tables = write_parquet(
        &Arc::new(GeneratedCatalogue::new(options)?),
        &write,
        &Progress::default(),
    )?;
    let seconds = started.elapsed().as_secs_f64();
    for table in tables {
        let rate = table.rows as f64 / seconds / 1e6;
        println!("{table:?}: {rate:.2} million rows/s in {seconds:.2} s");
    }
    Ok(())
}
