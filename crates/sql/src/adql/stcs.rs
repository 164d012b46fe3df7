//! Regions as STC-S writes them (*STC-S: Space-Time Coordinate Metadata Linear String Implementation* 1.33): the shapes that ADQL
//! has too, in the ICRS and in degrees.

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

/// Frames whose positions are those of tables. An unknown one is taken for that of tables.
const OWN_FRAMES: &[&str] = &["ICRS", "UNKNOWNFRAME"];

/// Other frames that STC-S names.
const OTHER_FRAMES: &[&str] = &[
    "FK4",
    "FK5",
    "J2000",
    "B1950",
    "GALACTIC",
    "GALACTIC_II",
    "SUPER_GALACTIC",
    "ECLIPTIC",
    "GEO_C",
    "GEO_D",
    "GSE",
    "GSM",
];

/// Whether positions of a system are those of tables.
pub(super) fn check_system(system: &str) -> Result<(), String> {
    for word in system.split_whitespace() {
        check_word(word)?;
    }
    Ok(())
}

fn check_word(word: &str) -> Result<(), String> {
    let upper = word.to_ascii_uppercase();
    let upper = upper.as_str();
    if OWN_FRAMES.contains(&upper) || WITHOUT_EFFECT.contains(&upper) {
        return Ok(());
    }
    Err(format!(
        "the coordinate system {word} is not supported: positions are in ICRS; \
         ivo_geom_transform('{upper}', 'ICRS', ...) brings a geometry of another frame to it"
    ))
}

/// The constructor of a region, and its numbers.
pub(super) fn region(text: &str) -> Result<(&'static str, Vec<f64>), String> {
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
    while let Some(word) = words.next_if(|word| word.parse::<f64>().is_err()) {
        let known = OTHER_FRAMES.contains(&word.to_ascii_uppercase().as_str());
        if !known && check_word(word).is_err() {
            return Err(format!(
                "\"{word}\" in the region '{text}' is neither a number nor a coordinate system"
            ));
        }
        check_word(word)?;
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
    Ok((constructor, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_constructors() {
        for (text, expected) in [
            (
                "Circle ICRS 10.5 -3 0.1",
                ("adql_circle", vec![10.5, -3.0, 0.1]),
            ),
            (
                "CIRCLE 1 2 3 unit deg",
                ("adql_circle", vec![1.0, 2.0, 3.0]),
            ),
            (
                "position icrs geocenter spherical2 1e1 +2",
                ("adql_point", vec![10.0, 2.0]),
            ),
            (
                "BOX UNKNOWNFrame 1 2 3 4",
                ("adql_box", vec![1.0, 2.0, 3.0, 4.0]),
            ),
            (
                " POLYGON ICRS 1 2 3 4 5 -6 ",
                ("adql_polygon", vec![1.0, 2.0, 3.0, 4.0, 5.0, -6.0]),
            ),
        ] {
            assert_eq!(region(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, part) in [
            ("", "begins with none of"),
            ("Union ICRS (Circle 1 2 3)", "begins with none of"),
            ("CIRCLE GALACTIC 1 2 3", "GALACTIC is not supported"),
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
