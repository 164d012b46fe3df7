//! Regions as STC-S writes them (*STC-S: Space-Time Coordinate Metadata Linear String Implementation* 1.33): the shapes that ADQL
//! has too, in degrees; and names of coordinate systems.

use super::compound::is_compound;

/// Words of a coordinate system that change nothing here: reference positions and flavours.
const WITHOUT_EFFECT: &[&str] = &[
    "BARYCENTER",
    "GEOCENTER",
    "HELIOCENTER",
    "TOPOCENTER",
    "UNKNOWNREFPOS",
    "RELOCATABLE",
    "SPHERICAL2",
];

/// Frames that STC-S and older queries name, and what the functions of frames call them.
const FRAMES: &[(&str, &str)] = &[
    ("ICRS", ICRS),
    // An unknown one is taken for that of tables.
    ("UNKNOWNFRAME", ICRS),
    ("FK5", "FK5"),
    ("J2000", "FK5"),
    ("FK4", "FK4"),
    ("B1950", "FK4"),
    ("GALACTIC", "GALACTIC"),
    ("GALACTIC_II", "GALACTIC"),
    ("ECLIPTIC", "ECLIPTIC"),
];

/// The frame of tables.
pub(super) const ICRS: &str = "ICRS";

/// Frames that STC-S names and that are not turned here.
const OTHER_FRAMES: &[&str] = &["SUPER_GALACTIC", "GEO_C", "GEO_D", "GSE", "GSM"];

/// What the text of a coordinate system says.
#[derive(Debug, PartialEq)]
pub(super) struct System {
    /// The frame in which positions are.
    pub frame: &'static str,
    /// The words that say nothing which is known.
    pub unknown: Vec<String>,
}

/// The system that a text names; without a frame that is known it is that of tables.
///
/// # Errors
/// It is a frame of which positions cannot be brought to that of tables.
pub(super) fn system(text: &str) -> Result<System, String> {
    let mut found = System {
        frame: ICRS,
        unknown: vec![],
    };
    for word in text.split_whitespace() {
        match frame(word)? {
            Some(frame) => found.frame = frame,
            None if is_without_effect(word) => {}
            None => found.unknown.push(word.to_owned()),
        }
    }
    Ok(found)
}

fn frame(word: &str) -> Result<Option<&'static str>, String> {
    let upper = word.to_ascii_uppercase();
    if OTHER_FRAMES.contains(&upper.as_str()) {
        return Err(format!(
            "positions of the coordinate system {word} cannot be brought to ICRS here; those of FK5, FK4, GALACTIC and ECLIPTIC can"
        ));
    }
    let known = FRAMES.iter().find(|(name, _)| *name == upper);
    Ok(known.map(|(_, frame)| *frame))
}

fn is_without_effect(word: &str) -> bool {
    WITHOUT_EFFECT.contains(&word.to_ascii_uppercase().as_str())
}

/// A region of STC-S.
#[derive(Debug, PartialEq)]
pub(super) struct Region {
    /// The constructor that makes it.
    pub constructor: &'static str,
    /// What the constructor takes.
    pub numbers: Vec<f64>,
    /// The frame in which it is.
    pub frame: &'static str,
}

/// Whether a word is the name of a shape.
pub(super) fn is_shape(word: &str) -> bool {
    ["POSITION", "CIRCLE", "BOX", "POLYGON"]
        .iter()
        .any(|shape| shape.eq_ignore_ascii_case(word))
}

/// What a word of a coordinate system says: a frame, or nothing that matters; `None` if it is no such word.
pub(super) fn system_word(word: &str) -> Result<Option<Option<&'static str>>, String> {
    match frame(word)? {
        Some(frame) => Ok(Some(Some(frame))),
        None => Ok(is_without_effect(word).then_some(None)),
    }
}

/// The region that a text describes.
pub(super) fn region(text: &str) -> Result<Region, String> {
    if is_compound(text) {
        return Err(format!(
            "the region '{text}' is made of others, and no shape: it may be the second of CONTAINS and INTERSECTS"
        ));
    }
    region_in(text, ICRS)
}

