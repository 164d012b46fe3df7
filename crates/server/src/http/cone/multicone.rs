//! Many cones in one request: `POST /scs/{database}/{table}?SR=` of a list of positions, matched as `crossmatch()` matches tables.

use std::sync::Arc;

use arrow::datatypes::Schema;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::{HeaderMap, Response};
use catalog::fold_name;
use engine::EngineError;
use futures::{StreamExt, TryStreamExt};
use prometheus::IntCounter;
use sql::{Connection, Dialect, ErrorCode, SqlError};

use super::served_table::ServedTable;
use super::{begin, error_response, record_outcome};
use crate::ClientError;
use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::limited::{LimitedBatches, write};
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::http::received_table::{LONGEST_TABLE, ReceivedTable};
use crate::http::streaming::{Overflow, streaming_response};
use crate::http::upload::Upload;
use crate::http::{ClientAddress, HttpState};
use crate::listener::Peer;
use crate::metrics::{Protocol, QueryOutcome, QueryTimer, StatementKind};
use crate::query_runtime::ResultSender;
use crate::sessions::Sessions;

/// What is uploaded here.
const LIST: Upload = Upload {
    name: "the list",
    most_bytes: LONGEST_TABLE,
    advice: "send it in parts",
};
const ARCSEC_PER_DEGREE: f64 = 3600.0;
/// The suffix of a table's column whose name the list has too.
const SUFFIX: &str = "_2";
/// Phrases of `crossmatch()`'s messages, and their replacements for a client that has sent a list.
const MESSAGE_TRANSLATIONS: [(&str, &str); 3] = [
    ("crossmatch: ", ""),
    ("the left side", "the list"),
    (
        "say which, as in left_ra => ..., left_dec => ...",
        "name them, as in RA=ra&DEC=dec",
    ),
];

