//! Queries over HTTP, in two forms: Qserv's REST API, which Rubin's services speak (`qserv`), and our own, with which queries are listed,
//! submitted and cancelled, results downloaded in several formats (`rest`), and statements executed while the client waits (`statement`).
//!
//! Pages of other sites cannot read these responses: they have no header of CORS.

mod qserv;
mod qserv_rows;
mod requester;
mod rest;
mod result_stream;
mod statement;
mod synchronous;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::routing::{delete, get, post};
use queries::Submission;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sql::ErrorCode;
use sql::mysql::{Command, TableCommand};

use super::HttpState;
use super::upload::{ReceivedBody, Upload};
use crate::ClientError;
use crate::http::problem::Problem;
use crate::mysql::aside;
pub(super) use requester::Requester;

/// The body of a request with a statement.
const REQUEST: Upload = Upload {
    name: "the request",
    most_bytes: 16 << 20,
    advice: "send a shorter statement, and long lists of keys as a table",
};

/// The routes.
pub(super) fn routes() -> Router<Arc<HttpState>> {
    Router::new()
        .route("/meta/version", get(qserv::version))
        .route("/query", post(qserv::execute))
        .route("/query-async", post(qserv::submit))
        .route("/query-async/{id}", delete(qserv::cancel))
        .route("/query-async/status/{id}", get(qserv::status))
        .route(
            "/query-async/result/{id}",
            get(qserv::result).delete(qserv::remove_result),
        )
        .route("/sql", post(statement::execute))
        .route("/queries", get(rest::list).post(rest::submit))
        .route("/queries/{id}", get(rest::show).delete(rest::cancel))
        .route(
            "/queries/{id}/result",
            get(rest::result).delete(rest::remove),
        )
        .method_not_allowed_fallback(wrong_method)
}

/// The response to a request whose path is served with other methods, in the form of either API.
async fn wrong_method(method: Method, uri: Uri) -> Response<Body> {
    let sentence = format!("{} is not served with {method}", uri.path());
    let error = qserv::error_object(&sentence, None);
    json(StatusCode::METHOD_NOT_ALLOWED, &error)
}

/// Receives the body of a request.
async fn receive(state: &HttpState, body: Body) -> Result<ReceivedBody, Problem> {
    let shared = &state.shared;
    ReceivedBody::receive(body, REQUEST, shared.http_patience, &shared.packets).await
}

/// Parses the body of a request, an object such as `example`.
fn parsed<T: DeserializeOwned>(body: &ReceivedBody, example: &str) -> Result<T, Problem> {
    let parsed = aside(body.bytes.len(), || serde_json::from_slice(&body.bytes));
    parsed.map_err(|error| {
        Problem::bad(format!(
            "the request cannot be read ({error}): send an object such as {example}"
        ))
    })
}

/// The only statement of a text in MySQL's dialect, which returns rows.
fn only_statement(text: &str) -> Result<String, ClientError> {
    Ok(only_statement_with(text, |_| false)?.0)
}

/// The only statement of a text in MySQL's dialect that is submitted: one that returns rows, or makes a table of them.
fn only_submitted(text: &str) -> Result<String, ClientError> {
    let makes_table =
        |command: &Command| matches!(command, Command::Table(TableCommand::Create { .. }));
    Ok(only_statement_with(text, makes_table)?.0)
}

/// The only statement of a text in MySQL's dialect whose client waits: one that returns rows, or changes a table as this says.
fn only_executed(text: &str) -> Result<(String, Option<TableCommand>), ClientError> {
    let changes_table = |command: &Command| matches!(command, Command::Table(_));
    let (statement, command) = only_statement_with(text, changes_table)?;
    let change = match command {
        Some(Command::Table(change)) => Some(change),
        _ => None,
    };
    Ok((statement, change))
}

/// The only statement of a text: one that returns rows, or a command that is taken.
fn only_statement_with(
    text: &str,
    is_taken: impl Fn(&Command) -> bool,
) -> Result<(String, Option<Command>), ClientError> {
    aside(text.len(), || {
        let text = sql::mysql::executed(text);
        let [statement] = sql::mysql::split_statements(&text)[..] else {
            let sentence = "send one statement in a request";
            return Err(ClientError::new(ErrorCode::SYNTAX, sentence));
        };
        match sql::mysql::command(statement)? {
            Some(command) if !is_taken(&command) => Err(not_served(statement, &command)),
            command => Ok((statement.to_owned(), command)),
        }
    })
}

