//! What the service can do, and whether it can now.
//!
//! Source: VOSI 1.1; TAPRegExt 1.0 (Demleitner et al., IVOA Recommendation 2012) for the words.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};

use super::xml::{self, Xml, text};
use super::{XML, base_url};
use crate::http::HttpState;
use crate::http::received_table::LONGEST_TABLE;

/// Versions of ADQL, the first one preferred.
const VERSIONS: [&str; 2] = ["2.1", "2.0"];

/// Optional features of the language, by the ends of their groups' identifiers.
const FEATURES: [(&str, &[&str]); 9] = [
    (
        "adqlgeo",
        &[
            "AREA",
            "BOX",
            "CENTROID",
            "CIRCLE",
            "CONTAINS",
            "COORD1",
            "COORD2",
            "COORDSYS",
            "DISTANCE",
            "INTERSECTS",
            "POINT",
            "POLYGON",
            "REGION",
        ],
    ),
    ("adql-string", &["LOWER", "UPPER", "ILIKE"]),
    ("adql-sets", &["UNION", "EXCEPT", "INTERSECT"]),
    ("adql-common-table", &["WITH"]),
    ("adql-conditional", &["COALESCE"]),
    ("adql-type", &["CAST"]),
    ("adql-offset", &["OFFSET"]),
    ("adql-unit", &["IN_UNIT"]),
    (
        "udf",
        &[
            "ivo_healpix_index(hpxOrder INTEGER, ra DOUBLE, dec DOUBLE) -> BIGINT",
            "ivo_healpix_center(hpxOrder INTEGER, hpxIndex BIGINT) -> POINT",
            "ivo_to_jd(t TIMESTAMP) -> DOUBLE",
            "ivo_to_mjd(t TIMESTAMP) -> DOUBLE",
            "ivo_nocasematch(value VARCHAR, pattern VARCHAR) -> INTEGER",
            "ivo_hasword(haystack VARCHAR, needle VARCHAR) -> INTEGER",
            "ivo_hashlist_has(hashlist VARCHAR, item VARCHAR) -> INTEGER",
            "ivo_string_agg(value VARCHAR, separator VARCHAR) -> VARCHAR",
            "ivo_interval_overlaps(l1 DOUBLE, h1 DOUBLE, l2 DOUBLE, h2 DOUBLE) -> INTEGER",
            "scisql_angSep(ra1 DOUBLE, dec1 DOUBLE, ra2 DOUBLE, dec2 DOUBLE) -> DOUBLE",
            "scisql_fluxToAbMag(flux DOUBLE) -> DOUBLE",
            "scisql_abMagToFlux(mag DOUBLE) -> DOUBLE",
            "scisql_nanojanskyToAbMag(flux DOUBLE) -> DOUBLE",
            "scisql_abMagToNanojansky(mag DOUBLE) -> DOUBLE",
        ],
    ),
];

/// Formats of results: the standard's identifier, if it has one, the media type and the short name.
const FORMATS: [(Option<&str>, &str, &str); 7] = [
    (
        Some("ivo://ivoa.net/std/TAPRegExt#output-votable-binary2"),
        "application/x-votable+xml",
        "votable",
    ),
    (
        Some("ivo://ivoa.net/std/TAPRegExt#output-votable-td"),
        "application/x-votable+xml;serialization=tabledata",
        "votable/td",
    ),
    (None, "text/csv;header=present", "csv"),
    (None, "text/tab-separated-values;header=present", "tsv"),
    (None, "application/json", "json"),
    (None, "application/fits", "fits"),
    (None, "application/vnd.apache.parquet", "parquet"),
];

/// `GET /tap/capabilities`.
pub(super) async fn capabilities(
    State(state): State<Arc<HttpState>>,
    headers: HeaderMap,
) -> Response<Body> {
    let base = base_url(&headers);
    let kept = state.shared.queries.kept().as_secs();
    let written = xml::document(|xml| {
        xml.create_element("vosi:capabilities")
            .with_attribute((
                "xmlns:vosi",
                "http://www.ivoa.net/xml/VOSICapabilities/v1.0",
            ))
            .with_attributes(NAMESPACES)
            .write_inner_content(|xml| all(xml, &base, kept))?;
        Ok(())
    });
    super::document(XML, written)
}

/// The namespaces of the elements of capabilities.
pub(super) const NAMESPACES: [(&str, &str); 4] = [
    ("xmlns:vr", "http://www.ivoa.net/xml/VOResource/v1.0"),
    ("xmlns:vs", "http://www.ivoa.net/xml/VODataService/v1.1"),
    ("xmlns:tr", "http://www.ivoa.net/xml/TAPRegExt/v1.0"),
    ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"),
];

/// All capabilities of the service below an address; results are kept for so many seconds.
pub(super) fn all(xml: &mut Xml, base: &str, kept: u64) -> io::Result<()> {
    for (standard, path) in [
        ("ivo://ivoa.net/std/VOSI#capabilities", "capabilities"),
        ("ivo://ivoa.net/std/VOSI#availability", "availability"),
        ("ivo://ivoa.net/std/VOSI#tables-1.1", "tables"),
        ("ivo://ivoa.net/std/DALI#examples", "examples"),
    ] {
        simple_capability(xml, standard, &format!("{base}/{path}"))?;
    }
    table_access(xml, base, kept)
}

