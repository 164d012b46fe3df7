//! The parameters of a request: its query string.

use std::collections::HashSet;

use axum::extract::Query;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;

use super::problem::Problem;

const FORMAT: &str = "FORMAT";
/// Parameters whose values have no case.
const WORDS: [&str; 4] = [FORMAT, "RESPONSEFORMAT", "LANG", "REQUEST"];

/// The parameters of a request, by their names in upper case.
#[derive(Debug)]
pub(crate) struct RequestParameters(Vec<(String, String)>);

impl RequestParameters {
    pub(crate) fn read(query: &str) -> Result<Self, Problem> {
        Ok(Self::of(pairs(query)?))
    }

    /// The parameters of an address and of a form, which may be long.
    pub(crate) fn read_form(query: &str, form: &[u8]) -> Result<Self, Problem> {
        let mut all = pairs(query)?;
        all.extend(form_urlencoded::parse(form).into_owned());
        Ok(Self::of(all))
    }

    /// Parameters of these names and values. One that is given several times with the same value is there once; of several values of FORMAT
    /// there is the one whose name is in capitals, if that is one.
    ///
    /// astroquery sends `FORMAT` for the result and `format` for a table that it uploads.
    pub(crate) fn of(mut pairs: Vec<(String, String)>) -> Self {
        let mut standard = pairs.iter().filter(|(name, _)| name == FORMAT);
        if let Some((_, first)) = standard.next()
            && standard.all(|(_, value)| compared(FORMAT, first) == compared(FORMAT, value))
        {
            pairs.retain(|(name, _)| name == FORMAT || !name.eq_ignore_ascii_case(FORMAT));
        }
        let mut known = HashSet::new();
        let mut all = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            let name = name.to_ascii_uppercase();
            if known.insert((name.clone(), compared(&name, &value))) {
                all.push((name, value));
            }
        }
        Self(all)
    }

    /// All names, in upper case, and values.
    pub(crate) fn all(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of a parameter, if it is given and not empty.
    ///
    /// # Errors
    /// It is given several times, with different values.
    pub(crate) fn value(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(given, _)| given == name);
        let value = values.next().map(|(_, value)| value.trim());
        if values.next().is_some() {
            return Err(Problem::bad(format!(
                "{name} is given more than once: give it once"
            )));
        }
        Ok(value.filter(|value| !value.is_empty()))
    }

    /// A whole number that is not negative, if it is given.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.value(name)? else {
            return Ok(None);
        };
        let wrong = || Problem::bad(format!("{name} is no whole number of rows: {value}"));
        value.parse().map(Some).map_err(|_| wrong())
    }
}

/// The names and values of an address, as they are written.
pub(crate) fn pairs(query: &str) -> Result<Vec<(String, String)>, Problem> {
    let wrong =
        || Problem::bad("the parameters cannot be read: write them as in ?name=value&other=value");
    let path = PathAndQuery::try_from(format!("/?{query}")).map_err(|_| wrong())?;
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(&Uri::from(path));
    let Query(pairs) = pairs.map_err(|_| wrong())?;
    Ok(pairs)
}

/// What two values of a parameter, whose name is in upper case, share that say the same.
fn compared(name: &str, value: &str) -> String {
    let value = value.trim();
    match WORDS.contains(&name) {
        true => value.to_ascii_lowercase(),
        false => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    #[test]
    fn strange_parameters_do_no_harm() {
        let usual = [
            "QUERY=SELECT+1%20FROM%C3%A9&LANG=ADQL&MAXREC=10&maxrec=&RESPONSEFORMAT=votable%2Ftd",
            "RA=10.5&DEC=-20&SR=0.5&=&&a=b=c&%=%2&UPLOAD=mine,param:t",
        ];
        feed(
            "parameters of requests",
            &usual.map(str::as_bytes),
            |bytes| {
                let text = String::from_utf8_lossy(bytes);
                let read = [
                    RequestParameters::read(&text),
                    RequestParameters::read_form("", bytes),
                ];
                for read in read.into_iter().flatten() {
                    let _ = (read.value("QUERY"), read.count("MAXREC"), read.all().len());
                }
            },
        );
    }

    /// astroquery sends `FORMAT=votable` and `format=votable` with a table that it uploads: "FORMAT is given more than once".
    #[test]
    fn parameters_may_be_given_several_times_with_one_value() {
        for (query, name, value) in [
            ("FORMAT=votable&format=votable", "FORMAT", Some("votable")),
            ("format=VOTable&Format=votable", "FORMAT", Some("VOTable")),
            ("format=votable&FORMAT=csv", "FORMAT", Some("csv")),
            (
                "FORMAT=csv&format=votable&FORMAT=CSV",
                "FORMAT",
                Some("csv"),
            ),
            ("LANG=ADQL&lang=adql", "LANG", Some("ADQL")),
            ("MAXREC=5&MAXREC=5", "MAXREC", Some("5")),
            ("FORMAT=csv&FORMAT=tsv", "FORMAT", None),
            ("FORMAT=csv&format=json&FORMAT=tsv", "FORMAT", None),
            ("format=csv&Format=tsv", "FORMAT", None),
            (
                "RESPONSEFORMAT=csv&responseformat=tsv",
                "RESPONSEFORMAT",
                None,
            ),
            ("QUERY=SELECT+1&query=select+1", "QUERY", None),
        ] {
            let given = [
                RequestParameters::read(query).unwrap(),
                RequestParameters::read_form("", query.as_bytes()).unwrap(),
            ];
            for given in given {
                let found = given.value(name).ok().flatten();
                assert_eq!(found, value, "{query}");
            }
        }
        let both = RequestParameters::read_form("format=votable", b"FORMAT=csv").unwrap();
        assert_eq!(both.value("FORMAT").unwrap(), Some("csv"));
    }
}
