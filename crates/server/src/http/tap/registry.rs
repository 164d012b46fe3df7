//! The record by which the Virtual Observatory's registry knows a service.
//!
//! Source: VOResource 1.1 (Plante et al., IVOA Recommendation 2018) and VODataService 1.1 (2010) for the elements and their order.

use std::io;

use engine::{Archive, EngineError, tap_schema};

use super::capabilities::{self, NAMESPACES};
use super::job_document::time;
use super::jobs::now;
use super::tables;
use super::xml::{self, Xml, optional, text};

/// What the operator says of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDescription {
    /// The identifier, `ivo://authority/path`.
    pub identifier: String,
    /// The address of the service, without a path of its own: `https://host`.
    pub url: String,
    /// What it is called.
    pub title: String,
    /// The same in up to 16 letters.
    pub short_name: Option<String>,
    /// Who publishes it.
    pub publisher: String,
    /// Who answers questions.
    pub contact: String,
    /// And by which address.
    pub email: Option<String>,
    /// What it has, in words.
    pub description: String,
    /// What it is about, in words of the thesaurus (UAT).
    pub subjects: Vec<String>,
    /// A page for people.
    pub reference_url: Option<String>,
    /// For how long results are kept, in seconds.
    pub kept: u64,
}

impl ServiceDescription {
    /// What is wrong with it, as a sentence.
    fn complaint(&self) -> Option<String> {
        let path = self.identifier.strip_prefix("ivo://").unwrap_or_default();
        let of_identifier =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | '~' | '+');
        if path.len() < 3 || path.starts_with('/') || !path.chars().all(of_identifier) {
            return Some(format!(
                "the identifier {:?} is none: it is ivo://, an authority that is yours, and a path, as in ivo://example.org/tap",
                self.identifier
            ));
        }
        let is_address = |it: &str| it.starts_with("https://") || it.starts_with("http://");
        let addresses = [Some(&self.url), self.reference_url.as_ref()];
        if let Some(wrong) = addresses.into_iter().flatten().find(|it| !is_address(it)) {
            return Some(format!("{wrong:?} is no address: it begins with https://"));
        }
        let short = self.short_name.as_deref().unwrap_or_default();
        if short.chars().count() > 16 {
            return Some(format!("the short name {short:?} has more than 16 letters"));
        }
        let words = [
            ("title", &self.title),
            ("publisher", &self.publisher),
            ("contact", &self.contact),
            ("description", &self.description),
        ];
        let empty = words.into_iter().find(|(_, word)| word.trim().is_empty());
        empty.map(|(name, _)| format!("the {name} is empty"))
    }

    fn base(&self) -> String {
        format!("{}{}", self.url.trim_end_matches('/'), super::ROOT)
    }
}

/// The record of the service of an archive: who runs it, what it can do, and its tables with their columns.
///
/// # Errors
/// The description has something that no record can have: a sentence. Or the catalog cannot be read.
pub async fn registry_record(
    archive: &Archive,
    service: &ServiceDescription,
) -> Result<Vec<u8>, EngineError> {
    if let Some(sentence) = service.complaint() {
        return Err(EngineError::Query(sentence));
    }
    let entries = tap_schema(archive).await?;
    let today = time(now());
    // To seconds.
    let today = today
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end_matches('Z');
    let today = format!("{today}Z");
    Ok(xml::document(|xml| {
        xml.create_element("ri:Resource")
            .with_attribute(("xmlns:ri", "http://www.ivoa.net/xml/RegistryInterface/v1.0"))
            .with_attributes(NAMESPACES)
            .with_attributes([
                ("xsi:type", "vs:CatalogService"),
                ("created", today.as_str()),
                ("updated", today.as_str()),
                ("status", "active"),
            ])
            .write_inner_content(|xml| {
                about(xml, service)?;
                capabilities::all(xml, &service.base(), service.kept)?;
                xml.create_element("tableset").write_inner_content(|xml| {
                    (entries.iter()).try_for_each(|entry| tables::schema(xml, entry, true))
                })?;
                Ok(())
            })?;
        Ok(())
    }))
}

fn about(xml: &mut Xml, service: &ServiceDescription) -> io::Result<()> {
    text(xml, "title", &service.title)?;
    optional(xml, "shortName", service.short_name.as_deref())?;
    text(xml, "identifier", &service.identifier)?;
    xml.create_element("curation").write_inner_content(|xml| {
        text(xml, "publisher", &service.publisher)?;
        xml.create_element("contact").write_inner_content(|xml| {
            text(xml, "name", &service.contact)?;
            optional(xml, "email", service.email.as_deref())
        })?;
        Ok(())
    })?;
    xml.create_element("content").write_inner_content(|xml| {
        (service.subjects.iter()).try_for_each(|subject| text(xml, "subject", subject))?;
        text(xml, "description", &service.description)?;
        let page = service.reference_url.as_ref();
        text(xml, "referenceURL", page.unwrap_or(&service.url))?;
        text(xml, "type", "Catalog")
    })?;
    Ok(())
}
