//! Tables of users' own over HTTP: made of an uploaded table or of a description, filled, and dropped.
//!
//! Source: the dialect of CADC's YouCat, which pyvo speaks (`pyvo.dal.TAPService.create_table`, `load_table`, `remove_table`): PUT and DELETE of
//! `/tables/<database>.<table>`, POST to `/load/<database>.<table>`. POST to `/tables/...` says until when a table is kept, and who may read it.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use axum::routing::{post, put};
use catalog::Column;
use engine::ReceivedFile;
use ingest::{FileFormat, open_document};
use quick_xml::Reader;
use quick_xml::events::Event;
use sql::mysql::{DeclaredColumn, TableExpiry};
use sql::{Connection, Dialect, ErrorCode};
use users::ANONYMOUS;

use super::authentication::DoneByForm;
use super::parameters::RequestParameters;
use super::problem::Problem;
use super::query_api::{Requester, json};
use super::received_table::{LONGEST_TABLE, ReceivedTable};
use super::upload::Upload;
use super::{ClientAddress, HttpState};
use crate::ClientError;
use crate::own_tables::{Change, Filling, OwnTable, RowSource, declared_column};

const TABLE: Upload = Upload {
    name: "the table",
    most_bytes: LONGEST_TABLE,
    advice: "send it in parts, to /load",
};
/// Bytes of the longest description of a table.
const LONGEST_DESCRIPTION: u64 = 1 << 20;
/// Bytes of the longest form.
const LONGEST_FORM: usize = 4096;

/// The routes, below TAP's as pyvo has them and by themselves.
pub(super) fn routes() -> Router<Arc<HttpState>> {
    ["", "/tap"]
        .into_iter()
        .fold(Router::new(), |routes, base| {
            routes
                .route(
                    &format!("{base}/tables/{{name}}"),
                    put(create).post(change).delete(remove),
                )
                .route(&format!("{base}/load/{{name}}"), post(load))
                .route(&format!("{base}/table-update"), post(no_index))
        })
}

