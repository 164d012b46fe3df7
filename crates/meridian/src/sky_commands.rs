//! `meridian sky`: the sky's geometry from the shell.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use clap::{Args, Subcommand};
use sky::{Chunker, LonLat, Region, htm};

use crate::failure::Failure;

/// Input and output are moved in pieces of this many bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// The queries that can be asked without any data.
#[derive(Subcommand)]
pub enum SkyCommand {
    /// Find the chunk and sub-chunk of each position on standard input.
    ///
    /// Reads lines `ra,dec` (degrees; a first line that names the columns is passed over, and so are blank lines) and
    /// writes for each a line `ra,dec,chunk_id,sub_chunk_id`, with the position as it was typed. A line that is no
    /// position ends the command with an error that tells its number.
    #[command(
        after_help = "Example:\n  echo 266.4,-29.0 | meridian sky locate --stripes 85 --sub-stripes 12"
    )]
    Locate {
        #[command(flatten)]
        cut: PartitioningArguments,
    },
    /// List the chunks that a region touches, one number a line.
    ///
    /// No chunk with a point of the region is missing. A region is written in degrees, as one of
    ///
    ///   circle RA DEC RADIUS
    ///
    ///   box RA_MIN DEC_MIN RA_MAX DEC_MAX (through RA 0 if RA_MIN > RA_MAX)
    ///
    ///   ellipse RA DEC SEMI_MAJOR SEMI_MINOR POSITION_ANGLE (from north through east)
    ///
    ///   polygon RA DEC RA DEC RA DEC ... (convex, corners in order)
    #[command(
        after_help = "Example:\n  meridian sky chunks --stripes 85 --sub-stripes 12 \"circle 10 -5 1.5\""
    )]
    Chunks {
        #[command(flatten)]
        cut: PartitioningArguments,
        /// The region, for example "circle 10 -5 1.5"
        #[arg(required = true, num_args = 1.., allow_negative_numbers = true, value_name = "REGION")]
        region: Vec<String>,
    },
    /// Find the HTM trixel of each position on standard input.
    ///
    /// Reads lines `ra,dec` as `locate` does and writes for each a line `ra,dec,htm_id`.
    #[command(after_help = "Example:\n  echo 266.4,-29.0 | meridian sky htm --level 20")]
    Htm {
        /// The level of the mesh, 0 to 24
        #[arg(long, value_name = "N")]
        level: u32,
    },
}

/// How the sky is cut.
#[derive(Args)]
pub struct PartitioningArguments {
    /// The number of stripes of equal height, each cut into chunks
    #[arg(long, value_name = "N")]
    stripes: u32,
    /// The number of sub-stripes in each stripe, each cut into sub-chunks
    #[arg(long, value_name = "N")]
    sub_stripes: u32,
}

impl PartitioningArguments {
    fn chunker(&self) -> Result<Chunker, Failure> {
        Ok(Chunker::new(self.stripes, self.sub_stripes)?)
    }
}

/// Answers one of them.
pub fn run(command: SkyCommand) -> Result<(), Failure> {
    let outcome = match command {
        SkyCommand::Locate { cut } => {
            let chunker = cut.chunker()?;
            write_positions(io::stdin().lock(), |position, out| {
                let location = chunker.locate(position);
                write!(out, "{},{}", location.chunk, location.sub_chunk)
            })
        }
        SkyCommand::Chunks { cut, region } => {
            list_chunks(&cut.chunker()?, &region.join(" ").parse()?)
        }
        SkyCommand::Htm { level } => {
            let level = htm::Level::new(level)?;
            write_positions(io::stdin().lock(), |position, out| {
                write!(out, "{}", htm::id_at(level, position))
            })
        }
    };
    match outcome {
        // Whoever reads the answers has seen enough: not an error.
        Err(LineError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(LineError::Io(error)) => Err(error.into()),
        Err(LineError::Line { number, what }) => {
            Err(Failure::new(format!("line {number}: {what}")))
        }
        Ok(()) => Ok(()),
    }
}

/// Why a command stopped before the end of its input.
enum LineError {
    Io(io::Error),
    Line { number: u64, what: String },
}

impl From<io::Error> for LineError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn list_chunks(chunker: &Chunker, region: &Region) -> Result<(), LineError> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    for chunk in chunker.chunks_intersecting(region) {
        writeln!(out, "{chunk}")?;
    }
    Ok(out.flush()?)
}

/// Copies each line `ra,dec` to standard output and lets `answer` write after it. What was answered before a bad line is
/// written out.
fn write_positions(
    input: impl io::Read,
    answer: impl Fn(LonLat, &mut dyn Write) -> io::Result<()>,
) -> Result<(), LineError> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let mut line = Vec::new();
    let mut header_is_possible = true;
    for number in 1.. {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let bytes = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        if text.is_empty() || (std::mem::take(&mut header_is_possible) && is_header(text)) {
            continue;
        }
        match position_of(text) {
            Ok(position) => {
                write!(out, "{text},")?;
                answer(position, &mut out)?;
                out.write_all(b"\n")?;
            }
            Err(what) => {
                out.flush()?;
                return Err(LineError::Line { number, what });
            }
        }
    }
    Ok(out.flush()?)
}

/// Whether a line names the columns: `ra,dec`, `RA_ICRS,DE_ICRS`, `"raMean","decMean"`.
fn is_header(line: &str) -> bool {
    let starts_with = |field: &str, name: &str| {
        let field = field.trim().trim_matches('"').to_ascii_lowercase();
        field.starts_with(name) && field.parse::<f64>().is_err()
    };
    line.split_once(',')
        .is_some_and(|(ra, dec)| starts_with(ra, "ra") && starts_with(dec, "de"))
}

fn position_of(line: &str) -> Result<LonLat, String> {
    let Some((ra, dec)) = line.split_once(',') else {
        return Err(format!(
            "\"{line}\" is not a position; write \"ra,dec\" in degrees"
        ));
    };
    let number = |word: &str| {
        let word = word.trim();
        word.parse::<f64>().map_err(|_| {
            format!("\"{word}\" is not a number; write \"ra,dec\" in degrees, nothing else")
        })
    };
    LonLat::from_degrees(number(ra)?, number(dec)?).map_err(|error| error.to_string())
}
