//! Tables that come with a query (TAP 1.1, section 2.7.5): `UPLOAD=name,param:field` makes of a part of the form the table
//! `TAP_UPLOAD.name`.

use std::path::Path;

use engine::{EngineError, ReceivedFile};
use ingest::FileFormat;
use sql::{Dialect, ErrorCode, SqlError, UPLOAD_SCHEMA, UploadedName, with_uploads};

use super::fetch::fetch;
use crate::ClientError;
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::http::received_table::{LONGEST_TABLE, ReceivedTable, TableRoom, table_function};
use crate::http::upload::Upload;

const MOST_TABLES: usize = 16;
const LONGEST_NAME: usize = 64;
const INLINE: &str = "param:";
const HOW: &str = "send the table in the request, as UPLOAD=name,param:field with the table as the part `field` of a multipart form, or give its address, as UPLOAD=name,https://...";
/// A table that comes with a query.
pub(super) const TABLE: Upload = Upload {
    name: "the uploaded table",
    most_bytes: LONGEST_TABLE,
    advice: "send it in parts",
};

/// Where a table comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A part of the form.
    Field(String),
    /// An address.
    Address(String),
}

/// Tables that come with a query.
#[derive(Debug, Default)]
pub(super) struct Uploads(Vec<(String, ReceivedTable)>);

impl Uploads {
    /// The names of tables, and where they come from.
    ///
    /// # Errors
    /// UPLOAD says something else.
    pub(super) fn sources(
        parameters: &RequestParameters,
    ) -> Result<Vec<(String, Source)>, Problem> {
        let given = parameters.all().iter().filter(|(name, _)| name == "UPLOAD");
        let each = given
            .flat_map(|(_, value)| value.split(';'))
            .map(str::trim)
            .filter(|it| !it.is_empty());
        let mut sources: Vec<(String, Source)> = Vec::new();
        for pair in each {
            let Some((name, place)) = pair.split_once(',') else {
                return Err(Problem::bad(format!("UPLOAD is {pair}: {HOW}")));
            };
            let (name, place) = (name.trim(), place.trim());
            let source = match place.strip_prefix(INLINE) {
                Some(field) => Source::Field(field.to_owned()),
                None => Source::Address(place.to_owned()),
            };
            check_name(name)?;
            if sources
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
            {
                return Err(Problem::bad(format!(
                    "UPLOAD names two tables {name}: give each a name of its own"
                )));
            }
            sources.push((name.to_owned(), source));
        }
        match sources.len() > MOST_TABLES {
            true => Err(Problem::bad(format!(
                "UPLOAD names more than {MOST_TABLES} tables"
            ))),
            false => Ok(sources),
        }
    }

    /// The tables that a form names: those that come with it, and those that are fetched.
    ///
    /// # Errors
    /// One does not come, or cannot be fetched.
    pub(super) async fn of(
        parameters: &RequestParameters,
        mut received: Vec<(String, ReceivedTable)>,
        room: &TableRoom,
    ) -> Result<Self, Problem> {
        let mut tables = Vec::new();
        for (name, source) in Self::sources(parameters)? {
            let field = match source {
                Source::Field(field) => field,
                Source::Address(address) => {
                    let table = ReceivedTable::receive(fetch(&address).await?, TABLE, room).await?;
                    tables.push((name, table));
                    continue;
                }
            };
            let found = received.iter().position(|(known, _)| *known == field);
            let found = found.or_else(|| {
                received
                    .iter()
                    .position(|(known, _)| known.eq_ignore_ascii_case(&field))
            });
            let Some(found) = found else {
                return Err(Problem::bad(format!(
                    "UPLOAD names the part {field}, which the request does not have: {HOW}"
                )));
            };
            tables.push((name, received.swap_remove(found).1));
        }
        Ok(Self(tables))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tables, each with its name.
    pub(super) fn into_tables(self) -> Vec<(String, ReceivedTable)> {
        self.0
    }

    /// Opens the tables, which statements may name for as long as what is returned is held.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) async fn open(&self, room: &TableRoom) -> Result<Vec<ReceivedFile>, ClientError> {
        let mut opened = Vec::with_capacity(self.0.len());
        for (_, table) in &self.0 {
            let file = room.open(table).await;
            opened.push(file.map_err(|error| self.names().unreadable(error.into()))?);
        }
        Ok(opened)
    }

