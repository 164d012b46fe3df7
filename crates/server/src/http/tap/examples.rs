//! `/tap/examples`: queries to begin with, on the tables that are there.
//!
//! Source: DALI 1.1, section 2.3, for the attributes.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use catalog::{Table, TableKind};
use engine::{EngineError, TapSchemaEntry, tap_schema};

use super::TapError;
use super::xml::{self, Xml, text};
use crate::http::HttpState;

const XHTML: &str = "application/xhtml+xml";

/// A query with its name, and a table that it is about.
struct Example {
    id: String,
    title: String,
    query: String,
    table: Option<String>,
}

/// `GET /tap/examples`.
pub(super) async fn examples(
    State(state): State<Arc<HttpState>>,
) -> Result<Response<Body>, TapError> {
    let entries = tap_schema(&state.archive).await?;
    let mut examples = vec![Example {
        id: "tables".to_owned(),
        title: "The tables of this service".to_owned(),
        query: "SELECT table_name, description FROM TAP_SCHEMA.tables ORDER BY table_name"
            .to_owned(),
        table: None,
    }];
    let failed = |error: catalog::CatalogError| EngineError::from(error);
    let catalog = state.archive.catalog();
    for database in catalog.databases().await.map_err(failed)? {
        for table in catalog.tables(&database.name).await.map_err(failed)? {
            examples.extend(of_table(&state, &table, &entries).await?);
        }
    }
    let written = xml::document(|xml| page(xml, &examples));
    Ok(super::document(XHTML, written))
}

/// A cone in a director (with the coordinate systems that clients of ADQL 2.0 want), or a light curve of a child.
async fn of_table(
    state: &HttpState,
    table: &Table,
    entries: &[TapSchemaEntry],
) -> Result<Option<Example>, EngineError> {
    let spec = &table.spec;
    let mut known = entries.iter().flat_map(|entry| &entry.tables);
    let plain = |name: &str| name.replace('"', "");
    let name = format!("{}.{}", spec.database, spec.name);
    let Some(described) = known.find(|it| plain(&it.name) == name) else {
        return Ok(None);
    };
    let column = |name: &str| {
        let found = described.columns.iter().find(|it| plain(&it.name) == name);
        found.map_or_else(|| name.to_owned(), |it| it.name.clone())
    };
    Ok(match (spec.kind, &spec.position, spec.directors.first()) {
        (TableKind::Director, Some(position), _) => {
            let centre =
                engine::ConeTable::example(&state.archive, &spec.database, &spec.name).await?;
            let (ra, dec) = (column(&position.ra), column(&position.dec));
            centre.map(|[at, height]| Example {
                id: format!("cone_{}", spec.name),
                title: format!("{} within a circle", spec.name),
                query: format!(
                    "SELECT TOP 100 * FROM {} WHERE 1 = CONTAINS(POINT('ICRS', {ra}, {dec}), CIRCLE('ICRS', {at:.4}, {height:.4}, 0.1))",
                    described.name
                ),
                table: Some(described.name.clone()),
            })
        }
        (TableKind::Child, _, Some(director)) => Some(Example {
            id: format!("most_{}", spec.name),
            title: format!("The rows of {} with most of {}", director.table, spec.name),
            query: format!(
                "SELECT TOP 10 {0}, COUNT(*) AS n FROM {1} GROUP BY {0} ORDER BY n DESC",
                column(&director.key),
                described.name
            ),
            table: Some(described.name.clone()),
        }),
        _ => None,
    })
}

fn page(xml: &mut Xml, examples: &[Example]) -> io::Result<()> {
    xml.create_element("html")
        .with_attribute(("xmlns", "http://www.w3.org/1999/xhtml"))
        .write_inner_content(|xml| {
            xml.create_element("head")
                .write_inner_content(|xml| text(xml, "title", "Queries to begin with"))?;
            xml.create_element("body")
                .with_attribute(("vocab", "http://www.ivoa.net/rdf/examples#"))
                .write_inner_content(|xml| examples.iter().try_for_each(|it| example(xml, it)))?;
            Ok(())
        })?;
    Ok(())
}

fn example(xml: &mut Xml, example: &Example) -> io::Result<()> {
    // An identifier of XML has no other characters.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let id: String = (example.id.chars())
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    let resource = format!("#{id}");
    xml.create_element("div")
        .with_attributes([
            ("id", id.as_str()),
            ("resource", resource.as_str()),
            ("typeof", "example"),
        ])
        .write_inner_content(|xml| {
            property(xml, "h2", "name", &example.title)?;
            if let Some(table) = &example.table {
                xml.create_element("p")
                    .write_inner_content(|xml| property(xml, "span", "table", table))?;
            }
            property(xml, "pre", "query", &example.query)
        })?;
    Ok(())
}

fn property(xml: &mut Xml, element: &str, name: &str, value: &str) -> io::Result<()> {
    let value = xml::readable(value);
    xml.create_element(element)
        .with_attribute(("property", name))
        .write_text_content(quick_xml::events::BytesText::new(&value))?;
    Ok(())
}