fn simple_capability(xml: &mut Xml, standard: &str, url: &str) -> io::Result<()> {
    xml.create_element("capability")
        .with_attribute(("standardID", standard))
        .write_inner_content(|xml| {
            interface(
                xml,
                &[("xsi:type", "vs:ParamHTTP"), ("role", "std")],
                "full",
                url,
            )
        })?;
    Ok(())
}

fn interface(xml: &mut Xml, attributes: &[(&str, &str)], part: &str, url: &str) -> io::Result<()> {
    xml.create_element("interface")
        .with_attributes(attributes.iter().copied())
        .write_inner_content(|xml| {
            xml.create_element("accessURL")
                .with_attribute(("use", part))
                .write_text_content(quick_xml::events::BytesText::new(url))?;
            Ok(())
        })?;
    Ok(())
}

fn table_access(xml: &mut Xml, base: &str, kept: u64) -> io::Result<()> {
    xml.create_element("capability")
        .with_attributes([
            ("standardID", "ivo://ivoa.net/std/TAP"),
            ("xsi:type", "tr:TableAccess"),
        ])
        .write_inner_content(|xml| {
            let attributes = [
                ("xsi:type", "vs:ParamHTTP"),
                ("role", "std"),
                ("version", "1.1"),
            ];
            interface(xml, &attributes, "base", base)?;
            language(xml)?;
            for (standard, media_type, name) in FORMATS {
                let mut element = xml.create_element("outputFormat");
                if let Some(standard) = standard {
                    element = element.with_attribute(("ivo-id", standard));
                }
                element.write_inner_content(|xml| {
                    text(xml, "mime", media_type)?;
                    text(xml, "alias", name)
                })?;
            }
            for method in ["inline", "http", "https"] {
                let method = format!("ivo://ivoa.net/std/TAPRegExt#upload-{method}");
                xml.create_element("uploadMethod")
                    .with_attribute(("ivo-id", method.as_str()))
                    .write_empty()?;
            }
            xml.create_element("retentionPeriod")
                .write_inner_content(|xml| {
                    text(xml, "default", &kept.to_string())?;
                    text(xml, "hard", &kept.to_string())
                })?;
            xml.create_element("uploadLimit")
                .write_inner_content(|xml| {
                    for limit in ["default", "hard"] {
                        xml.create_element(limit)
                            .with_attribute(("unit", "byte"))
                            .write_text_content(quick_xml::events::BytesText::new(
                                &LONGEST_TABLE.to_string(),
                            ))?;
                    }
                    Ok(())
                })?;
            Ok(())
        })?;
    Ok(())
}

fn language(xml: &mut Xml) -> io::Result<()> {
    xml.create_element("language").write_inner_content(|xml| {
        text(xml, "name", "ADQL")?;
        for version in VERSIONS {
            let id = format!("ivo://ivoa.net/std/ADQL#v{version}");
            xml.create_element("version")
                .with_attribute(("ivo-id", id.as_str()))
                .write_text_content(quick_xml::events::BytesText::new(version))?;
        }
        text(xml, "description", "the Astronomical Data Query Language")?;
        for (group, forms) in FEATURES {
            // Clients find functions by the standard's identifier in its own capitals, and some reject a group under it that is newer than they are.
            let standard = match group {
                "adql-conditional" => "tapregext",
                _ => "TAPRegExt",
            };
            let group = format!("ivo://ivoa.net/std/{standard}#features-{group}");
            xml.create_element("languageFeatures")
                .with_attribute(("type", group.as_str()))
                .write_inner_content(|xml| {
                    for form in forms {
                        xml.create_element("feature")
                            .write_inner_content(|xml| text(xml, "form", form))?;
                    }
                    Ok(())
                })?;
        }
        Ok(())
    })?;
    Ok(())
}

/// `GET /tap/availability`.
pub(super) async fn availability(State(state): State<Arc<HttpState>>) -> Response<Body> {
    let complaint = state.shared.query_runtime.health()().complaint();
    let complaint = match state.shared.closing.is_cancelled() {
        true => Some("the server ends".to_owned()),
        false => complaint.map(|it| it.to_string()),
    };
    let written = xml::document(|xml| {
        xml.create_element("vosi:availability")
            .with_attribute((
                "xmlns:vosi",
                "http://www.ivoa.net/xml/VOSIAvailability/v1.0",
            ))
            .write_inner_content(|xml| {
                let available = complaint.is_none();
                text(
                    xml,
                    "vosi:available",
                    if available { "true" } else { "false" },
                )?;
                let note = complaint.as_deref().unwrap_or("queries are executed");
                text(xml, "vosi:note", note)
            })?;
        Ok(())
    });
    super::document(XML, written)
}
