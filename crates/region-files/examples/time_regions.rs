//! Reads regions, each a line of standard input, in region files, and prints for each its rows and the least time of several readings:
//! `time_regions DIR COLUMNS READINGS`. The benchmark of region files runs it.
#![allow(
    clippy::print_stdout,
    reason = "its lines are what the benchmark reads"
)]

use std::env;
use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::time::Instant;

use region_files::{RegionFiles, RegionFilesError, Search, Verification};
use sky::Angle;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [dir, columns, readings] = arguments.as_slice() else {
        return Err("give a directory, columns separated by commas, and how often to read".into());
    };
    let columns: Vec<&str> = columns.split(',').collect();
    let readings: usize = readings.parse()?;
    let files = RegionFiles::open(Path::new(dir), Verification::Sizes)?;
    for line in stdin().lines() {
        let search = Search::new(line?.parse()?, Angle::ZERO)?;
        let (mut rows, mut least) = (0, f64::INFINITY);
        for _ in 0..readings {
            let begun = Instant::now();
            rows = read(&files, &search, &columns)?;
            least = least.min(begun.elapsed().as_secs_f64());
        }
        println!("{rows} {least}");
    }
    Ok(())
}

fn read(files: &RegionFiles, search: &Search, columns: &[&str]) -> Result<usize, RegionFilesError> {
    let mut rows = 0;
    for batch in files.rows(search, Some(columns))? {
        rows += batch?.num_rows();
    }
    Ok(rows)
}
