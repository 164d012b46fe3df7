//! The parameters of a cone search: RA, DEC, SR, VERB, MAXREC and RESPONSEFORMAT of a query string.

use std::fmt;
use std::hash::{Hash, Hasher};

use sky::{Angle, Circle, LonLat};

use crate::formats::Format;
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;

/// The default of VERB.
const DEFAULT_VERBOSITY: u8 = 2;

/// A cone that is requested.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConeParameters {
    /// `None` where only the columns are wanted.
    pub(crate) circle: Option<Circle>,
    /// How much of each row is wanted, from 1 to 3.
    pub(crate) verbosity: u8,
    /// The most rows that are wanted.
    pub(crate) max_rows: Option<u64>,
    pub(crate) format: Format,
}

impl Hash for ConeParameters {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let circle = self.circle.map(|circle| {
            let centre = circle.centre();
            [centre.ra(), centre.dec(), circle.radius()].map(|angle| angle.degrees().to_bits())
        });
        (circle, self.verbosity, self.max_rows, self.format).hash(state);
    }
}

/// As it stands in the list of what runs.
impl fmt::Display for ConeParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.circle {
            Some(circle) => write!(f, "{circle}"),
            None => f.write_str("columns"),
        }
    }
}

impl ConeParameters {
    /// Reads a query string. Unknown parameters are ignored.
    ///
    /// # Errors
    /// What is wrong, and in which format to say so.
    pub(crate) fn read(query: &str) -> Result<Self, (Format, Problem)> {
        let given = RequestParameters::read(query).map_err(|problem| (Format::Binary2, problem))?;
        let format = given
            .format()
            .map_err(|problem| (Format::Binary2, problem))?;
        given.cone(format).map_err(|problem| (format, problem))
    }
}

