//! VOUnits: whether a text is a unit that other programs read.
//!
//! Source: *Units in the VO* 1.1 (Gray et al., IVOA Recommendation 2023), its grammar (appendix) and its table of known units.

use std::fmt::Write;

/// The known units that take SI prefixes.
const PREFIXED: &[&str] = &[
    "A", "a", "adu", "arcmin", "arcsec", "barn", "beam", "bin", "bit", "byte", "B", "C", "cd",
    "chan", "count", "ct", "d", "D", "deg", "erg", "eV", "F", "g", "G", "H", "h", "Hz", "J", "Jy",
    "K", "lm", "lx", "lyr", "m", "mag", "min", "mol", "N", "Ohm", "Pa", "pc", "ph", "photon",
    "pix", "pixel", "R", "rad", "Ry", "s", "S", "solLum", "solMass", "solRad", "sr", "T", "u", "V",
    "voxel", "W", "Wb", "yr",
];
/// Those that take none.
const PLAIN: &[&str] = &[
    "%", "Angstrom", "angstrom", "AU", "au", "Ba", "dB", "mas", "ta",
];
/// Those that take binary prefixes, too.
const BINARY: &[&str] = &["bit", "byte", "B"];
pub(crate) const SI_PREFIXES: &[&str] = &[
    "da", "y", "z", "a", "f", "p", "n", "u", "m", "c", "d", "h", "k", "M", "G", "T", "P", "E", "Z",
    "Y",
];
pub(crate) const BINARY_PREFIXES: &[&str] = &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const FUNCTIONS: &[&str] = &["log", "ln", "exp", "sqrt"];
/// What stands for a unit that nobody knows.
const UNKNOWN: &[&str] = &["unknown", "UNKNOWN"];
/// Words that are often written, and the unit that is meant.
const MEANT: &[(&str, &str)] = &[
    ("degree", "deg"),
    ("degrees", "deg"),
    ("arcminute", "arcmin"),
    ("arcsecond", "arcsec"),
    ("arcseconds", "arcsec"),
    ("sec", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("minute", "min"),
    ("hr", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("day", "d"),
    ("days", "d"),
    ("year", "yr"),
    ("years", "yr"),
    ("ABmag", "mag"),
    ("mags", "mag"),
    ("micron", "um"),
    ("pixels", "pixel"),
    ("counts", "count"),
    ("Ang", "Angstrom"),
    ("ohm", "Ohm"),
    ("Msun", "solMass"),
];
/// Parentheses within each other at most: a text is from a file of strangers.
const DEEPEST: usize = 32;

/// What is wrong with a unit, as a sentence without a point at its end; `None` if nothing is.
pub fn check_unit(text: &str) -> Option<String> {
    if text.is_empty() || UNKNOWN.contains(&text) {
        return None;
    }
    let mut parser = Parser {
        rest: text,
        depth: 0,
        unknown: Vec::new(),
    };
    match parser.input() {
        Err(reason) => Some(format!("{text:?} is no VOUnit: {reason}")),
        Ok(()) => unknown_words(text, &parser.unknown),
    }
}

fn unknown_words(text: &str, words: &[&str]) -> Option<String> {
    let [first, ..] = words else {
        return None;
    };
    let listed: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let mut sentence = match words {
        [only] if *only == text => format!("{only:?} is no unit that VOUnits know"),
        _ => format!("in {text:?} VOUnits do not know {}", listed.join(", ")),
    };
    if let Some((_, meant)) = MEANT.iter().find(|(word, _)| word == first) {
        // A String takes whatever is written.
        let _ = write!(sentence, "; did you mean {meant:?}?");
    }
    Some(sentence)
}

/// All known units, without prefixes.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    PREFIXED.iter().chain(PLAIN).copied()
}

fn is_known(symbol: &str) -> bool {
    let prefixed = |prefixes: &[&str], units: &[&str]| {
        let mut bases = prefixes.iter().filter_map(|it| symbol.strip_prefix(it));
        bases.any(|base| units.contains(&base))
    };
    PREFIXED.contains(&symbol)
        || PLAIN.contains(&symbol)
        || prefixed(SI_PREFIXES, PREFIXED)
        || prefixed(BINARY_PREFIXES, BINARY)
}

/// What is left of a text, and the words of it that are no known units. Each method reads one rule of the grammar.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    unknown: Vec<&'a str>,
}

