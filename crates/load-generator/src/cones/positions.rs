//! Random positions in a box of the sky, and the requests of cones around them.

use hyper::Uri;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::ConesError;

/// Positions are requested with this many decimals of a degree: 0.4 milliarcseconds.
const DECIMALS: usize = 7;
const ARCSECONDS_IN_DEGREE: f64 = 3600.0;
/// Two to the power of 53: so many equally spaced numbers are drawn between 0 and 1.
const STEPS: f64 = 9_007_199_254_740_992.0;

/// A box of right ascension and declination, in degrees, closed. One that reaches over right ascension 0 ends beyond 360.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SkyBox {
    ra: (f64, f64),
    dec: (f64, f64),
}

impl SkyBox {
    /// From right ascensions and declinations in degrees: the least and the greatest of each.
    ///
    /// # Errors
    /// A box that is turned around, or that is not on the sphere.
    pub fn from_degrees(ra: (f64, f64), dec: (f64, f64)) -> Result<Self, ConesError> {
        let is_on_sphere = ra.0 >= 0.0 && ra.1 <= 720.0 && dec.0 >= -90.0 && dec.1 <= 90.0;
        let is_narrow_enough = ra.1 - ra.0 <= 360.0;
        if is_on_sphere && is_narrow_enough && ra.0 <= ra.1 && dec.0 <= dec.1 {
            Ok(Self { ra, dec })
        } else {
            Err(ConesError::NoBox { ra, dec })
        }
    }

    /// The position with a number: of equal density on the sphere within the box, the same for the same seed.
    ///
    /// Each number has a stream of its own, so that it does not matter which connection asks, nor in what order.
    fn position(&self, seed: u64, number: u64) -> (f64, f64) {
        let mut state = [0; 32];
        state[..8].copy_from_slice(&seed.to_le_bytes());
        state[8..16].copy_from_slice(&number.to_le_bytes());
        state[16] = 1;
        let mut stream = Xoshiro256PlusPlus::from_seed(state);
        // What neighbouring numbers have in common is gone after some steps.
        for _ in 0..8 {
            stream.next_u64();
        }
        let ra = self.ra.0 + (self.ra.1 - self.ra.0) * unit(&mut stream);
        let (low, high) = (self.dec.0.to_radians().sin(), self.dec.1.to_radians().sin());
        let dec = (low + (high - low) * unit(&mut stream)).asin().to_degrees();
        (ra.rem_euclid(360.0), dec.clamp(self.dec.0, self.dec.1))
    }
}

/// A number in (0, 1).
pub fn unit(stream: &mut Xoshiro256PlusPlus) -> f64 {
    ((stream.next_u64() >> 11) as f64 + 0.5) / STEPS
}

/// Writes the requests of one run.
#[derive(Debug, Clone)]
pub struct Requests {
    /// All before the right ascension, and all after the declination.
    before: String,
    after: String,
    /// Where to connect: `HOST:PORT`.
    pub authority: String,
    sky: SkyBox,
    seed: u64,
}

impl Requests {
    /// Requests of `base` (an address that may have parameters of its own) with a radius in arcseconds, and with
    /// `extra` parameters (`name=value&name=value`) behind.
    ///
    /// # Errors
    /// An address that is not one of HTTP, or text that cannot stand in a request.
    pub fn new(
        base: &str,
        sky: SkyBox,
        radius_arcsec: f64,
        extra: &str,
        seed: u64,
    ) -> Result<Self, ConesError> {
        let no_address = || ConesError::NoAddress(base.to_owned());
        let uri: Uri = base.parse().map_err(|_| no_address())?;
        if uri.scheme_str() != Some("http") || !may_be_sent(extra) {
            return Err(no_address());
        }
        let host = uri.host().ok_or_else(no_address)?;
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(80));
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let joint = match path.find('?') {
            None => "?",
            Some(at) if at + 1 == path.len() => "",
            Some(_) => "&",
        };
        let radius = radius_arcsec / ARCSECONDS_IN_DEGREE;
        let extra = match extra.trim_start_matches('&') {
            "" => String::new(),
            extra => format!("&{extra}"),
        };
        Ok(Self {
            before: format!("GET {path}{joint}RA="),
            after: format!("&SR={radius}{extra} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
            authority,
            sky,
            seed,
        })
    }

    /// Writes the request with a number into `text`, in the place of what was there.
    pub fn write(&self, number: u64, text: &mut String) {
        let (ra, dec) = self.sky.position(self.seed, number);
        let mut ra = format!("{ra:.DECIMALS$}");
        if ra.starts_with("360") {
            // It was rounded up to the seam.
            ra = "0".to_owned();
        }
        text.clear();
        text.push_str(&self.before);
        text.push_str(&ra);
        text.push_str("&DEC=");
        text.push_str(&format!("{dec:.DECIMALS$}"));
        text.push_str(&self.after);
    }
}