/// `POST /scs/{database}/{table}`.
pub(crate) async fn multicone_search(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path((database, table)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response<Body> {
    let counted = begin(&state, StatementKind::Multicone);
    let given = RequestParameters::read(query.as_deref().unwrap_or_default());
    let format = given
        .as_ref()
        .map_err(Problem::clone)
        .and_then(RequestParameters::format);
    let (given, format) = match (given, format) {
        (Ok(given), Ok(format)) => (given, format),
        (Err(problem), _) | (_, Err(problem)) => {
            counted.end_now(problem.ending());
            return error_response(Format::Binary2, &problem);
        }
    };
    let mut counted = Some(counted);
    let answered = async {
        let served = state.served(&database, &table, given.verbosity()?).await?;
        let params = MulticoneParams::read(&given)?;
        let list = ReceivedTable::receive(body, LIST, &state.lists).await?;
        let counted = counted.take();
        let client = (address, &headers);
        respond(&state, client, served, params, (list, format), counted).await
    };
    let answered = answered.await;
    record_outcome(counted, &answered);
    answered.unwrap_or_else(|problem| error_response(format, &problem))
}

/// The parameters of a request.
#[derive(Debug)]
struct MulticoneParams {
    /// In arcseconds.
    radius: f64,
    find: &'static str,
    join: &'static str,
    /// The list's columns of right ascension and declination, if the request names them.
    position: Option<[String; 2]>,
    max_rows: Option<u64>,
}

impl MulticoneParams {
    fn read(given: &RequestParameters) -> Result<Self, Problem> {
        let radius = given.number("SR")?.ok_or_else(|| {
            Problem::bad("SR is missing: the radius in degrees around each position of the list, as in ?SR=0.001")
        })?;
        if !(0.0..=180.0).contains(&radius) {
            return Err(Problem::bad(format!(
                "SR is {radius}: it is in degrees from 0 to 180"
            )));
        }
        let position = match (given.value("RA")?, given.value("DEC")?) {
            (None, None) => None,
            (Some(ra), Some(dec)) => Some([ra.to_owned(), dec.to_owned()]),
            _ => {
                return Err(Problem::bad(
                    "RA and DEC name the list's columns of right ascension and declination: give both or neither",
                ));
            }
        };
        Ok(Self {
            radius: radius * ARCSEC_PER_DEGREE,
            find: one_of(given, "FIND", &["all", "best1", "best"])?,
            join: one_of(given, "JOIN", &["1and2", "all1"])?,
            position,
            max_rows: given.count("MAXREC")?,
        })
    }
}

/// The value of a parameter that must be one of some words; the first of them if it is absent.
fn one_of(
    given: &RequestParameters,
    name: &str,
    words: &[&'static str],
) -> Result<&'static str, Problem> {
    let Some(value) = given.value(name)? else {
        return Ok(words[0]);
    };
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(value));
    known.copied().ok_or_else(|| {
        Problem::bad(format!(
            "{name} is {value}: it is one of {}",
            words.join(", ")
        ))
    })
}

/// Rewrites an error for a client that has sent a list and knows neither the statement nor the path of the file.
fn rewrite_for_client(error: EngineError, path: &str) -> EngineError {
    let (sentence, code) = match &error {
        EngineError::Sql(error) => (error.sentence().to_owned(), error.code()),
        error => (error.to_string(), error.code()),
    };
    if let Some(rest) = sentence.strip_prefix(path) {
        // What cannot be parsed in the list is the client's error.
        let code = match code {
            ErrorCode::PACKET_TOO_LARGE | ErrorCode::OUT_OF_RESOURCES => code,
            _ => ErrorCode::WRONG_VALUE,
        };
        let sentence = format!("the list{rest}");
        return SqlError::new(sentence).with_code(code).into();
    }
    let mut own = sentence.clone();
    for (theirs, ours) in MESSAGE_TRANSLATIONS {
        own = own.replace(theirs, ours);
    }
    if own == sentence {
        return error;
    }
    SqlError::new(own).with_code(code).into()
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The statement that matches the list.
fn statement(served: &ServedTable, params: &MulticoneParams, list: &ReceivedTable) -> String {
    let spec = served.cones.table().spec();
    let columns: Vec<String> = served
        .described()
        .iter()
        .map(|column| quoted(&column.name))
        .collect();
    let position = params
        .position
        .as_ref()
        .map(|[ra, dec]| format!(", left_ra => {}, left_dec => {}", quoted(ra), quoted(dec)));
    format!(
        "SELECT * FROM crossmatch({}, (SELECT {} FROM {}.{}), {}, '{}', '{}'{})",
        list.as_table(Dialect::MySql),
        columns.join(", "),
        quoted(&spec.database),
        quoted(&spec.name),
        params.radius,
        params.find,
        params.join,
        position.unwrap_or_default(),
    )
}

async fn respond(
    state: &Arc<HttpState>,
    (address, headers): (ClientAddress, &HeaderMap),
    served: ServedTable,
    params: MulticoneParams,
    (list, format): (ReceivedTable, Format),
    counted: Option<QueryTimer>,
) -> Result<Response<Body>, Problem> {
    let shared = &state.shared;
    let text = statement(&served, &params, &list);
    let decoding_guard = list.decoding_guard();
    let database = served.cones.table().spec().database.clone();
    let taken = shared.usage.query()?;
    let work = shared.track(Peer::Address(address.0), &database, "Multicone", &text);
    let work = work.within(shared.usage.seconds());
    let sessions = Arc::clone(&shared.sessions);
    let state = Arc::clone(state);
    let rows = shared.metrics.rows(Protocol::Http);
    let overflow = Overflow::of(headers);
    let noted = overflow.clone();
    let results = shared.query_runtime.spawn(move |sender| async move {
        let pairs = MulticoneQuery {
            state,
            served,
            list,
            text,
            database,
            max_rows: params.max_rows,
            overflow: noted,
            format,
            rows,
        };
        let outcome = Box::pin(work.run(pairs.write(&sessions, &sender))).await;
        drop(taken);
        if let Some(counted) = counted {
            counted.end_now(QueryOutcome::of_work(&outcome));
        }
        outcome
    });
    streaming_response(format.media_type(), results, decoding_guard, overflow).await
}

/// The query that matches a list with a table.
struct MulticoneQuery {
    state: Arc<HttpState>,
    served: ServedTable,
    list: ReceivedTable,
    text: String,
    database: String,
    max_rows: Option<u64>,
    overflow: Overflow,
    format: Format,
    /// The counter of its rows.
    rows: IntCounter,
}

impl MulticoneQuery {
    async fn write(
        &self,
        sessions: &Sessions,
        sender: &ResultSender<Bytes>,
    ) -> Result<(), ClientError> {
        let session = sessions.reading_files(&self.database).await?;
        let connection = Connection::alone(Some(self.database.clone()));
        let path = self.list.path();
        // Statements may name the list while this is held.
        let opened = self.state.lists.open(&self.list).await;
        let _received = opened.map_err(|error| rewrite_for_client(error, &path))?;
        let result = session.execute_for(&self.text, &connection).await;
        let result = result.map_err(|error| rewrite_for_client(error, &path))?;
        let columns = described(&self.served, &result.schema);
        let batches = result.batches;
        let batches = batches.map_err(move |error| rewrite_for_client(error, &path));
        let wanted = LimitedBatches::new(batches.boxed(), self.max_rows, self.rows.clone());
        let mut wanted = wanted.noting(&self.overflow.is_cut_off);
        let mut writer = TableWriter::new(self.format, "crossmatch", &columns);
        write(&mut writer, &mut wanted, sender).await
    }
}

/// The columns of the result: the list's, the table's and the separation.
fn described(served: &ServedTable, schema: &Schema) -> Vec<TableColumn> {
    let own = |role: Role| {
        let of_role = served
            .described()
            .iter()
            .rfind(|column| column.role == role);
        of_role.map(|column| fold_name(&column.name))
    };
    let (ra, dec) = (own(Role::RightAscension), own(Role::Declination));
    // The table's columns follow those of the list.
    let first = schema
        .fields()
        .len()
        .saturating_sub(served.described().len() + 1);
    let is = |name: &str, wanted: &Option<String>| {
        let folded = fold_name(name);
        let plain = folded.strip_suffix(SUFFIX).unwrap_or(&folded);
        wanted
            .as_ref()
            .is_some_and(|wanted| *wanted == folded || wanted == plain)
    };
    let last = schema.fields().len().saturating_sub(1);
    let columns = schema.fields().iter().enumerate().map(|(at, field)| {
        let role = match at {
            at if at == last => Role::Separation,
            at if at < first => Role::Other,
            _ if is(field.name(), &ra) => Role::RightAscension,
            _ if is(field.name(), &dec) => Role::Declination,
            _ => Role::Other,
        };
        TableColumn::new(field, role)
    });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    #[test]
    fn strange_parameters_of_lists_do_no_harm() {
        let usual = [
            "SR=0.001&FIND=best1&JOIN=all1&RA=ra&DEC=dec&MAXREC=5",
            "sr=180&find=BEST&join=1and2&ra=a%20b&dec=%60c%60",
            "SR=nan&RA=x&FIND=none&MAXREC=-1",
        ];
        feed("parameters of lists", &usual.map(str::as_bytes), |bytes| {
            if let Ok(given) = RequestParameters::read(&String::from_utf8_lossy(bytes)) {
                let radius = MulticoneParams::read(&given).map_or(0.0, |it| it.radius);
                assert!((0.0..=180.0 * ARCSEC_PER_DEGREE).contains(&radius));
            }
        });
    }

    #[test]
    fn wishes_are_checked() {
        let read = |query: &str| MulticoneParams::read(&RequestParameters::read(query).unwrap());
        let params = read("SR=0.001&FIND=best1&JOIN=ALL1&RA=a&DEC=b").unwrap();
        assert!((params.radius - 3.6).abs() < 1e-12);
        assert_eq!((params.find, params.join), ("best1", "all1"));
        assert_eq!(params.position, Some(["a".to_owned(), "b".to_owned()]));
        for (query, sentence) in [
            ("", "SR is missing"),
            ("SR=200", "SR is 200"),
            ("SR=1&RA=a", "give both or neither"),
            (
                "SR=1&FIND=near",
                "FIND is near: it is one of all, best1, best",
            ),
        ] {
            assert!(
                read(query).unwrap_err().sentence.contains(sentence),
                "{query}"
            );
        }
    }
}