type ParseResult = Result<(), String>;

impl<'a> Parser<'a> {
    fn input(&mut self) -> ParseResult {
        if self.rest == "1" {
            return Ok(());
        }
        self.scale_factor()?;
        if self.rest.starts_with('/') {
            return Err("a unit stands before each /; write d**-1 for 1/d".to_owned());
        }
        self.complete_expression()?;
        match self.rest.chars().next() {
            None => Ok(()),
            Some('/' | '.') => Err("only one unit follows a /; write J.m**-2.s**-1".to_owned()),
            Some('*') if self.rest.starts_with("**") => {
                Err("only a unit has a power, not what is in parentheses".to_owned())
            }
            Some('^' | '-' | '0'..='9') => Err("powers are written with **".to_owned()),
            Some('*') => Err("products are written with a point".to_owned()),
            Some(' ') => Err("it has blanks; products are written with a point".to_owned()),
            Some(other) => Err(format!("{other:?} is not expected there")),
        }
    }

    /// A number before the unit: a decimal one or a power of ten. There may be none.
    fn scale_factor(&mut self) -> ParseResult {
        let digits = number_length(self.rest);
        let number = self.take(digits);
        if number == "10" && self.rest.starts_with("**") {
            self.take(2);
            return self.numeric_power();
        }
        Ok(())
    }

    fn complete_expression(&mut self) -> ParseResult {
        self.unit_expression()?;
        while self.accept('.') {
            self.unit_expression()?;
        }
        match self.accept('/') {
            true => self.unit_expression(),
            false => Ok(()),
        }
    }

    fn unit_expression(&mut self) -> ParseResult {
        if self.accept('(') {
            return self.in_parentheses();
        }
        let symbol = self.symbol();
        if self.rest.starts_with('(') && !symbol.is_empty() {
            self.take(1);
            if !FUNCTIONS.contains(&symbol) {
                let known = FUNCTIONS.join(", ");
                return Err(format!("there is no function {symbol:?}, only {known}"));
            }
            return self.in_parentheses();
        }
        if self.accept('\'') {
            self.quoted(symbol)?;
        } else if symbol.is_empty() {
            return Err(match self.rest.chars().next() {
                None => "a unit is missing at its end".to_owned(),
                Some(other) => format!("a unit is missing before {other:?}"),
            });
        } else if !is_known(symbol) && !self.unknown.contains(&symbol) {
            self.unknown.push(symbol);
        }
        if self.rest.starts_with("**") {
            self.take(2);
            return self.numeric_power();
        }
        Ok(())
    }

    fn in_parentheses(&mut self) -> ParseResult {
        if self.depth == DEEPEST {
            return Err("it has too many parentheses within each other".to_owned());
        }
        self.depth += 1;
        self.complete_expression()?;
        self.depth -= 1;
        match self.accept(')') {
            true => Ok(()),
            false => Err("a parenthesis is not closed".to_owned()),
        }
    }

    /// The rest of a unit in quotes, which need not be known; before them may stand a prefix.
    fn quoted(&mut self, prefix: &str) -> ParseResult {
        let end = self.rest.find('\'').ok_or("a quote is not closed")?;
        let word = self.take(end);
        self.take(1);
        if word.is_empty() || !word.chars().all(|c| c.is_ascii_alphabetic() || c == '_') {
            return Err(format!("{word:?} in quotes is no word"));
        }
        let is_prefix = SI_PREFIXES.contains(&prefix) || BINARY_PREFIXES.contains(&prefix);
        match prefix.is_empty() || is_prefix {
            true => Ok(()),
            false => Err(format!("{prefix:?} before a quote is no prefix")),
        }
    }

