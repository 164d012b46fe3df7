//! The parameters of a query, from the address or from a form.

use super::TapError;
use crate::ClientError;
use arrow::datatypes::SchemaRef;
use result_formats::ResultFormat;
use sql::Warning;

use crate::formats::{FileWriter, Format, RowWriter, TableColumn, TableWriter};
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;

/// Names of the language.
const LANGUAGES: [&str; 3] = ["ADQL", "ADQL-2.0", "ADQL-2.1"];

/// A query and how its rows are wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TapRequest {
    /// In ADQL.
    pub(super) statement: String,
    pub(super) format: TapFormat,
    /// The most rows that are wanted.
    pub(super) max_rows: Option<u64>,
    /// The time of whose state alert databases are read.
    pub(super) as_of: Option<String>,
}

impl TapRequest {
    /// Reads REQUEST, LANG, QUERY, RESPONSEFORMAT (or FORMAT), MAXREC and ASOF (or MERIDIAN_AS_OF). Others are ignored.
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
        let as_of = match (
            parameters.value("ASOF")?,
            parameters.value("MERIDIAN_AS_OF")?,
        ) {
            (Some(one), Some(other)) if one != other => {
                return Err(Problem::bad(format!(
                    "ASOF is {one} and MERIDIAN_AS_OF is {other}: give one of them, they are the same parameter"
                )));
            }
            (one, other) => one.or(other).map(str::to_owned),
        };
        Ok(Self {
            statement: statement.to_owned(),
            format: format(parameters)?,
            max_rows: parameters.count("MAXREC")?,
            as_of,
        })
    }

    /// The time of whose state alert databases are read, in microseconds since 1970.
    ///
    /// # Errors
    /// It is no time, or one that is still to come.
    pub(super) fn as_of(&self) -> Result<Option<i64>, Problem> {
        let Some(text) = &self.as_of else {
            return Ok(None);
        };
        let time = sql::time_of_variable(text);
        time.map_err(|error| Problem::bad(error.to_string().replace(sql::AS_OF_VARIABLE, "ASOF")))
    }
}

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TapFormat {
    /// One that is written row by row.
    Table(Format),
    /// A file.
    File(ResultFormat),
}

/// What clients call the files.
const FILES: [(&str, ResultFormat); 5] = [
    ("fits", ResultFormat::Fits),
    ("application/fits", ResultFormat::Fits),
    ("parquet", ResultFormat::Parquet),
    ("application/vnd.apache.parquet", ResultFormat::Parquet),
    ("application/x-parquet", ResultFormat::Parquet),
];

impl TapFormat {
    fn named(name: &str) -> Option<Self> {
        let file = FILES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name.trim()));
        match file {
            Some((_, format)) => Some(Self::File(*format)),
            None => Format::named(name).map(Self::Table),
        }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Table(format) => format.media_type(),
            Self::File(format) => format.media_type(),
        }
    }

    /// What writes a table of this name and these columns, which the schema has as well.
    ///
    /// # Errors
    /// A column has no form in the format.
    pub(super) fn writer<'a>(
        self,
        table: &'a str,
        columns: &'a [TableColumn],
        schema: &SchemaRef,
        warnings: &[Warning],
    ) -> Result<Box<dyn RowWriter + 'a>, ClientError> {
        Ok(match self {
            Self::Table(format) => {
                let warnings = warnings.iter().map(|it| it.sentence.clone()).collect();
                Box::new(TableWriter::new(format, table, columns).with_warnings(warnings))
            }
            Self::File(format) => Box::new(FileWriter::new(format, schema)?),
        })
    }
}

fn format(parameters: &RequestParameters) -> Result<TapFormat, Problem> {
    let given = match parameters.value("RESPONSEFORMAT")? {
        Some(name) => Some(name),
        None => parameters.value("FORMAT")?,
    };
    let Some(name) = given else {
        return Ok(TapFormat::Table(Format::Binary2));
    };
    TapFormat::named(name).ok_or_else(|| {
        Problem::bad(format!(
            "RESPONSEFORMAT is {name}: it is one of votable, votable/td, csv, tsv, json, fits, parquet, or their media types"
        ))
    })
}

/// The parameters of an address alone.
pub(super) fn of_address(query: Option<&str>) -> Result<RequestParameters, TapError> {
    Ok(RequestParameters::read(query.unwrap_or_default())?)
}

#[cfg(test)]
mod tests {
    use super::super::uploads::Uploads;
    use super::*;
    use crate::chance::feed;

    #[test]
    fn strange_requests_of_tap_do_no_harm() {
        let usual = [
            "REQUEST=doQuery&LANG=ADQL-2.1&QUERY=SELECT+1&MAXREC=10&RESPONSEFORMAT=application/x-parquet",
            "query=SELECT%20*&format=votable%2Ftd&ASOF=2026-11-20%2008:00&PHASE=RUN",
            "QUERY=x&MERIDIAN_AS_OF=1970-01-02T00:00:00.5Z&MAXREC=0&UPLOAD=a,param:b;c,https://x.org/c",
        ];
        feed("requests of TAP", &usual.map(str::as_bytes), |bytes| {
            let Ok(parameters) = of_address(Some(&String::from_utf8_lossy(bytes))) else {
                return;
            };
            let _ = Uploads::sources(&parameters);
            if let Ok(request) = TapRequest::read(&parameters) {
                let _ = (request.as_of(), request.format.media_type());
            }
        });
    }

    fn read(query: &str) -> Result<TapRequest, String> {
        let parameters = RequestParameters::read(query).unwrap();
        TapRequest::read(&parameters).map_err(|problem| problem.sentence)
    }

    #[test]
    fn a_query_may_be_as_of_a_time() {
        let time = |query: &str| read(&format!("QUERY=SELECT+1{query}")).unwrap().as_of();
        assert_eq!(time(""), Ok(None));
        for name in ["ASOF", "asof", "MERIDIAN_AS_OF"] {
            let given = format!("&{name}=1970-01-02T00:00:00.5Z");
            assert_eq!(time(&given), Ok(Some(86_400_500_000)), "{name}");
        }
        let error = time("&ASOF=yesterday").unwrap_err();
        assert!(
            error.sentence.contains("ASOF cannot be set to"),
            "{error:?}"
        );
    }

    #[test]
    fn a_query_has_a_language_and_a_format() {
        let request =
            read("request=doQuery&lang=adql-2.1&query=SELECT+1&maxrec=5&FORMAT=csv&x=y").unwrap();
        assert_eq!(request.statement, "SELECT 1");
        assert_eq!(
            (request.format, request.max_rows),
            (TapFormat::Table(Format::Csv), Some(5))
        );
        let both = read("QUERY=SELECT+1&RESPONSEFORMAT=votable/td&FORMAT=csv").unwrap();
        assert_eq!(both.format, TapFormat::Table(Format::TableData));
        for (query, sentence) in [
            ("", "QUERY is missing"),
            ("LANG=PQL&QUERY=SELECT+1", "LANG is PQL"),
            ("REQUEST=getCapabilities", "REQUEST is getCapabilities"),
            ("QUERY=SELECT+1&FORMAT=hdf5", "RESPONSEFORMAT is hdf5"),
            ("QUERY=SELECT+1&MAXREC=-1", "MAXREC is no whole number"),
            (
                "QUERY=SELECT+1&ASOF=2026-01-01&MERIDIAN_AS_OF=2026-01-02",
                "give one of them",
            ),
        ] {
            let error = read(query).unwrap_err();
            assert!(error.contains(sentence), "{query}: {error}");
        }
    }
}