/// Whether a text can stand in the first line of a request as it is.
fn may_be_sent(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole_sky() -> SkyBox {
        SkyBox::from_degrees((0.0, 360.0), (-90.0, 90.0)).unwrap()
    }

    #[test]
    fn positions_are_of_equal_density_on_the_sphere() {
        // Bands of equal area: sines of declination in tenths; and twelfths of right ascension.
        let (mut bands, mut hours) = ([0u32; 10], [0u32; 12]);
        let count = 60_000;
        for number in 0..count {
            let (ra, dec) = whole_sky().position(7, number);
            bands[((dec.to_radians().sin() + 1.0) * 5.0) as usize] += 1;
            hours[(ra / 30.0) as usize] += 1;
        }
        // Five standard deviations of a count of 6,000 and of 5,000.
        assert!(bands.iter().all(|n| n.abs_diff(6000) < 370), "{bands:?}");
        assert!(hours.iter().all(|n| n.abs_diff(5000) < 340), "{hours:?}");
    }

    #[test]
    fn positions_lie_in_the_box_also_over_the_seam() {
        let sky = SkyBox::from_degrees((359.0, 361.0), (-1.0, 2.0)).unwrap();
        let all: Vec<_> = (0..2000).map(|number| sky.position(1, number)).collect();
        assert!(
            all.iter()
                .all(|(ra, dec)| !(1.0..359.0).contains(ra) && (-1.0..=2.0).contains(dec))
        );
        assert!(all.iter().any(|(ra, _)| *ra < 1.0) && all.iter().any(|(ra, _)| *ra > 359.0));
    }

    #[test]
    fn the_same_seed_and_number_is_the_same_position() {
        assert_eq!(whole_sky().position(3, 9), whole_sky().position(3, 9));
        assert_ne!(whole_sky().position(3, 9), whole_sky().position(3, 10));
        assert_ne!(whole_sky().position(3, 9), whole_sky().position(4, 9));
    }

    #[test]
    fn requests_are_written() {
        let point = SkyBox::from_degrees((10.5, 10.5), (-5.25, -5.25)).unwrap();
        let mut text = String::new();
        for (base, extra, first_line) in [
            (
                "http://127.0.0.1:80/scs/sky/Star",
                "",
                "GET /scs/sky/Star?RA=10.5000000&DEC=-5.2500000&SR=0.5 HTTP/1.1",
            ),
            (
                "http://127.0.0.1:80/cone?x=1",
                "VERB=3&MAXREC=5",
                "GET /cone?x=1&RA=10.5000000&DEC=-5.2500000&SR=0.5&VERB=3&MAXREC=5 HTTP/1.1",
            ),
            (
                "http://127.0.0.1:80/cone?",
                "&VERB=3",
                "GET /cone?RA=10.5000000&DEC=-5.2500000&SR=0.5&VERB=3 HTTP/1.1",
            ),
        ] {
            Requests::new(base, point, 1800.0, extra, 0)
                .unwrap()
                .write(0, &mut text);
            assert_eq!(text, format!("{first_line}\r\nHost: 127.0.0.1:80\r\n\r\n"));
        }
    }

    #[test]
    fn a_position_at_the_seam_is_asked_for_at_0() {
        let seam = SkyBox::from_degrees((359.99999999, 359.99999999), (0.0, 0.0)).unwrap();
        let mut text = String::new();
        Requests::new("http://h/", seam, 1.0, "", 0)
            .unwrap()
            .write(0, &mut text);
        assert!(text.starts_with("GET /?RA=0&DEC=0.0000000&"), "{text}");
    }

    #[test]
    fn what_is_no_box_or_address_is_refused() {
        for (ra, dec) in [
            ((1.0, 0.0), (0.0, 1.0)),
            ((0.0, 1.0), (1.0, 0.0)),
            ((0.0, 1.0), (0.0, 91.0)),
            ((-1.0, 1.0), (0.0, 1.0)),
            ((0.0, 361.0), (0.0, 1.0)),
            ((0.0, f64::NAN), (0.0, 1.0)),
        ] {
            assert!(SkyBox::from_degrees(ra, dec).is_err(), "{ra:?} {dec:?}");
        }
        for (base, extra) in [
            ("https://h/", ""),
            ("h", ""),
            ("", ""),
            ("http://h/ x", ""),
            ("http://h/", "a b"),
            ("http://h/", "a\r\nb"),
        ] {
            assert!(
                Requests::new(base, whole_sky(), 1.0, extra, 0).is_err(),
                "{base} {extra}"
            );
        }
    }
}