    /// A whole number, or in parentheses a whole number, a decimal one or a fraction.
    fn numeric_power(&mut self) -> ParseResult {
        let wrong =
            || "a power is a whole number, or a number or a fraction in parentheses".to_owned();
        if !self.accept('(') {
            return self.integer().then_some(()).ok_or_else(wrong);
        }
        let is_whole = self.integer();
        let is_number = match (is_whole, self.rest.chars().next()) {
            (true, Some('.')) => {
                self.take(1);
                self.digits()
            }
            (true, Some('/')) => {
                self.take(1);
                self.digits()
            }
            (is_whole, _) => is_whole,
        };
        match is_number && self.accept(')') {
            true => Ok(()),
            false => Err(wrong()),
        }
    }

    fn integer(&mut self) -> bool {
        if self.rest.starts_with(['-', '+']) {
            self.take(1);
        }
        self.digits()
    }

    fn digits(&mut self) -> bool {
        !self.take_while(|c| c.is_ascii_digit()).is_empty()
    }

    fn symbol(&mut self) -> &'a str {
        match self.rest.starts_with('%') {
            true => self.take(1),
            false => self.take_while(|c| c.is_alphabetic() || c == '_'),
        }
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn accept(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

/// Bytes of the number at the beginning, such as `10`, `0.1` or `1.5e-3`; none if it begins with no digit.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let mut end = digits(0);
    if end == 0 {
        return 0;
    }
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = match bytes.len() > end + sign {
            true => digits(end + 1 + sign),
            false => 0,
        };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_catalogues_are_known() {
        for unit in [
            "",
            "1",
            "deg",
            "mas",
            "mas.yr**-1",
            "mas/yr",
            "nJy",
            "mag",
            "log(cm.s**-2)",
            "km/s",
            "10**-3mJy",
            "1e-20erg.s**-1.cm**-2",
            "0.1nm",
            "10eV",
            "Angstrom**-1",
            "m**(1/2)",
            "m**(-1.5)",
            "kg.(m/s)",
            "sqrt(W/Hz)",
            "KiB",
            "dam",
            "pixel**2",
            "%",
            "unknown",
            "'furlong'/'fortnight'",
            "m'furlong'",
            "Jy/beam",
            "d**-1",
            "deg**2",
            "sqrt(deg)",
        ] {
            assert_eq!(check_unit(unit), None);
        }
    }

    #[test]
    fn the_word_that_is_not_known_is_told() {
        for (unit, told) in [
            ("electron", "\"electron\" is no unit that VOUnits know"),
            (
                "degrees",
                "\"degrees\" is no unit that VOUnits know; did you mean \"deg\"?",
            ),
            ("adu/s.m", "only one unit follows a /"),
            ("kg.(m/s)**2", "only a unit has a power"),
            (
                "foo/bar",
                "in \"foo/bar\" VOUnits do not know \"foo\", \"bar\"",
            ),
            (
                "1/d",
                "\"1/d\" is no VOUnit: a unit stands before each /; write d**-1 for 1/d",
            ),
            ("m/s/s", "only one unit follows a /"),
            ("m^2", "powers are written with **"),
            ("deg.d-1", "powers are written with **"),
            ("m s", "blanks"),
            ("m*s", "products are written with a point"),
            ("m**", "a power is"),
            ("m**(1/)", "a power is"),
            ("(m", "a parenthesis is not closed"),
            ("m.", "a unit is missing at its end"),
            ("sin(m)", "there is no function \"sin\""),
            ("x'y'", "\"x\" before a quote is no prefix"),
            ("'y", "a quote is not closed"),
            ("2", "a unit is missing at its end"),
            ("µm", "\"µm\" is no unit"),
        ] {
            let sentence = check_unit(unit).unwrap_or_default();
            assert!(sentence.contains(told), "{unit}: {sentence}");
        }
    }

    #[test]
    fn whatever_is_written_is_answered() {
        let pieces = [
            "m", "(", ")", "**", "/", ".", "1", "e", "'", "é", "-", " ", "log", "10",
        ];
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    for d in pieces {
                        check_unit(&format!("{a}{b}{c}{d}"));
                    }
                }
            }
        }
        check_unit(&"(".repeat(100_000));
    }
}
