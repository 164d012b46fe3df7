//! The parameters of a query, from the address or from a form.

use super::TapError;
use crate::formats::Format;
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;

/// Names of the language.
const LANGUAGES: [&str; 3] = ["ADQL", "ADQL-2.0", "ADQL-2.1"];

/// A query and how its rows are wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TapRequest {
    /// In ADQL.
    pub(super) statement: String,
    pub(super) format: Format,
    /// The most rows that are wanted.
    pub(super) max_rows: Option<u64>,
}

impl TapRequest {
    /// Reads REQUEST, LANG, QUERY, RESPONSEFORMAT (or FORMAT) and MAXREC. Others are ignored.
    ///
    /// # Errors
    /// One of them is missing or has no such value.
    pub(super) fn read(parameters: &RequestParameters) -> Result<Self, Problem> {
        if let Some(request) = parameters.value("REQUEST")?
            && !request.eq_ignore_ascii_case("doQuery")
        {
            return Err(Problem::bad(format!(
                "REQUEST is {request}: leave it out, or give doQuery"
            )));
        }
        if let Some(language) = parameters.value("LANG")?
            && !LANGUAGES.iter().any(|it| it.eq_ignore_ascii_case(language))
        {
            return Err(Problem::bad(format!(
                "LANG is {language}: it is one of {}; SQL in MySQL's dialect is for connections of its protocol and for POST /queries",
                LANGUAGES.join(", ")
            )));
        }
        let statement = parameters.value("QUERY")?.ok_or_else(|| {
            Problem::bad("QUERY is missing: the query in ADQL, as in QUERY=SELECT TOP 5 * FROM TAP_SCHEMA.tables")
        })?;
        Ok(Self {
            statement: statement.to_owned(),
            format: format(parameters)?,
            max_rows: parameters.count("MAXREC")?,
        })
    }
}

fn format(parameters: &RequestParameters) -> Result<Format, Problem> {
    let given = match parameters.value("RESPONSEFORMAT")? {
        Some(name) => Some(name),
        None => parameters.value("FORMAT")?,
    };
    let Some(name) = given else {
        return Ok(Format::Binary2);
    };
    Format::named(name).ok_or_else(|| {
        Problem::bad(format!(
            "RESPONSEFORMAT is {name}: it is one of votable, votable/td, csv, tsv, json, or their media types"
        ))
    })
}

/// The parameters of an address alone.
pub(super) fn of_address(query: Option<&str>) -> Result<RequestParameters, TapError> {
    Ok(RequestParameters::read(query.unwrap_or_default())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<TapRequest, String> {
        let parameters = RequestParameters::read(query).unwrap();
        TapRequest::read(&parameters).map_err(|problem| problem.sentence)
    }

    #[test]
    fn a_query_has_a_language_and_a_format() {
        let request =
            read("request=doQuery&lang=adql-2.1&query=SELECT+1&maxrec=5&FORMAT=csv&x=y").unwrap();
        assert_eq!(request.statement, "SELECT 1");
        assert_eq!((request.format, request.max_rows), (Format::Csv, Some(5)));
        let both = read("QUERY=SELECT+1&RESPONSEFORMAT=votable/td&FORMAT=csv").unwrap();
        assert_eq!(both.format, Format::TableData);
        for (query, sentence) in [
            ("", "QUERY is missing"),
            ("LANG=PQL&QUERY=SELECT+1", "LANG is PQL"),
            ("REQUEST=getCapabilities", "REQUEST is getCapabilities"),
            ("QUERY=SELECT+1&FORMAT=fits", "RESPONSEFORMAT is fits"),
            ("QUERY=SELECT+1&MAXREC=-1", "MAXREC is no whole number"),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(sentence), "{query}: {error}");
        }
    }
}