impl RequestParameters {
    /// A number, if it is given.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Problem> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        let number = value
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite());
        let wrong = || {
            let hint = match value.contains([':', 'h', 'd']) {
                true => ": write decimal degrees, not hours, minutes and seconds",
                false => ": write decimal degrees, as in 10.684",
            };
            Problem::bad(format!("{name} is no number: {value}{hint}"))
        };
        number.map(Some).ok_or_else(wrong)
    }

    /// A number that has to be given.
    fn needed(&self, name: &str, what: &str) -> Result<f64, Problem> {
        let missing = || {
            Problem::bad(format!(
                "{name} is missing: {what}. A cone search needs RA, DEC and SR, as in ?RA=10.684&DEC=41.269&SR=0.01"
            ))
        };
        self.number(name)?.ok_or_else(missing)
    }

    /// The format in which the response is wanted.
    pub(crate) fn format(&self) -> Result<Format, Problem> {
        let Some(name) = self.value("RESPONSEFORMAT")? else {
            return Ok(Format::Binary2);
        };
        Format::named(name).ok_or_else(|| {
            Problem::bad(format!(
                "RESPONSEFORMAT is not known: {name}. There are votable, votable/td, csv, tsv and json"
            ))
        })
    }

    /// How much of each row is wanted, from 1 to 3.
    pub(crate) fn verbosity(&self) -> Result<u8, Problem> {
        match self.value("VERB")? {
            None => Ok(DEFAULT_VERBOSITY),
            Some("1") => Ok(1),
            Some("2") => Ok(2),
            Some("3") => Ok(3),
            Some(other) => Err(Problem::bad(format!(
                "VERB is {other}: it is 1 (names and positions), 2 (the usual columns) or 3 (all columns)"
            ))),
        }
    }

    fn cone(&self, format: Format) -> Result<ConeParameters, Problem> {
        let ra = self.needed("RA", "right ascension in degrees")?;
        let dec = self.needed("DEC", "declination in degrees")?;
        let radius = self.needed("SR", "the radius in degrees")?;
        if !(-90.0..=90.0).contains(&dec) {
            return Err(Problem::bad(format!(
                "DEC is {dec}: it is in degrees from -90 to 90"
            )));
        }
        let wrong = |error: sky::SkyError| Problem::bad(error.to_string());
        let centre = LonLat::from_degrees(ra, dec).map_err(wrong)?;
        let circle = Circle::new(centre, Angle::from_degrees(radius))
            .map_err(|_| Problem::bad(format!("SR is {radius}: it is in degrees from 0 to 180")))?;
        Ok(ConeParameters {
            circle: (radius > 0.0).then_some(circle),
            verbosity: self.verbosity()?,
            max_rows: self.count("MAXREC")?,
            format,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    #[test]
    fn strange_cones_do_no_harm() {
        let usual = [
            "RA=10.5&DEC=-20&SR=0.5&VERB=3&MAXREC=7&RESPONSEFORMAT=votable%2Ftd",
            "sr=180&dec=%2B90&ra=-3.6e2&verb=1&responseformat=csv",
            "RA=1e308&DEC=nan&SR=-0&MAXREC=18446744073709551615",
            "RA=10:20:30&DEC=1d2m3s&SR=1e-400",
        ];
        feed("cones", &usual.map(str::as_bytes), |bytes| {
            if let Ok(cone) = ConeParameters::read(&String::from_utf8_lossy(bytes)) {
                let centre = cone.circle.map(|circle| circle.centre());
                assert!(centre.is_none_or(|it| it.ra().degrees().is_finite()));
                let _ = cone.to_string();
            }
        });
    }

    #[test]
    fn names_are_read_in_any_case_and_order() {
        let read =
            ConeParameters::read("sr=0.5&Dec=-3&RA=10.5&maxrec=7&verb=3&x=y&ResponseFormat=csv");
        let read = read.unwrap();
        let circle = read.circle.unwrap();
        assert_eq!(
            (circle.centre().ra().degrees(), circle.radius().degrees()),
            (10.5, 0.5)
        );
        assert_eq!(
            (read.verbosity, read.max_rows, read.format),
            (3, Some(7), Format::Csv)
        );
        let zero = ConeParameters::read("RA=1&DEC=2&SR=0").unwrap();
        assert_eq!((zero.circle, zero.verbosity), (None, 2));
        assert!(ConeParameters::read("RA=+10.5&DEC=%2B3&SR=1e-3").is_ok());
    }

    /// From -360 on they were, and beyond 360 they were not.
    #[test]
    fn right_ascensions_go_round() {
        for (given, ra) in [
            ("0", 0.0),
            ("360", 0.0),
            ("-0.0", 0.0),
            ("370", 10.0),
            ("-350", 10.0),
            ("-359", 1.0),
            ("-710", 10.0),
            ("36010", 10.0),
        ] {
            let cone = ConeParameters::read(&format!("RA={given}&DEC=2&SR=1")).unwrap();
            let centre = cone.circle.unwrap().centre();
            assert_eq!(centre.ra().degrees().to_bits(), f64::to_bits(ra), "{given}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (query, sentence) in [
            ("", "RA is missing"),
            ("RA=1&DEC=2", "SR is missing"),
            ("RA=1&DEC=2&SR=", "SR is missing"),
            ("RA=10:20:30&DEC=2&SR=1", "not hours, minutes and seconds"),
            ("RA=nan&DEC=2&SR=1", "RA is no number: nan"),
            ("RA=inf&DEC=2&SR=1", "RA is no number: inf"),
            ("RA=1&DEC=-90.001&SR=1", "DEC is -90.001"),
            ("RA=1&DEC=2&SR=181", "SR is 181"),
            ("RA=1&DEC=2&SR=-1", "SR is -1"),
            ("RA=1&RA=2&DEC=2&SR=1", "RA is given more than once"),
            ("RA=1&DEC=2&SR=1&MAXREC=-1", "MAXREC is no whole number"),
            ("RA=1&DEC=2&SR=1&VERB=4", "VERB is 4"),
            (
                "RA=1&DEC=2&SR=1&RESPONSEFORMAT=fits",
                "RESPONSEFORMAT is not known: fits",
            ),
        ] {
            let (_, problem) = ConeParameters::read(query).unwrap_err();
            assert!(
                problem.sentence.contains(sentence),
                "{query}: {}",
                problem.sentence
            );
        }
    }

    #[test]
    fn other_queries_have_other_hashes() {
        let hash = |query: &str| {
            let mut hasher = std::hash::DefaultHasher::new();
            ConeParameters::read(query).unwrap().hash(&mut hasher);
            hasher.finish()
        };
        let one = hash("RA=1&DEC=2&SR=1");
        assert_eq!(one, hash("SR=1.0&RA=1&DEC=2&unknown=3"));
        for other in [
            "RA=2&DEC=2&SR=1",
            "RA=1&DEC=2&SR=1&MAXREC=9",
            "RA=1&DEC=2&SR=1&VERB=1",
        ] {
            assert_ne!(one, hash(other));
        }
    }
}
