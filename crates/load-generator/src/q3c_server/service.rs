//! From a request to its response.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use tokio_postgres::Row;

use super::PeerError;
use super::columns::{Columns, Wire};
use super::cone_query::ConeQuery;
use super::pool::Pool;

const VOTABLE_TYPE: &str = "application/x-votable+xml;serialization=binary2";
const CSV_TYPE: &str = "text/csv;header=present";
const TEXT_TYPE: &str = "text/plain";

const VOTABLE_BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <VOTABLE version=\"1.4\" xmlns=\"http://www.ivoa.net/xml/VOTable/v1.3\">\n\
    <RESOURCE type=\"results\">\n\
    <INFO name=\"QUERY_STATUS\" value=\"OK\"/>\n\
    <TABLE>\n";
const DATA_BEGIN: &str = "<DATA><BINARY2><STREAM encoding=\"base64\">\n";
const VOTABLE_END: &str = "\n</STREAM></BINARY2></DATA>\n</TABLE>\n</RESOURCE>\n</VOTABLE>\n";

/// Answers requests from a pool of connections.
pub struct Service {
    pool: Pool,
    columns: Columns,
    /// All of a VOTable before its rows.
    head: String,
}

impl Service {
    /// `names` are the columns' names as they were requested; without any PostgreSQL's own.
    ///
    /// # Errors
    /// A column that is no number.
    pub fn new(pool: Pool, names: &[String]) -> Result<Self, PeerError> {
        let statement = pool.statement()?;
        let own: Vec<String> = statement
            .columns()
            .iter()
            .map(|column| column.name().to_owned())
            .collect();
        let names = if names.is_empty() { &own } else { names };
        let columns = Columns::new(statement.columns(), names)?;
        let head = [VOTABLE_BEGIN, &columns.fields(), DATA_BEGIN].concat();
        Ok(Self {
            pool,
            columns,
            head,
        })
    }

    /// The response to a request; an error's is its sentence.
    pub async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return response(
                StatusCode::METHOD_NOT_ALLOWED,
                TEXT_TYPE,
                "ask with GET\n".to_owned(),
            );
        }
        match self.cone(request).await {
            Ok((kind, body)) => response(StatusCode::OK, kind, body),
            Err(error) => {
                let status = match error {
                    PeerError::NoCone(_) => StatusCode::BAD_REQUEST,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                response(status, TEXT_TYPE, format!("{error}\n"))
            }
        }
    }

    async fn cone<B>(&self, request: &Request<B>) -> Result<(&'static str, String), PeerError> {
        let query = ConeQuery::read(request.uri())?;
        let rows = self.pool.cone(query.ra, query.dec, query.radius).await?;
        if query.is_csv {
            Ok((CSV_TYPE, self.csv(&rows)?))
        } else {
            Ok((VOTABLE_TYPE, self.votable(&rows)?))
        }
    }

    fn csv(&self, rows: &[Row]) -> Result<String, PeerError> {
        let mut text = self.columns.heading();
        for row in rows {
            self.columns.append_csv(values(row), &mut text)?;
        }
        Ok(text)
    }

    fn votable(&self, rows: &[Row]) -> Result<String, PeerError> {
        let mut bytes = Vec::new();
        for row in rows {
            self.columns.append_binary2(values(row), &mut bytes)?;
        }
        let encoded = bytes.len().div_ceil(3) * 4;
        let mut text = String::with_capacity(self.head.len() + encoded + VOTABLE_END.len());
        text.push_str(&self.head);
        STANDARD.encode_string(bytes, &mut text);
        text.push_str(VOTABLE_END);
        Ok(text)
    }
}

fn values(row: &Row) -> impl Iterator<Item = Wire<'_>> {
    (0..row.len()).map(|at| row.get(at))
}

fn response(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
