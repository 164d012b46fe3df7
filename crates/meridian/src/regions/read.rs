//! `meridian alerts region`: the rows of a region in region files.

use std::path::PathBuf;

use arrow::datatypes::SchemaRef;
use clap::Args;
use region_files::{RegionFiles, Search, Verification};
use sky::{Angle, Region};

use crate::failure::Failure;
use crate::output::{Destination, Layout, open_output};
use crate::sql::Format;

/// Which rows to read, of which files.
#[derive(Args)]
pub struct RegionArguments {
    /// The directory that `meridian alerts regions` has made.
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    #[command(flatten)]
    region: RegionOptions,
    /// Rows at most this far from the region as well, in degrees.
    #[arg(
        long,
        value_name = "DEGREES",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    padding: f64,
    /// Columns, separated by commas; all by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// How to print the rows.
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// Write the rows to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare the checksums of the files that are read: all of each is read for that.
    #[arg(long)]
    verify: bool,
}

/// A region, in degrees.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct RegionOptions {
    /// All positions within a radius of a centre.
    #[arg(long, num_args = 3, value_names = ["RA", "DEC", "RADIUS"], allow_negative_numbers = true)]
    circle: Option<Vec<f64>>,
    /// Right ascensions from RA_MIN eastwards to RA_MAX, declinations from DEC_MIN to DEC_MAX.
    #[arg(long = "box", num_args = 4, value_names = ["RA_MIN", "DEC_MIN", "RA_MAX", "DEC_MAX"], allow_negative_numbers = true)]
    lon_lat_box: Option<Vec<f64>>,
    /// A convex polygon: its corners in order.
    #[arg(long, num_args = 6.., value_name = "RA DEC", allow_negative_numbers = true)]
    polygon: Option<Vec<f64>>,
}

impl RegionOptions {
    fn region(&self) -> Result<Region, Failure> {
        let region = match (&self.circle, &self.lon_lat_box, &self.polygon) {
            (Some(circle), ..) => Region::circle_degrees(circle[0], circle[1], circle[2])?,
            (_, Some(b), _) => Region::box_degrees(b[0], b[1], b[2], b[3])?,
            (.., Some(numbers)) if numbers.len() % 2 == 0 => {
                let corners = numbers.chunks_exact(2);
                let corners: Vec<(f64, f64)> = corners.map(|it| (it[0], it[1])).collect();
                Region::polygon_degrees(&corners)?
            }
            _ => {
                return Err(Failure::new(
                    "a polygon takes two numbers for each corner: RA DEC RA DEC RA DEC ...",
                ));
            }
        };
        Ok(region)
    }
}

/// Reads the rows and writes them.
pub fn read(arguments: &RegionArguments) -> Result<(), Failure> {
    let region = arguments.region.region()?;
    let search = Search::new(region, Angle::from_degrees(arguments.padding))?;
    let verification = match arguments.verify {
        true => Verification::Checksums,
        false => Verification::Sizes,
    };
    let files = RegionFiles::open(&arguments.files, verification)?;
    let names: Vec<&str> = arguments.columns.iter().map(|name| name.trim()).collect();
    let columns = (!names.is_empty()).then_some(names.as_slice());
    let rows = files.rows(&search, columns)?;
    let destination = match &arguments.output {
        None => Destination::StandardOutput,
        Some(path) => Destination::NewFile(path.clone()),
    };
    let schema = SchemaRef::clone(rows.schema());
    let mut output = open_output(arguments.format, Layout::Lines, &destination, &schema)?;
    for batch in rows {
        if !output.write(&batch?)? {
            break;
        }
    }
    output.finish()
}
