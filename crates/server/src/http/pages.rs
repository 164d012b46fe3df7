//! The pages for people and for monitoring: the overview, health, readiness and metrics.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse};
use catalog::{Table, TableKind};
use engine::ConeTable;
use quick_xml::escape::escape;

use super::HttpState;
use super::problem::{self, Problem};
use crate::Shared;

/// The radius in degrees of the example cones.
const EXAMPLE_RADIUS: f64 = 0.02;

/// `GET /healthz`: the process runs.
pub(super) async fn is_alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: the server can execute queries now.
pub(super) async fn is_ready(State(state): State<Arc<HttpState>>) -> Response<Body> {
    let unavailable = |sentence: &str| problem::text(StatusCode::SERVICE_UNAVAILABLE, sentence);
    if state.shared.closing.is_cancelled() {
        return unavailable("the server ends");
    }
    if let Some(complaint) = state.shared.query_runtime.health()().complaint() {
        return unavailable(&complaint);
    }
    match state.archive.catalog().databases().await {
        Ok(_) => problem::text(StatusCode::OK, "ready"),
        Err(error) => unavailable(&format!("the catalog cannot be read: {error}")),
    }
}

/// `GET /metrics`: the metrics in Prometheus's text format.
pub(super) async fn metrics(State(state): State<Arc<HttpState>>) -> Response<Body> {
    let mut response = Response::new(Body::from(state.shared.metrics.render()));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// The response for an unknown path.
pub(super) async fn nothing_here(uri: Uri) -> Problem {
    Problem::not_found(format!(
        "there is nothing at {}: cones are searched by /scs/<database>/<table>?RA=&DEC=&SR=, /tap answers queries in ADQL to programs and /editor in browsers, / lists the tables, and /queries the queries",
        uri.path()
    ))
}

/// `GET /`: the tables, each with an example cone.
pub(super) async fn overview(State(state): State<Arc<HttpState>>) -> Response<Body> {
    match listed(&state).await {
        Ok(page) => Html(page).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn listed(state: &HttpState) -> Result<String, Problem> {
    let mut rows = String::new();
    let failed = |error: catalog::CatalogError| Problem::from(engine::EngineError::from(error));
    let catalog = state.archive.catalog();
    for database in catalog.databases().await.map_err(failed)? {
        for table in catalog.tables(&database.name).await.map_err(failed)? {
            put_row(&mut rows, &table, example(state, &table).await?);
        }
        for view in state.archive.views_in(&database.name).await? {
            // A String takes whatever is written.
            let _ = writeln!(
                rows,
                "<tr><td>{}</td><td></td><td>view</td><td></td></tr>",
                escape(view.full_name())
            );
        }
    }
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Meridian</title><style>{STYLE}</style></head>\n\
         <body><h1>Meridian</h1>\n<p>{}</p>\n<table><tr><th>table</th><th>rows</th><th>kind</th><th>cone search</th></tr>\n\
         {rows}</table>\n<p><a href=\"editor\">Write queries in the browser.</a></p>\n<p><code>/tap</code> is a service of the Table Access Protocol, for TOPCAT, pyvo and others; \
         <a href=\"/tap/examples\">/tap/examples</a> has queries to begin with. <a href=\"/queries\">/queries</a> lists the queries.</p>\n<p>Add RESPONSEFORMAT=votable (the default), votable/td, csv, tsv or json; RA, DEC and SR are in degrees. \
         A list of positions is searched by POST.</p></body></html>\n",
        sql_hint(&state.shared),
    ))
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
                     td,th{text-align:left;padding:.2em 1em .2em 0}td:nth-child(2){text-align:right}";

fn sql_hint(shared: &Shared) -> String {
    match shared.mysql_port {
        Some(port) => format!(
            "Any MySQL client can query the tables in SQL: <code>mysql -h 127.0.0.1 -P {port}</code>"
        ),
        None => "The tables of this archive:".to_owned(),
    }
}

fn put_row(rows: &mut String, table: &Table, example: Option<String>) {
    let spec = &table.spec;
    let name = format!("{}.{}", spec.database, spec.name);
    let search = match example {
        Some(link) => format!("<a href=\"{0}\">{0}</a>", escape(&link)),
        None if spec.position.is_some() && spec.kind != TableKind::Replicated => {
            format!("/scs/{}/{}", escape(&spec.database), escape(&spec.name))
        }
        None => "has no positions".to_owned(),
    };
    // A String takes whatever is written.
    let _ = writeln!(
        rows,
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{search}</td></tr>",
        escape(&name),
        table
            .told_contents()
            .0
            .map_or(String::new(), |rows| rows.to_string()),
        spec.kind
    );
}

/// A cone that contains rows, if the table has rows with positions.
async fn example(state: &HttpState, table: &Table) -> Result<Option<String>, Problem> {
    if table.spec.position.is_none() || table.spec.kind == TableKind::Replicated {
        return Ok(None);
    }
    let spec = &table.spec;
    let centre = ConeTable::example(&state.archive, &spec.database, &spec.name).await?;
    Ok(centre.map(|[ra, dec]| {
        format!(
            "/scs/{}/{}?RA={ra:.4}&DEC={dec:.4}&SR={EXAMPLE_RADIUS}&RESPONSEFORMAT=csv",
            spec.database, spec.name
        )
    }))
}
