//! Cones in views that have the position of a table's rows: each is a query, as any client could write it.

use std::sync::Arc;

use arrow::datatypes::Schema;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use bytes::Bytes;
use catalog::{Position, View, fold_name};
use engine::UCD;
use futures::StreamExt;
use sky::Circle;
use sql::Dialect;

use super::parameters::ConeParameters;
use crate::ClientError;
use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::limited::{LimitedBatches, write};
use crate::http::problem::Problem;
use crate::http::query_api::Requester;
use crate::http::streaming::streaming_response;
use crate::http::tracked_query::TrackedQuery;
use crate::http::{ClientAddress, HttpState};
use crate::metrics;
use crate::query_runtime::ResultSender;

/// The verbosity that selects only names and positions.
const LEAST: u8 = 1;
/// The UCD of a column that tells rows apart.
const IDENTIFIER: &str = "meta.id;meta.main";

/// Searches a view.
pub(super) async fn search(
    state: &Arc<HttpState>,
    address: ClientAddress,
    headers: &HeaderMap,
    view: Arc<View>,
    parameters: &ConeParameters,
) -> Result<Response<Body>, Problem> {
    let Some(position) = view.query.position.clone() else {
        return Err(Problem::bad(format!(
            "{} has no position: cones can be searched in views that have the columns of right ascension and declination of one table",
            view.name
        )));
    };
    let columns = columns(state, &view, &position, parameters.verbosity).await?;
    let circle = parameters.circle.filter(|_| parameters.max_rows != Some(0));
    let statement = statement(&view, &position, &columns, circle.as_ref());
    let requester = Requester::of(address, headers, None)?;
    let shared = &state.shared;
    let mut query = TrackedQuery::begin(shared, requester, Some(view.database.clone()), statement)?;
    // Rows beyond are cut off, which the result tells, and are no error.
    query.connection.most_rows = None;
    let cone = ViewCone {
        max_rows: shared.usage.rows_within(parameters.max_rows),
        format: parameters.format,
        query,
        view,
        position,
    };
    let media_type = parameters.format.media_type();
    let results = shared.query_runtime.spawn(|sender| cone.run(sender));
    let mut response = streaming_response(media_type, results, ()).await?;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// The columns that a verbosity selects.
async fn columns(
    state: &HttpState,
    view: &View,
    position: &Position,
    verbosity: u8,
) -> Result<Vec<String>, Problem> {
    if verbosity > LEAST {
        return Ok(view.query.columns.clone());
    }
    let shown = state.archive.shown_table(&view.database, &view.name);
    let shown = shown.await?;
    let is_identifier = |name: &String| {
        let said = (shown.as_ref()).and_then(|shown| shown.table.metadata.column(name));
        said.and_then(|said| said.ucd.as_deref()) == Some(IDENTIFIER)
    };
    let is_position = |name: &String| is(name, &position.ra) || is(name, &position.dec);
    let columns = view.query.columns.iter();
    let columns = columns.filter(|name| is_position(name) || is_identifier(name));
    Ok(columns.cloned().collect())
}

/// The query of a cone; of none that gives columns without rows.
fn statement(
    view: &View,
    position: &Position,
    columns: &[String],
    circle: Option<&Circle>,
) -> String {
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let columns: Vec<String> = columns.iter().map(|name| quoted(name)).collect();
    let condition = match circle {
        None => "FALSE".to_owned(),
        Some(circle) => {
            let centre = circle.centre();
            let [ra, dec, radius] =
                [centre.ra(), centre.dec(), circle.radius()].map(|angle| angle.degrees());
            format!(
                "scisql_s2PtInCircle({}, {}, {ra:?}, {dec:?}, {radius:?}) = 1",
                quoted(&position.ra),
                quoted(&position.dec)
            )
        }
    };
    format!(
        "SELECT {} FROM {}.{} WHERE {condition}",
        columns.join(", "),
        quoted(&view.database),
        quoted(&view.name)
    )
}

fn is(one: &str, other: &str) -> bool {
    fold_name(one) == fold_name(other)
}

/// A cone that is searched in a view.
struct ViewCone {
    query: TrackedQuery,
    view: Arc<View>,
    position: Position,
    format: Format,
    max_rows: Option<u64>,
}

impl ViewCone {
    async fn run(self, sender: ResultSender<Bytes>) -> Result<(), ClientError> {
        let mut rows = 0;
        let outcome = Box::pin(self.query.run(self.execute(&sender, &mut rows))).await;
        self.query.end(&outcome, rows);
        outcome
    }

    async fn execute(
        &self,
        sender: &ResultSender<Bytes>,
        rows: &mut u64,
    ) -> Result<(), ClientError> {
        let TrackedQuery {
            shared,
            connection,
            statement,
            ..
        } = &self.query;
        let database = connection.database.as_deref();
        let session = shared.sessions.of_dialect(database, Dialect::MySql).await?;
        let result = session.execute_for(statement, connection).await?;
        let described = self.described(&result.schema);
        let mut writer = TableWriter::new(self.format, &self.view.name, &described);
        let counter = shared.metrics.rows(metrics::Protocol::Http);
        let mut wanted = LimitedBatches::new(result.batches.boxed(), self.max_rows, counter);
        let written = write(&mut writer, &mut wanted, sender).await;
        *rows = wanted.sent();
        written
    }

    /// The columns as clients of cone searches look for them.
    fn described(&self, schema: &Schema) -> Vec<TableColumn> {
        let mut has_identifier = false;
        let fields = schema.fields().iter();
        let described = fields.map(|field| {
            let ucd = field.metadata().get(UCD).map(String::as_str);
            let role = match field.name() {
                name if is(name, &self.position.ra) => Role::RightAscension,
                name if is(name, &self.position.dec) => Role::Declination,
                _ if ucd == Some(IDENTIFIER) && !has_identifier => {
                    has_identifier = true;
                    Role::Identifier
                }
                _ => Role::Other,
            };
            TableColumn::of_cone(field, role)
        });
        described.collect()
    }
}
