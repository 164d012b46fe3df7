//! The parameters of a request: its query string.

use axum::extract::Query;
use axum::http::Uri;
use axum::http::uri::PathAndQuery;

use super::problem::Problem;

/// The parameters of a request, by their names in upper case.
#[derive(Debug)]
pub(crate) struct RequestParameters(Vec<(String, String)>);

impl RequestParameters {
    pub(crate) fn read(query: &str) -> Result<Self, Problem> {
        let wrong = || {
            Problem::bad("the parameters cannot be read: write them as in ?name=value&other=value")
        };
        let path = PathAndQuery::try_from(format!("/?{query}")).map_err(|_| wrong())?;
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&Uri::from(path));
        let Query(pairs) = pairs.map_err(|_| wrong())?;
        Ok(Self::of(pairs))
    }

    /// The parameters of an address and of a form, which may be long.
    pub(crate) fn read_form(query: &str, form: &[u8]) -> Result<Self, Problem> {
        let mut all = Self::read(query)?;
        let pairs = form_urlencoded::parse(form).into_owned().collect();
        all.0.extend(Self::of(pairs).0);
        Ok(all)
    }

    /// Parameters of these names and values.
    pub(crate) fn of(pairs: Vec<(String, String)>) -> Self {
        let folded = pairs.into_iter();
        let folded = folded.map(|(name, value)| (name.to_ascii_uppercase(), value));
        Self(folded.collect())
    }

    /// All names, in upper case, and values.
    pub(crate) fn all(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of a parameter, if it is given and not empty.
    ///
    /// # Errors
    /// It is given several times.
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
}