/// The same, in a frame, unless it says another.
pub(super) fn region_in(text: &str, frame_of_others: &'static str) -> Result<Region, String> {
    let mut words = text.split_whitespace().peekable();
    let shape = words.next().unwrap_or("").to_ascii_uppercase();
    let (constructor, fits, wanted): (_, fn(usize) -> bool, _) = match shape.as_str() {
        "POSITION" => ("adql_point", |n| n == 2, "ra dec"),
        "CIRCLE" => ("adql_circle", |n| n == 3, "ra dec radius"),
        "BOX" => ("adql_box", |n| n == 4, "ra dec width height"),
        "POLYGON" => (
            "adql_polygon",
            |n| n >= 6 && n.is_multiple_of(2),
            "ra dec ra dec ra dec ...",
        ),
        _ => {
            return Err(format!(
                "the region '{text}' cannot be read: it begins with none of POSITION, CIRCLE, BOX and POLYGON"
            ));
        }
    };
    // A frame, a reference position and a flavour may stand before the numbers, and what they are for after FILLFACTOR.
    let mut of_region = frame_of_others;
    while let Some(word) = words.next_if(|word| word.parse::<f64>().is_err()) {
        match frame(word)? {
            Some(frame) => of_region = frame,
            None if is_without_effect(word) => {}
            None => {
                return Err(format!(
                    "\"{word}\" in the region '{text}' is neither a number nor a coordinate system"
                ));
            }
        }
    }
    let mut numbers = Vec::new();
    while let Some(word) = words.next() {
        match (word.parse::<f64>(), word.to_ascii_uppercase().as_str()) {
            (Ok(number), _) if number.is_finite() => numbers.push(number),
            // Degrees are what they are anyway.
            (_, "UNIT")
                if words
                    .next_if(|unit| unit.eq_ignore_ascii_case("deg"))
                    .is_some() => {}
            _ => {
                return Err(format!(
                    "\"{word}\" in the region '{text}' is not supported; write {shape} ICRS {wanted}, in degrees"
                ));
            }
        }
    }
    if !fits(numbers.len()) {
        return Err(format!(
            "the region '{text}' has {} numbers; write {shape} ICRS {wanted}, in degrees",
            numbers.len()
        ));
    }
    Ok(Region {
        constructor,
        numbers,
        frame: of_region,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_constructors() {
        for (text, expected) in [
            (
                "Circle ICRS 10.5 -3 0.1",
                ("adql_circle", vec![10.5, -3.0, 0.1], ICRS),
            ),
            (
                "CIRCLE 1 2 3 unit deg",
                ("adql_circle", vec![1.0, 2.0, 3.0], ICRS),
            ),
            (
                "position icrs geocenter spherical2 1e1 +2",
                ("adql_point", vec![10.0, 2.0], ICRS),
            ),
            (
                "BOX UNKNOWNFrame 1 2 3 4",
                ("adql_box", vec![1.0, 2.0, 3.0, 4.0], ICRS),
            ),
            (
                " POLYGON ICRS 1 2 3 4 5 -6 ",
                ("adql_polygon", vec![1.0, 2.0, 3.0, 4.0, 5.0, -6.0], ICRS),
            ),
            (
                "Circle Galactic barycenter 1 2 3",
                ("adql_circle", vec![1.0, 2.0, 3.0], "GALACTIC"),
            ),
        ] {
            let (constructor, numbers, frame) = expected;
            let expected = Region {
                constructor,
                numbers,
                frame,
            };
            assert_eq!(region(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn systems_are_known_turned_or_ignored() {
        for (text, frame, unknown) in [
            ("", ICRS, vec![]),
            ("icrs geocenter", ICRS, vec![]),
            ("J2000", "FK5", vec![]),
            ("Galactic_II TOPOCENTER", "GALACTIC", vec![]),
            ("FK6 X", ICRS, vec!["FK6".to_owned(), "X".to_owned()]),
        ] {
            assert_eq!(system(text), Ok(System { frame, unknown }), "{text}");
        }
        assert!(system("SUPER_GALACTIC").is_err());
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, part) in [
            ("", "begins with none of"),
            ("Union ICRS (Circle 1 2 3)", "is made of others"),
            ("ELLIPSE 1 2 3", "begins with none of"),
            ("CIRCLE GSE 1 2 3", "GSE cannot be brought to ICRS"),
            ("CIRCLE ICRS 1 2", "has 2 numbers"),
            ("CIRCLE ICRS 1 2 x", "\"x\""),
            ("CIRCLE IKRS 1 2 3", "neither a number nor"),
            ("CIRCLE ICRS 1 2 3 unit arcsec", "not supported"),
            ("POLYGON 1 2 3 4 5", "has 5 numbers"),
            ("CIRCLE 1 2 inf", "not supported"),
        ] {
            let error = region(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
