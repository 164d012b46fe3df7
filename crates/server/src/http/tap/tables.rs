//! `/tap/tables`: what TAP_SCHEMA tells, as a document.
//!
//! Source: VOSI 1.1, section 3; VODataService 1.1 (Plante et al., IVOA Recommendation 2010) for the elements.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::Response;
use engine::{ForeignKey, TapColumn, TapSchemaEntry, TapTable, tap_schema};
use quick_xml::events::BytesText;

use super::request::of_address;
use super::xml::{self, Xml, optional, text};
use super::{TapError, XML};
use crate::http::HttpState;
use crate::http::problem::Problem;

const NAMESPACES: [(&str, &str); 3] = [
    ("xmlns:vosi", "http://www.ivoa.net/xml/VOSITables/v1.0"),
    ("xmlns:vs", "http://www.ivoa.net/xml/VODataService/v1.1"),
    ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"),
];

/// `GET /tap/tables?detail=min|max`: the columns are left out with `min`.
pub(super) async fn all(
    State(state): State<Arc<HttpState>>,
    RawQuery(query): RawQuery,
) -> Result<Response<Body>, TapError> {
    let parameters = of_address(query.as_deref())?;
    let with_columns = match parameters.value("DETAIL")? {
        None => true,
        Some(detail) if detail.eq_ignore_ascii_case("max") => true,
        Some(detail) if detail.eq_ignore_ascii_case("min") => false,
        Some(other) => {
            return Err(Problem::bad(format!("detail is {other}: it is min or max")).into());
        }
    };
    let archive = Arc::clone(&state.archive);
    // There may be a hundred thousand columns.
    let mut written = state.shared.query_runtime.compute(async move {
        let entries = tap_schema(&archive).await?;
        Ok(tableset(&entries, with_columns))
    });
    Ok(super::document(XML, written.recv_one().await?))
}

fn tableset(entries: &[TapSchemaEntry], with_columns: bool) -> Vec<u8> {
    xml::document(|xml| {
        xml.create_element("vosi:tableset")
            .with_attributes(NAMESPACES)
            .write_inner_content(|xml| {
                (entries.iter()).try_for_each(|entry| schema(xml, entry, with_columns))
            })?;
        Ok(())
    })
}

/// `GET /tap/tables/{name}`: one table with its columns.
pub(super) async fn one(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> Result<Response<Body>, TapError> {
    let entries = tap_schema(&state.archive).await?;
    let mut tables = entries.iter().flat_map(|entry| &entry.tables);
    let found = tables.find(|table| table.name.eq_ignore_ascii_case(&name));
    let found = found.ok_or_else(|| {
        Problem::not_found(format!(
            "there is no table {name}: /tap/tables?detail=min lists them, each with its database"
        ))
    })?;
    let written = xml::document(|xml| table(xml, "vosi:table", &NAMESPACES, found, true));
    Ok(super::document(XML, written))
}

pub(super) fn schema(xml: &mut Xml, entry: &TapSchemaEntry, with_columns: bool) -> io::Result<()> {
    xml.create_element("schema").write_inner_content(|xml| {
        text(xml, "name", &entry.name)?;
        text(xml, "description", &entry.description)?;
        (entry.tables.iter()).try_for_each(|it| table(xml, "table", &[], it, with_columns))
    })?;
    Ok(())
}

fn table(
    xml: &mut Xml,
    element: &str,
    attributes: &[(&str, &str)],
    table: &TapTable,
    with_columns: bool,
) -> io::Result<()> {
    xml.create_element(element)
        .with_attributes(attributes.iter().copied())
        .with_attribute(("type", table.kind()))
        .write_inner_content(|xml| {
            text(xml, "name", &table.name)?;
            optional(xml, "description", table.description.as_deref())?;
            optional(xml, "utype", table.utype.as_deref())?;
            if let Some(rows) = table.rows {
                text(xml, "nrows", &rows.to_string())?;
            }
            if with_columns {
                table.columns.iter().try_for_each(|it| column(xml, it))?;
                table.keys.iter().try_for_each(|it| foreign_key(xml, it))?;
            }
            Ok(())
        })?;
    Ok(())
}

fn column(xml: &mut Xml, column: &TapColumn) -> io::Result<()> {
    let standard = if column.is_standard { "true" } else { "false" };
    xml.create_element("column")
        .with_attribute(("std", standard))
        .write_inner_content(|xml| {
            text(xml, "name", &column.name)?;
            optional(xml, "description", column.description.as_deref())?;
            optional(xml, "unit", column.unit.as_deref())?;
            optional(xml, "ucd", column.ucd.as_deref())?;
            optional(xml, "utype", column.utype.as_deref())?;
            let mut data_type = xml
                .create_element("dataType")
                .with_attribute(("xsi:type", "vs:VOTableType"));
            if let Some(arraysize) = column.arraysize {
                data_type = data_type.with_attribute(("arraysize", arraysize));
            }
            if let Some(xtype) = column.xtype.as_deref() {
                data_type = data_type.with_attribute(("extendedType", xtype));
            }
            data_type.write_text_content(BytesText::new(column.datatype))?;
            if column.is_indexed {
                text(xml, "flag", "indexed")?;
            }
            if column.is_principal {
                text(xml, "flag", "principal")?;
            }
            Ok(())
        })?;
    Ok(())
}

fn foreign_key(xml: &mut Xml, key: &ForeignKey) -> io::Result<()> {
    xml.create_element("foreignKey")
        .write_inner_content(|xml| {
            text(xml, "targetTable", &key.target_table)?;
            xml.create_element("fkColumn").write_inner_content(|xml| {
                text(xml, "fromColumn", &key.from_column)?;
                text(xml, "targetColumn", &key.target_column)
            })?;
            optional(xml, "description", key.description.as_deref())
        })?;
    Ok(())
}
