//! Conversions of VOUnits: by what factor a number changes when it is given in another unit.
//!
//! Constants: *The International System of Units*, 9th edition (BIPM, 2019); IAU Resolutions 2012 B2 (astronomical unit) and 2015 B3 (nominal
//! solar values); CODATA 2022 (atomic mass, Rydberg energy), which is also where the mass of the Sun comes from.

use std::fmt::Write;

use crate::units::{BINARY_PREFIXES, SI_PREFIXES, check_unit};

/// What units are made of: SI's base units, the radian, and what is counted.
const BASES: [&str; 20] = [
    "m", "kg", "s", "A", "K", "mol", "cd", "rad", "mag", "ct", "ph", "adu", "pix", "vox", "bit",
    "beam", "chan", "bin", "dB", "Ba",
];

/// A unit, how many of its base units it is, and these with their powers.
type UnitRow = (&'static str, f64, &'static [(&'static str, f64)]);

/// Units, each with its factor and the bases and powers that it is made of.
const UNITS: &[UnitRow] = &[
    ("g", 1e-3, &[("kg", 1.0)]),
    ("min", 60.0, &[("s", 1.0)]),
    ("h", 3600.0, &[("s", 1.0)]),
    ("d", 86_400.0, &[("s", 1.0)]),
    ("yr", 31_557_600.0, &[("s", 1.0)]),
    ("a", 31_557_600.0, &[("s", 1.0)]),
    ("Hz", 1.0, &[("s", -1.0)]),
    ("N", 1.0, &[("kg", 1.0), ("m", 1.0), ("s", -2.0)]),
    ("Pa", 1.0, &[("kg", 1.0), ("m", -1.0), ("s", -2.0)]),
    ("J", 1.0, ENERGY),
    ("erg", 1e-7, ENERGY),
    ("eV", 1.602_176_634e-19, ENERGY),
    ("Ry", 2.179_872_361_102_988_8e-18, ENERGY),
    ("W", 1.0, POWER),
    ("solLum", 3.828e26, POWER),
    ("C", 1.0, &[("A", 1.0), ("s", 1.0)]),
    (
        "V",
        1.0,
        &[("kg", 1.0), ("m", 2.0), ("s", -3.0), ("A", -1.0)],
    ),
    (
        "Ohm",
        1.0,
        &[("kg", 1.0), ("m", 2.0), ("s", -3.0), ("A", -2.0)],
    ),
    (
        "S",
        1.0,
        &[("kg", -1.0), ("m", -2.0), ("s", 3.0), ("A", 2.0)],
    ),
    (
        "F",
        1.0,
        &[("kg", -1.0), ("m", -2.0), ("s", 4.0), ("A", 2.0)],
    ),
    (
        "Wb",
        1.0,
        &[("kg", 1.0), ("m", 2.0), ("s", -2.0), ("A", -1.0)],
    ),
    (
        "H",
        1.0,
        &[("kg", 1.0), ("m", 2.0), ("s", -2.0), ("A", -2.0)],
    ),
    ("T", 1.0, FLUX_DENSITY),
    ("G", 1e-4, FLUX_DENSITY),
    ("D", 1e-29 / 3.0, &[("A", 1.0), ("m", 1.0), ("s", 1.0)]),
    ("lm", 1.0, &[("cd", 1.0), ("rad", 2.0)]),
    ("lx", 1.0, &[("cd", 1.0), ("rad", 2.0), ("m", -2.0)]),
    ("sr", 1.0, &[("rad", 2.0)]),
    ("deg", DEGREE, ANGLE),
    ("arcmin", DEGREE / 60.0, ANGLE),
    ("arcsec", DEGREE / 3600.0, ANGLE),
    ("mas", DEGREE / 3.6e6, ANGLE),
    ("Jy", 1e-26, &[("kg", 1.0), ("s", -2.0)]),
    (
        "R",
        1e10 / (4.0 * std::f64::consts::PI),
        &[("ph", 1.0), ("m", -2.0), ("s", -1.0), ("rad", -2.0)],
    ),
    ("Angstrom", 1e-10, LENGTH),
    ("angstrom", 1e-10, LENGTH),
    ("au", 149_597_870_700.0, LENGTH),
    ("AU", 149_597_870_700.0, LENGTH),
    ("pc", 3.085_677_581_491_367e16, LENGTH),
    ("lyr", 9_460_730_472_580_800.0, LENGTH),
    ("solRad", 6.957e8, LENGTH),
    ("barn", 1e-28, &[("m", 2.0)]),
    ("solMass", 1.988_409_870_698_051e30, &[("kg", 1.0)]),
    ("u", 1.660_539_068_92e-27, &[("kg", 1.0)]),
    ("count", 1.0, &[("ct", 1.0)]),
    ("photon", 1.0, &[("ph", 1.0)]),
    ("pixel", 1.0, &[("pix", 1.0)]),
    ("voxel", 1.0, &[("vox", 1.0)]),
    ("byte", 8.0, &[("bit", 1.0)]),
    ("B", 8.0, &[("bit", 1.0)]),
    ("%", 0.01, &[]),
];
const DEGREE: f64 = std::f64::consts::PI / 180.0;
const LENGTH: &[(&str, f64)] = &[("m", 1.0)];
const ANGLE: &[(&str, f64)] = &[("rad", 1.0)];
const ENERGY: &[(&str, f64)] = &[("kg", 1.0), ("m", 2.0), ("s", -2.0)];
const POWER: &[(&str, f64)] = &[("kg", 1.0), ("m", 2.0), ("s", -3.0)];
const FLUX_DENSITY: &[(&str, f64)] = &[("kg", 1.0), ("s", -2.0), ("A", -1.0)];

/// Powers that differ by less are one: they are sums of few fractions.
const SAME_POWER: f64 = 1e-9;

/// By what a number in one unit is multiplied to be in another, which measures the same.
///
/// # Errors
/// One of them is no VOUnit or has none of a size, as a logarithm; or they measure different things: a sentence.
pub fn conversion(from: &str, to: &str) -> Result<f64, String> {
    let (has, wanted) = (Measure::read(from)?, Measure::read(to)?);
    if !has.measures_what(&wanted) {
        return Err(format!(
            "{from:?} and {to:?} measure different things ({} and {})",
            has.dimension(),
            wanted.dimension()
        ));
    }
    // Of the same units the factor is exactly 1.
    Ok(has.factor / wanted.factor)
}

/// A unit as a factor and the powers of [`BASES`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measure {
    factor: f64,
    powers: [f64; BASES.len()],
}

impl Measure {
    const ONE: Self = Self {
        factor: 1.0,
        powers: [0.0; BASES.len()],
    };

    fn read(text: &str) -> Result<Self, String> {
        if let Some(sentence) = check_unit(text) {
            return Err(sentence);
        }
        if text.is_empty() || text == "1" {
            return Ok(Self::ONE);
        }
        let sizeless = || format!("{text:?} has no size that is known");
        let (scale, rest) = scale(text);
        let mut reader = Reader { rest };
        let measure = reader.product().ok_or_else(sizeless)?;
        match reader.rest.is_empty() {
            true => Ok(Self {
                factor: scale * measure.factor,
                ..measure
            }),
            false => Err(sizeless()),
        }
    }

    fn named(symbol: &str) -> Option<Self> {
        if let Some(found) = Self::without_prefix(symbol) {
            return Some(found);
        }
        // `da` before `d`.
        let prefixed = |(prefix, factor): (&&str, f64)| {
            let base = Self::without_prefix(symbol.strip_prefix(prefix)?)?;
            Some(Self {
                factor: factor * base.factor,
                ..base
            })
        };
        let si = SI_PREFIXES.iter().zip(SI_FACTORS);
        let binary = BINARY_PREFIXES.iter().zip((1..).map(|n| 1024_f64.powi(n)));
        si.chain(binary).find_map(prefixed)
    }

    fn without_prefix(symbol: &str) -> Option<Self> {
        let mut measure = Self::ONE;
        if let Some(at) = BASES.iter().position(|base| *base == symbol) {
            measure.powers[at] = 1.0;
            return Some(measure);
        }
        let (_, factor, parts) = UNITS.iter().find(|(name, ..)| *name == symbol)?;
        measure.factor = *factor;
        for (base, power) in *parts {
            let at = BASES.iter().position(|known| known == base)?;
            measure.powers[at] = *power;
        }
        Some(measure)
    }

    fn times(mut self, other: Self, power: f64) -> Self {
        self.factor *= other.factor.powf(power);
        for (mine, others) in self.powers.iter_mut().zip(other.powers) {
            *mine += power * others;
        }
        self
    }

    fn measures_what(&self, other: &Self) -> bool {
        let mut pairs = self.powers.iter().zip(&other.powers);
        pairs.all(|(a, b)| (a - b).abs() < SAME_POWER)
    }

    /// What it measures, in base units.
    fn dimension(&self) -> String {
        let mut text = String::new();
        let known = BASES.iter().zip(self.powers);
        for (base, power) in known.filter(|(_, power)| power.abs() > SAME_POWER) {
            let point = if text.is_empty() { "" } else { "." };
            // A String takes whatever is written.
            let _ = match (power - 1.0).abs() < SAME_POWER {
                true => write!(text, "{point}{base}"),
                false => write!(text, "{point}{base}**{power}"),
            };
        }
        match text.is_empty() {
            true => "a plain number".to_owned(),
            false => text,
        }
    }
}

/// Factors of [`SI_PREFIXES`].
const SI_FACTORS: [f64; 20] = [
    1e1, 1e-24, 1e-21, 1e-18, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 1e-2, 1e-1, 1e2, 1e3, 1e6, 1e9, 1e12,
    1e15, 1e18, 1e21, 1e24,
];

/// The number before a unit, and the unit.
fn scale(text: &str) -> (f64, &str) {
    if let Some(rest) = text.strip_prefix("10**") {
        let mut reader = Reader { rest };
        return match reader.power() {
            Some(power) => (10_f64.powf(power), reader.rest),
            None => (1.0, text),
        };
    }
    // The longest beginning that is a number; `1e` alone is none.
    let longest = (1..=text.len())
        .rev()
        .filter(|end| text.is_char_boundary(*end) && text.starts_with(|c: char| c.is_ascii_digit()))
        .find_map(|end| Some((text[..end].parse().ok()?, &text[end..])));
    longest.unwrap_or((1.0, text))
}

/// Reads what [`check_unit`] has accepted.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn product(&mut self) -> Option<Measure> {
        let mut product = self.factor()?;
        while self.accept(".") {
            product = product.times(self.factor()?, 1.0);
        }
        match self.accept("/") {
            true => Some(product.times(self.factor()?, -1.0)),
            false => Some(product),
        }
    }

    fn factor(&mut self) -> Option<Measure> {
        if self.accept("(") {
            let inner = self.product()?;
            return self.accept(")").then_some(inner);
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_alphabetic() || c == '_' || c == '%'));
        let (symbol, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        if symbol == "sqrt" && self.accept("(") {
            let inner = self.product()?;
            return self.accept(")").then(|| Measure::ONE.times(inner, 0.5));
        }
        let unit = Measure::named(symbol)?;
        match self.accept("**") {
            true => Some(Measure::ONE.times(unit, self.power()?)),
            false => Some(unit),
        }
    }

    fn power(&mut self) -> Option<f64> {
        let in_parentheses = self.accept("(");
        let number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
        let mut take = || -> Option<f64> {
            let end = self.rest.find(|c| !number(c)).unwrap_or(self.rest.len());
            let end = if in_parentheses {
                end
            } else {
                // A point after a whole power is a product's.
                self.rest[..end].find('.').unwrap_or(end)
            };
            let (digits, rest) = self.rest.split_at(end);
            self.rest = rest;
            digits.parse().ok()
        };
        let mut power = take()?;
        if in_parentheses {
            if self.rest.starts_with('/') {
                self.rest = &self.rest[1..];
                let end = self.rest.find(')')?;
                let (digits, rest) = self.rest.split_at(end);
                self.rest = rest;
                power /= digits.parse::<f64>().ok()?;
            }
            return self.accept(")").then_some(power);
        }
        Some(power)
    }

    fn accept(&mut self, wanted: &str) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_change_by_a_factor() {
        for (from, to, factor) in [
            ("deg", "arcsec", 3600.0),
            ("deg", "deg", 1.0),
            ("mas/yr", "deg.d**-1", 1.0 / 3.6e6 / 365.25),
            ("mas.yr**-1", "arcsec/yr", 1e-3),
            ("nJy", "Jy", 1e-9),
            ("10**-3mJy", "uJy", 1.0),
            ("1e-20erg.s**-1.cm**-2", "W.m**-2", 1e-23),
            ("km/s", "m.s**-1", 1000.0),
            ("deg**2", "arcmin**2", 3600.0),
            ("sr", "deg**2", (180.0 / std::f64::consts::PI).powi(2)),
            ("m**(1/2)", "cm**(0.5)", 10.0),
            ("sqrt(W/Hz)", "sqrt(J)", 1.0),
            ("kg.(m/s)", "g.km.s**-1", 1.0),
            ("Angstrom", "0.1nm", 1.0),
            ("count/s", "ct/min", 60.0),
            ("%", "1", 0.01),
            ("mag", "mmag", 1000.0),
            ("KiB", "bit", 8192.0),
            ("Myr", "yr", 1e6),
            ("10eV", "keV", 0.01),
            ("dam", "m", 10.0),
        ] {
            let found = conversion(from, to).unwrap();
            assert!((found / factor - 1.0).abs() < 1e-14, "{from} {to} {found}");
        }
    }

    #[test]
    fn what_does_not_measure_the_same_is_told() {
        for (from, to, told) in [
            ("deg", "m", "measure different things (rad and m)"),
            ("mas/yr", "mas", "(s**-1.rad and rad)"),
            ("1", "deg", "(a plain number and rad)"),
            ("log(cm)", "cm", "has no size that is known"),
            ("unknown", "m", "has no size that is known"),
            ("'furlong'", "m", "has no size that is known"),
            ("degrees", "deg", "did you mean \"deg\""),
            ("deg", "", "measure different things"),
        ] {
            let error = conversion(from, to).unwrap_err();
            assert!(error.contains(told), "{from} {to}: {error}");
        }
    }

    /// Every unit that is known is made of bases, or has no size for a reason.
    #[test]
    fn all_known_units_have_sizes() {
        let sizeless = ["ta"];
        for unit in crate::units::all() {
            let found = Measure::named(unit).is_some();
            assert_eq!(found, !sizeless.contains(&unit), "{unit}");
        }
    }

    #[test]
    fn whatever_is_written_is_answered() {
        let pieces = [
            "m", "(", ")", "**", "/", ".", "1", "e", "'", "é", "-", "sqrt", "log", "10",
        ];
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    for d in pieces {
                        let _ = conversion(&format!("{a}{b}{c}{d}"), "m");
                    }
                }
            }
        }
    }
}
