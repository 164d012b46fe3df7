//! A cone as a request requests it.

use hyper::Uri;

use super::PeerError;

/// What a request requests. Degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConeQuery {
    pub ra: f64,
    pub dec: f64,
    pub radius: f64,
    pub is_csv: bool,
}

impl ConeQuery {
    /// Reads the parameters of an address, whose names may be in any case; those that are not known are left alone.
    ///
    /// # Errors
    /// A position or radius is missing or not on the sphere, or the format is one that this server does not have.
    pub fn read(uri: &Uri) -> Result<Self, PeerError> {
        let query = uri.query().unwrap_or_default();
        let is_csv = match find(query, "RESPONSEFORMAT") {
            None | Some("votable") => false,
            Some("csv") => true,
            Some(other) => {
                let sentence = format!("RESPONSEFORMAT={other} is not known here: votable or csv");
                return Err(PeerError::NoCone(sentence));
            }
        };
        Ok(Self {
            ra: degrees(query, "RA", 0.0, 360.0)?,
            dec: degrees(query, "DEC", -90.0, 90.0)?,
            radius: degrees(query, "SR", 0.0, 180.0)?,
            is_csv,
        })
    }
}

fn find<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .next()
}

fn degrees(query: &str, name: &str, least: f64, most: f64) -> Result<f64, PeerError> {
    find(query, name)
        .and_then(|value| value.parse().ok())
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| PeerError::NoCone(format!("give {name} in degrees, from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<ConeQuery, PeerError> {
        ConeQuery::read(&format!("http://h/any/path?{query}").parse().unwrap())
    }

    #[test]
    fn cones_are_read() {
        let cone = ConeQuery {
            ra: 10.5,
            dec: -5.0,
            radius: 0.01,
            is_csv: false,
        };
        assert_eq!(read("RA=10.5&DEC=-5&SR=0.01").unwrap(), cone);
        assert_eq!(read("VERB=3&sr=1e-2&ra=10.5&dec=-5.0").unwrap(), cone);
        assert!(
            read("RA=10.5&DEC=-5&SR=0.01&RESPONSEFORMAT=csv")
                .unwrap()
                .is_csv
        );
    }

    #[test]
    fn what_is_no_cone_is_said() {
        for (query, words) in [
            ("", "give RA in degrees, from 0 to 360"),
            ("RA=1&SR=1", "give DEC"),
            ("RA=1&DEC=91&SR=1", "from -90 to 90"),
            ("RA=1&DEC=x&SR=1", "give DEC"),
            ("RA=NaN&DEC=1&SR=1", "give RA"),
            ("RA=1&DEC=1&SR=-1", "give SR"),
            ("RA=1&DEC=1&SR=1&RESPONSEFORMAT=json", "votable or csv"),
        ] {
            let said = read(query).unwrap_err().to_string();
            assert!(said.contains(words), "{query}: {said}");
        }
    }
}
