//! Cones in views that have the position of a table's rows, and in tables whose rows are not all released to whoever asks: each is a query,
//! as any client could write it.

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
use super::served_table::ServedTable;
use crate::ClientError;
use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::limited::{LimitedBatches, write};
use crate::http::problem::Problem;
use crate::http::query_api::Requester;
use crate::http::streaming::{Overflow, streaming_response};
use crate::http::tracked_query::TrackedQuery;
use crate::http::{ClientAddress, HttpState};
use crate::metrics;
use crate::query_runtime::ResultSender;

/// The verbosity that selects only names and positions.
const LEAST: u8 = 1;
/// The UCD of a column that tells rows apart.
const IDENTIFIER: &str = "meta.id;meta.main";

/// What a query searches.
pub(super) struct Source {
    database: String,
    name: String,
    /// The columns that are selected.
    columns: Vec<String>,
    position: Position,
    identifier: Identifier,
}

/// Which column tells rows apart.
enum Identifier {
    /// The first one of this UCD.
    ByUcd,
    /// The one of this name, if it is there.
    Named(Option<String>),
}

impl Source {
    /// A view, with the columns that a verbosity selects.
    ///
    /// # Errors
    /// The view has no position.
    pub(super) async fn of_view(
        state: &HttpState,
        view: &View,
        verbosity: u8,
    ) -> Result<Self, Problem> {
        let Some(position) = view.query.position.clone() else {
            return Err(Problem::bad(format!(
                "{} has no position: cones can be searched in views that have the columns of right ascension and declination of one table",
                view.name
            )));
        };
        Ok(Self {
            columns: columns(state, view, &position, verbosity).await?,
            database: view.database.clone(),
            name: view.name.clone(),
            identifier: Identifier::ByUcd,
            position,
        })
    }

    /// A table, with the columns that were selected.
    ///
    /// # Errors
    /// It has no position.
    pub(super) fn of_table(served: &ServedTable) -> Result<Self, Problem> {
        let spec = served.cones.table().spec();
        let Some(position) = spec.position.clone() else {
            return Err(Problem::bad(format!("{} has no positions", spec.name)));
        };
        let columns = served.described().iter();
        let identifier = { columns.clone() }.find(|column| column.role == Role::Identifier);
        Ok(Self {
            database: spec.database.clone(),
            name: spec.name.clone(),
            identifier: Identifier::Named(identifier.map(|column| column.name.clone())),
            columns: columns.map(|column| column.name.clone()).collect(),
            position,
        })
    }

    /// The query of a cone; of none that gives columns without rows.
    fn statement(&self, circle: Option<&Circle>) -> String {
        let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
        let columns: Vec<String> = self.columns.iter().map(|name| quoted(name)).collect();
        let condition = match circle {
            None => "FALSE".to_owned(),
            Some(circle) => {
                let centre = circle.centre();
                let [ra, dec, radius] =
                    [centre.ra(), centre.dec(), circle.radius()].map(|angle| angle.degrees());
                format!(
                    "scisql_s2PtInCircle({}, {}, {ra:?}, {dec:?}, {radius:?}) = 1",
                    quoted(&self.position.ra),
                    quoted(&self.position.dec)
                )
            }
        };
        format!(
            "SELECT {} FROM {}.{} WHERE {condition}",
            columns.join(", "),
            quoted(&self.database),
            quoted(&self.name)
        )
    }

    /// The columns as clients of cone searches look for them.
    fn described(&self, schema: &Schema) -> Vec<TableColumn> {
        let mut has_identifier = false;
        let fields = schema.fields().iter();
        let described = fields.map(|field| {
            let ucd = field.metadata().get(UCD).map(String::as_str);
            let is_identifier = match &self.identifier {
                Identifier::ByUcd => ucd == Some(IDENTIFIER),
                Identifier::Named(name) => name.as_ref().is_some_and(|name| is(field.name(), name)),
            };
            let role = match field.name() {
                name if is(name, &self.position.ra) => Role::RightAscension,
                name if is(name, &self.position.dec) => Role::Declination,
                _ if is_identifier && !has_identifier => {
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

/// The columns of a view that a verbosity selects.
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

fn is(one: &str, other: &str) -> bool {
    fold_name(one) == fold_name(other)
}

/// Searches a view or a table.
pub(super) async fn search(
    state: &Arc<HttpState>,
    address: ClientAddress,
    headers: &HeaderMap,
    source: Source,
    parameters: &ConeParameters,
) -> Result<Response<Body>, Problem> {
    let circle = parameters.circle.filter(|_| parameters.max_rows != Some(0));
    let statement = source.statement(circle.as_ref());
    let requester = Requester::of(address, headers, None)?;
    let shared = &state.shared;
    let database = Some(source.database.clone());
    let mut query = TrackedQuery::begin(shared, requester, database, statement)?;
    // Rows beyond are cut off, which the result tells, and are no error.
    query.connection.most_rows = None;
    let overflow = Overflow::of(headers);
    let cone = Cone {
        overflow: overflow.clone(),
        max_rows: shared.usage.rows_within(parameters.max_rows),
        format: parameters.format,
        query,
        source,
    };
    let media_type = parameters.format.media_type();
    let results = shared.query_runtime.spawn(|sender| cone.run(sender));
    let mut response = streaming_response(media_type, results, (), overflow).await?;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

/// A cone that is searched by a query.
struct Cone {
    query: TrackedQuery,
    source: Source,
    format: Format,
    max_rows: Option<u64>,
    overflow: Overflow,
}

impl Cone {
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
        let described = self.source.described(&result.schema);
        let mut writer = TableWriter::new(self.format, &self.source.name, &described);
        let counter = shared.metrics.rows(metrics::Protocol::Http);
        let wanted = LimitedBatches::new(result.batches.boxed(), self.max_rows, counter);
        let mut wanted = wanted.noting(&self.overflow.is_cut_off);
        let written = write(&mut writer, &mut wanted, sender).await;
        *rows = wanted.sent();
        written
    }
}