/// `PUT`: makes a table, of the rows that are sent, or without rows as a VOSI document describes it.
async fn create(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let table = own_table(&state, &name)?;
    if table.is_there().await? {
        return Err(conflict(&table));
    }
    let received = ReceivedTable::receive(body, TABLE, &state.lists).await?;
    let (rows, filling, _opened) = match description(&received)? {
        Some(columns) => (RowSource::NONE, Filling::Declared(columns, None), None),
        None => {
            let opened = opened(&state, &received, None).await?;
            (of_file(&received), Filling::New(None), Some(opened))
        }
    };
    let path = received.path();
    let rows = fill(&state, &table, (address, &headers), &path, (rows, filling)).await?;
    let mut response = told(StatusCode::CREATED, &table, rows);
    if let Ok(location) = HeaderValue::from_str(&format!("/tap/tables/{}", table.shown())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// `POST`: gives a table more rows, by the names of their columns.
async fn load(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let table = own_table(&state, &name)?;
    let stored = table.find().await?.spec().columns.clone();
    let received = ReceivedTable::receive(body, TABLE, &state.lists).await?;
    // Statements may name the table while it is open.
    let opened = opened(&state, &received, Some(stored)).await?;
    let columns = table.columns(opened.columns()).await?;
    let filling = (of_file(&received), Filling::More(columns));
    let path = received.path();
    let rows = fill(&state, &table, (address, &headers), &path, filling).await?;
    Ok(told(StatusCode::OK, &table, rows))
}

/// `DELETE`: drops a table.
async fn remove(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> Result<Response<Body>, Problem> {
    let table = own_table(&state, &name)?;
    table.find().await?;
    let runtime = &state.shared.query_runtime;
    let mut dropped = runtime.compute(async move { table.drop_it().await });
    dropped.recv_one().await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// `POST`: says until when a table is kept (`expire`: `default`, `never`, or a number of days), or who else may read it (`grant` and `revoke`:
/// names of users and groups, or `PUBLIC`, between commas).
async fn change(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let table = own_table(&state, &name)?;
    let form = to_bytes(body, LONGEST_FORM).await;
    let form = form.map_err(|_| Problem::bad("the form cannot be read, or has more than 4 KiB"))?;
    let given = RequestParameters::read_form(uri.query().unwrap_or_default(), &form)?;
    let what = ["EXPIRE", "GRANT", "REVOKE"].map(|name| given.value(name));
    match what {
        [Ok(Some(expiry)), Ok(None), Ok(None)] => expire(&table, expiry).await,
        [Ok(None), Ok(Some(names)), Ok(None)] => share(&state, &table, names, false).await,
        [Ok(None), Ok(None), Ok(Some(names))] => share(&state, &table, names, true).await,
        what => {
            what.into_iter().collect::<Result<Vec<_>, _>>()?;
            Err(Problem::bad(
                "give one of expire=, grant= and revoke=, such as grant=bob",
            ))
        }
    }
}

async fn expire(table: &OwnTable, word: &str) -> Result<Response<Body>, Problem> {
    let wrong = || {
        Problem::bad(
            "give expire=default, expire=never, or expire= with a number of days from now on",
        )
    };
    let expiry = match word {
        word if word.eq_ignore_ascii_case("default") => TableExpiry::Default,
        word if word.eq_ignore_ascii_case("never") => TableExpiry::Never,
        days => {
            let days: u64 = days.parse().map_err(|_| wrong())?;
            TableExpiry::of_days(days).ok_or_else(wrong)?
        }
    };
    let expires = table.set_expiry(expiry).await?;
    let told = serde_json::json!({"table": table.shown(), "expires": expires});
    let mut response = json(StatusCode::OK, &told);
    let done = DoneByForm(format!("expire={word}"));
    response.extensions_mut().insert(done);
    Ok(response)
}

async fn share(
    state: &HttpState,
    table: &OwnTable,
    names: &str,
    revoke: bool,
) -> Result<Response<Body>, Problem> {
    if state
        .shared
        .user
        .as_ref()
        .is_some_and(|me| me.name == ANONYMOUS)
    {
        let sentence = "who has not logged in cannot say who reads a table: log in";
        return Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence).into());
    }
    table.find().await?;
    let names: Vec<String> = names
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    if names.iter().any(String::is_empty) {
        return Err(Problem::bad(
            "a name is missing: give names of users and groups, or PUBLIC, between commas, as in bob,survey",
        ));
    }
    table.share(names.clone(), revoke).await?;
    let (word, done) = match revoke {
        true => ("revoked", "revoke"),
        false => ("granted", "grant"),
    };
    let told = serde_json::json!({"table": table.shown(), word: names});
    let mut response = json(StatusCode::OK, &told);
    let done = DoneByForm(format!("{done}={}", names.join(",")));
    response.extensions_mut().insert(done);
    Ok(response)
}

/// What asks for an index of a column.
async fn no_index() -> Problem {
    let sentence = "tables of one's own have no indexes, and need none: a scan of some million rows takes milliseconds";
    Problem::new(StatusCode::NOT_IMPLEMENTED, sentence)
}

/// The table of a path, which the user may change.
fn own_table(state: &HttpState, name: &str) -> Result<OwnTable, Problem> {
    let (database, table) = match name.split_once('.') {
        Some((database, table)) => (Some(database.to_owned()), table),
        None => (None, name),
    };
    Ok(OwnTable::of(&state.shared, database, table.to_owned())?)
}

fn conflict(table: &OwnTable) -> Problem {
    let sentence = format!(
        "there is a table {} already: DELETE it first, or POST rows to /load/{}",
        table.shown(),
        table.shown()
    );
    Problem::new(StatusCode::CONFLICT, sentence)
}

/// All rows of an uploaded table, as a query.
fn of_file(received: &ReceivedTable) -> RowSource {
    RowSource::Query(format!(
        "SELECT * FROM {} AS uploaded",
        received.as_table(Dialect::MySql)
    ))
}

/// Fills a table by a query, which may read the file of this path. Returns the number of rows.
async fn fill(
    state: &HttpState,
    table: &OwnTable,
    (address, headers): (ClientAddress, &HeaderMap),
    path: &str,
    (rows, filling): (RowSource, Filling),
) -> Result<u64, Problem> {
    let shared = &state.shared;
    let requester = Requester::of(address, headers, None)?;
    let _taken = shared.usage.query()?;
    let text = format!("fills {}", table.shown());
    let work = shared.track_for(requester.peer, &requester.user, None, "Upload", &text);
    let work = work.within(shared.usage.seconds());
    let connection = Connection {
        id: work.connection_id(),
        user: requester.user,
        host: requester.peer.host(),
        ..Connection::alone(None)
    };
    let change =
        Change::new(shared, Arc::new(connection), table.clone(), rows, filling).naming_files();
    let mut filled = shared
        .query_runtime
        .compute(async move { Box::pin(work.run(change.run())).await });
    filled.recv_one().await.map_err(|error| named(error, path))
}

/// Opens an uploaded table for statements, with the columns of the table that gets its rows.
async fn opened(
    state: &HttpState,
    received: &ReceivedTable,
    stored: Option<Vec<Column>>,
) -> Result<ReceivedFile, Problem> {
    let opened = state.lists.open_for(received, stored).await;
    opened.map_err(|error| named(error.into(), &received.path()))
}

/// An error about a file that nobody knows by its path.
fn named(error: ClientError, path: &str) -> Problem {
    // A place in the file is its path, a colon and the line.
    let sentence = match error.sentence.split_once(&format!("{path}:")) {
        Some((before, after)) if after.starts_with(|sign: char| sign.is_ascii_digit()) => {
            format!("{before}{}, line {after}", TABLE.name).replace(path, TABLE.name)
        }
        _ => error.sentence.replace(path, TABLE.name),
    };
    match error.code {
        // What was sent cannot be read.
        ErrorCode::OTHER => Problem::bad(sentence),
        _ => ClientError { sentence, ..error }.into(),
    }
}

/// The response to a change.
fn told(status: StatusCode, table: &OwnTable, rows: u64) -> Response<Body> {
    json(
        status,
        &serde_json::json!({"table": table.shown(), "rows_added": rows}),
    )
}

/// The columns that a VOSI document describes; `None` where something else was sent.
fn description(received: &ReceivedTable) -> Result<Option<Vec<Column>>, Problem> {
    if received.format() != FileFormat::VoTable {
        return Ok(None);
    }
    let path = received.path();
    let document = open_document(std::path::Path::new(&path));
    let document =
        document.map_err(|error| Problem::bad(error.to_string().replace(&path, TABLE.name)))?;
    // A byte more, so that it is known whether there are more.
    let mut document = std::io::Read::take(document, LONGEST_DESCRIPTION + 1);
    let columns = columns_of(Reader::from_reader(std::io::BufReader::new(&mut document)))?;
    match columns {
        Some(_) if document.limit() == 0 => Err(Problem::bad(
            "the description of a table has more than 1 MiB: send fewer columns",
        )),
        columns => Ok(columns),
    }
}

/// Reads a `table` of VOSI 1.1 (VODataService 1.1, section 3.5); `None` where the document begins otherwise.
fn columns_of(mut document: Reader<impl std::io::BufRead>) -> Result<Option<Vec<Column>>, Problem> {
    let wrong = |what: String| Problem::bad(format!("the description of the table: {what}"));
    let mut columns = Vec::new();
    let mut buffer = Vec::new();
    let mut is_table = false;
    let mut place: Vec<String> = Vec::new();
    let (mut name, mut ty, mut array) = (String::new(), String::new(), String::new());
    loop {
        buffer.clear();
        let event = document.read_event_into(&mut buffer);
        match event.map_err(|error| wrong(format!("it is no XML: {error}")))? {
            Event::Start(element) => {
                let element_name = local_name(element.local_name().as_ref());
                if !is_table {
                    if element_name != "table" {
                        return Ok(None);
                    }
                    is_table = true;
                }
                match element_name.as_str() {
                    "column" => (name, ty, array) = Default::default(),
                    "datatype" | "dataType" => {
                        let arraysize = element.try_get_attribute("arraysize").ok().flatten();
                        array = arraysize
                            .map(|it| String::from_utf8_lossy(&it.value).into_owned())
                            .unwrap_or_default();
                    }
                    _ => {}
                }
                place.push(element_name);
            }
            Event::Empty(_) if !is_table => return Ok(None),
            Event::Text(text) => {
                let text = text.decode().map_err(|error| wrong(error.to_string()))?;
                match place.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    [.., "column", "name"] => name.push_str(text.trim()),
                    [.., "column", "datatype" | "dataType"] => ty.push_str(text.trim()),
                    _ => {}
                }
            }
            Event::End(element) => {
                place.pop();
                if local_name(element.local_name().as_ref()) == "column" {
                    if name.is_empty() {
                        return Err(wrong("a column has no name".to_owned()));
                    }
                    let declared = mysql_type(&ty, &array).ok_or_else(|| {
                        wrong(format!(
                            "the column {name} has the datatype {ty:?}: give boolean, short, int, long, float, double, char, or a type of TAP such as VARCHAR"
                        ))
                    })?;
                    columns.push(declared_column(&DeclaredColumn {
                        name: name.clone(),
                        ty: declared.to_owned(),
                        default: None,
                    })?);
                }
            }
            Event::Eof if columns.is_empty() => {
                return Err(wrong("it has no columns".to_owned()));
            }
            Event::Eof => return Ok(Some(columns)),
            _ => {}
        }
    }
}

fn local_name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The type of a column for a datatype of VOTable's or TAP's. Arrays of numbers are texts, as in uploaded tables.
fn mysql_type(datatype: &str, arraysize: &str) -> Option<&'static str> {
    let is_array = !matches!(arraysize.trim(), "" | "1");
    Some(match datatype.to_ascii_lowercase().as_str() {
        "char" | "unicodechar" | "varchar" | "clob" | "region" | "point" => "text",
        "timestamp" => "datetime",
        "blob" | "binary" | "varbinary" => "longblob",
        "boolean" | "short" | "smallint" | "int" | "integer" | "long" | "bigint" | "float"
        | "real" | "double" | "unsignedbyte"
            if is_array =>
        {
            "text"
        }
        "boolean" => "boolean",
        "unsignedbyte" => "tinyint unsigned",
        "short" | "smallint" => "smallint",
        "int" | "integer" => "int",
        "long" | "bigint" => "bigint",
        "float" | "real" => "float",
        "double" => "double",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::feed;

    fn read(document: &str) -> Result<Option<Vec<String>>, String> {
        let columns = columns_of(Reader::from_reader(document.as_bytes()));
        let columns = columns.map_err(|problem| problem.sentence)?;
        Ok(columns.map(|columns| {
            let shown = columns.into_iter();
            shown
                .map(|column| format!("{} {}", column.name, column.ty))
                .collect()
        }))
    }

    #[test]
    fn descriptions_are_of_vosi() {
        let document = r#"<?xml version="1.0"?>
            <vosi:table xmlns:vosi="http://www.ivoa.net/xml/VOSITables/v1.0" xmlns:vod="http://www.ivoa.net/xml/VODataService/v1.1">
              <name>ann.t</name><description>mine</description>
              <column><name>id</name><dataType xsi:type="vod:VOTableType">long</dataType></column>
              <column><name>note</name><dataType arraysize="*">char</dataType></column>
              <column><name>flux</name><dataType arraysize="3">double</dataType></column>
              <column><name>seen</name><dataType>TIMESTAMP</dataType></column>
            </vosi:table>"#;
        let columns = ["id int64", "note text", "flux text", "seen timestamp"].map(str::to_owned);
        assert_eq!(read(document), Ok(Some(columns.to_vec())));
        assert_eq!(read("<VOTABLE><RESOURCE/></VOTABLE>"), Ok(None));
        assert_eq!(read("<table/>"), Ok(None));
        for (document, sentence) in [
            ("<table></table>", "no columns"),
            (
                "<table><column><dataType>int</dataType></column></table>",
                "no name",
            ),
            (
                "<table><column><name>a</name><dataType>what</dataType></column></table>",
                "datatype \"what\"",
            ),
            ("<table><column><name>a</name></column></table>", "datatype"),
            ("<table><column></name></table>", "no XML"),
        ] {
            let error = read(document).unwrap_err();
            assert!(error.contains(sentence), "{document}: {error}");
        }
    }

    #[test]
    fn strange_descriptions_do_no_harm() {
        let usual = [
            r#"<?xml version="1.0"?><vosi:table xmlns:vosi="http://www.ivoa.net/xml/VOSITables/v1.0"><name>ann.t</name><column><name>id</name><dataType xsi:type="vod:VOTableType" arraysize="*">char</dataType></column><column><name>a &amp; b</name><datatype>VARCHAR</datatype></column></vosi:table>"#,
            r#"<table><!-- a --><column><name><![CDATA[x]]></name><unit/><dataType>double</dataType></column></table>"#,
        ];
        feed(
            "descriptions of tables",
            &usual.map(str::as_bytes),
            |bytes| {
                let _ = columns_of(Reader::from_reader(bytes));
            },
        );
    }
}