    /// What the tables are called.
    pub(super) fn names(&self) -> UploadNames {
        let named = |(name, table): &(String, ReceivedTable)| {
            NamedFile::new(name, Path::new(&table.path()), table.format())
        };
        UploadNames(self.0.iter().map(named).collect())
    }
}

/// What uploaded tables are called, for users and in statements.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadNames(pub(super) Vec<NamedFile>);

/// An uploaded table's name and file.
#[derive(Debug, Clone)]
pub(super) struct NamedFile {
    named: UploadedName,
    path: String,
}

impl NamedFile {
    pub(super) fn new(name: &str, path: &Path, format: FileFormat) -> Self {
        let path = path.display().to_string();
        Self {
            named: UploadedName {
                name: name.to_owned(),
                table: table_function(format, &path, Dialect::Adql),
            },
            path,
        }
    }
}

impl UploadNames {
    /// A statement that reads the files.
    ///
    /// # Errors
    /// It names a table that was not uploaded.
    pub(super) fn statement(&self, text: &str) -> Result<String, ClientError> {
        let names: Vec<UploadedName> = self.0.iter().map(|file| file.named.clone()).collect();
        with_uploads(text, &names).map_err(|error| EngineError::from(error).into())
    }

    /// A sentence in which tables are called as the client calls them.
    pub(super) fn sentence(&self, sentence: &str) -> String {
        let mut shown = sentence.to_owned();
        for file in &self.0 {
            let name = format!("{}.{}", UPLOAD_SCHEMA.to_ascii_uppercase(), file.named.name);
            shown = shown
                .replace(&file.named.table, &name)
                .replace(&file.path, &name);
        }
        shown
    }

    /// An error of opening a table: what cannot be read in it is the client's mistake.
    pub(super) fn unreadable(&self, error: ClientError) -> ClientError {
        let mut shown = self.shown(error);
        if !matches!(
            shown.code,
            ErrorCode::PACKET_TOO_LARGE | ErrorCode::OUT_OF_RESOURCES
        ) {
            shown.code = ErrorCode::WRONG_VALUE;
        }
        shown
    }

    /// The same of an error of the engine's.
    pub(super) fn shown_of_engine(&self, error: EngineError) -> EngineError {
        if self.0.is_empty() {
            return error;
        }
        let shown = self.shown(error.into());
        SqlError::new(shown.sentence).with_code(shown.code).into()
    }

    /// An error in which tables are called as the client calls them.
    pub(super) fn shown(&self, mut error: ClientError) -> ClientError {
        error.sentence = self.sentence(&error.sentence);
        error
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let mut letters = name.chars();
    let is_name = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && name.len() <= LONGEST_NAME;
    match is_name {
        true => Ok(()),
        false => Err(Problem::bad(format!(
            "UPLOAD names a table {name:?}: a name has 1 to {LONGEST_NAME} letters, digits and underscores, and begins with a letter"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(query: &str) -> Result<Vec<(String, Source)>, String> {
        let parameters = RequestParameters::read(query).unwrap();
        Uploads::sources(&parameters).map_err(|problem| problem.sentence)
    }

    #[test]
    fn uploads_are_named() {
        assert_eq!(sources("QUERY=x").unwrap(), []);
        let field = |name: &str, field: &str| (name.to_owned(), Source::Field(field.to_owned()));
        let address = Source::Address("https://x.org/y.vot".to_owned());
        assert_eq!(
            sources("UPLOAD=a,param:x;b_2,param:y&upload=c,https://x.org/y.vot").unwrap(),
            [
                field("a", "x"),
                field("b_2", "y"),
                ("c".to_owned(), address)
            ]
        );
        for (query, sentence) in [
            ("UPLOAD=a", "send the table in the request"),
            ("UPLOAD=a-b,param:x", "names a table \"a-b\""),
            ("UPLOAD=1a,param:x", "names a table \"1a\""),
            ("UPLOAD=a,param:x;A,param:y", "two tables A"),
        ] {
            let error = sources(query).unwrap_err();
            assert!(error.contains(sentence), "{query}: {error}");
        }
    }
}