fn not_served(statement: &str, command: &Command) -> ClientError {
    let word = match command {
        Command::SelectInto { .. } => "SELECT ... INTO".to_owned(),
        _ => sql::mysql::first_word(statement).to_ascii_uppercase(),
    };
    let sentence = match command {
        Command::Table(_) => {
            format!(
                "{word} returns no rows: statements that change own tables are sent to POST /sql"
            )
        }
        _ => format!(
            "{word} is for connections of MySQL's protocol: send a statement that returns rows, or to POST /sql one that changes own tables; \
             queries and CREATE TABLE ... AS SELECT are submitted by POST /queries, and own tables are shared, and filled from files, at /tables"
        ),
    };
    ClientError::new(ErrorCode::NOT_SUPPORTED, sentence)
}

/// The number in a path.
fn query_number(id: &str) -> Result<u64, Problem> {
    id.parse().map_err(|_| {
        Problem::bad(format!(
            "{id:?} is not the number of a query: it is a number such as 1000017; /queries lists them"
        ))
    })
}

/// Submits a query, which is written down whole also if the client hangs up meanwhile.
async fn submit(state: &HttpState, submission: Submission) -> Result<u64, ClientError> {
    let queries = Arc::clone(&state.shared.queries);
    let submitted = tokio::spawn(async move { queries.submit(submission).await });
    let submitted = submitted.await.map_err(|error| {
        let sentence =
            format!("the query was not submitted, which is a bug of the server: {error}");
        ClientError::new(ErrorCode::INTERNAL, sentence)
    })?;
    Ok(submitted?)
}

/// A value as a response in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // Numbers, texts and lists of them are always written.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// The media type of JSON.
const JSON: &str = "application/json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_statement_that_returns_rows() {
        assert_eq!(only_statement(" SELECT 1; ").unwrap(), "SELECT 1");
        assert_eq!(
            only_statement("SELECT ';' -- ;\n").unwrap(),
            "SELECT ';' -- ;"
        );
        for (text, code) in [
            ("", ErrorCode::SYNTAX),
            ("-- nothing", ErrorCode::SYNTAX),
            ("SELECT 1; SELECT 2", ErrorCode::SYNTAX),
            ("SUBMIT SELECT 1", ErrorCode::NOT_SUPPORTED),
            ("kill 7", ErrorCode::NOT_SUPPORTED),
            ("SET NAMES utf8mb4", ErrorCode::NOT_SUPPORTED),
            ("SELECT 1;;SELECT", ErrorCode::SYNTAX),
        ] {
            assert_eq!(only_statement(text).unwrap_err().code, code, "{text}");
            assert_eq!(only_submitted(text).unwrap_err().code, code, "{text}");
        }
        let makes = "CREATE TABLE near AS SELECT 1 AS id";
        assert_eq!(only_submitted(makes).unwrap(), makes);
        for text in [makes, "CREATE TABLE near (id INT)", "DROP TABLE near"] {
            let code = only_statement(text).unwrap_err().code;
            assert_eq!(code, ErrorCode::NOT_SUPPORTED, "{text}");
        }
        assert!(only_submitted("DROP TABLE near").is_err());
        assert_eq!(only_executed("SELECT 1;").unwrap().1, None);
        for text in [makes, "DROP TABLE near", "INSERT INTO near VALUES (1)"] {
            assert!(only_executed(text).unwrap().1.is_some(), "{text}");
        }
        for text in [
            "DROP TABLE a; DROP TABLE b",
            "KILL 7",
            "GRANT SELECT ON a TO b",
        ] {
            assert!(only_executed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_of_queries_are_numbers() {
        assert_eq!(query_number("1000017"), Ok(1_000_017));
        for text in ["", "-1", "x", "1.5", "99999999999999999999"] {
            assert!(query_number(text).is_err(), "{text}");
        }
    }
}
