//! Regions as text: `circle 10 -5 1.5`, `box 350 -1 10 1`, `ellipse ...`, `polygon ...`, all numbers in degrees.

use std::str::FromStr;

use crate::{Region, SkyError};

/// The shape's name in any case, then its numbers, separated by white space, commas, or both.
impl FromStr for Region {
    type Err = SkyError;

    fn from_str(text: &str) -> Result<Self, SkyError> {
        let mut words = text
            .split([' ', '\t', '\r', '\n', ','])
            .filter(|word| !word.is_empty());
        let shape = words.next().unwrap_or_default().to_ascii_lowercase();
        if !["circle", "box", "ellipse", "polygon"].contains(&shape.as_str()) {
            return Err(SkyError::Shape(text.to_owned()));
        }
        let numbers = words
            .map(|word| {
                word.parse::<f64>().map_err(|_| SkyError::Number {
                    word: word.to_owned(),
                    region: text.to_owned(),
                })
            })
            .collect::<Result<Vec<f64>, _>>()?;
        from_numbers(&shape, &numbers)
    }
}

fn from_numbers(shape: &str, numbers: &[f64]) -> Result<Region, SkyError> {
    let wrong_count = |shape, expected, form| SkyError::NumberCount {
        shape,
        expected,
        found: numbers.len(),
        form,
    };
    match (shape, numbers) {
        ("circle", &[ra, dec, radius]) => Region::circle_degrees(ra, dec, radius),
        ("circle", _) => Err(wrong_count("circle", "3 numbers", "RA DEC RADIUS")),
        ("box", &[ra_min, dec_min, ra_max, dec_max]) => {
            Region::box_degrees(ra_min, dec_min, ra_max, dec_max)
        }
        ("box", _) => Err(wrong_count(
            "box",
            "4 numbers",
            "RA_MIN DEC_MIN RA_MAX DEC_MAX",
        )),
        ("ellipse", &[ra, dec, a, b, position_angle]) => {
            Region::ellipse_degrees(ra, dec, a, b, position_angle)
        }
        ("ellipse", _) => Err(wrong_count(
            "ellipse",
            "5 numbers",
            "RA DEC SEMI_MAJOR SEMI_MINOR POSITION_ANGLE",
        )),
        (_, corners) if corners.len() >= 6 && corners.len() % 2 == 0 => {
            let corners: Vec<(f64, f64)> = corners
                .chunks_exact(2)
                .map(|pair| (pair[0], pair[1]))
                .collect();
            Region::polygon_degrees(&corners)
        }
        _ => Err(wrong_count(
            "polygon",
            "6 or more numbers, two for each corner",
            "RA DEC RA DEC RA DEC ...",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        for text in [
            "circle 10 -5 1.5",
            "box 350 -1 10 1",
            "ellipse 1.25 2.5 3 0.5 45",
            "polygon 0 0 1 0 1 1",
            "box 0 -90 360 90",
        ] {
            let region: Region = text.parse().unwrap();
            assert_eq!(region.to_string(), text);
        }
    }

    #[test]
    fn case_and_commas_do_not_matter() {
        let plain: Region = "circle 10 -5 1.5".parse().unwrap();
        assert_eq!(" CIRCLE\t10, -5,1.5 ".parse(), Ok(plain));
    }

    #[test]
    fn errors_say_what_to_write() {
        let message = |text: &str| text.parse::<Region>().unwrap_err().to_string();
        assert!(message("").contains("is not a region; write"));
        assert!(message("square 1 2 3").starts_with("\"square 1 2 3\" is not a region"));
        assert!(message("circle 1 2").contains("takes 3 numbers, but 2 are given"));
        assert!(message("box 1 2 3").contains("box RA_MIN DEC_MIN RA_MAX DEC_MAX"));
        assert!(message("circle 1 x 3").starts_with("\"x\" in the region"));
        assert!(message("polygon 0 0 1 0 1").contains("two for each corner"));
        assert!(message("circle 1 95 1").contains("declination 95"));
        assert!(message("circle 1 5 -1").contains("radius -1"));
        assert!(message("circle nan 5 1").contains("right ascension NaN"));
        assert!(message("box 0 5 1 -5").contains("exchange the two"));
        assert!(message("ellipse 0 0 1 2 0").contains("larger one first"));
        assert!(message("ellipse 0 0 2 1 inf").contains("position angle inf"));
    }
}
