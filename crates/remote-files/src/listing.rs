//! What stores say in XML.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use crate::s3::Object;

/// What a store says of an error.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub code: String,
    pub message: String,
    /// The region in which it would have to be.
    pub region: Option<String>,
}

impl Complaint {
    /// Reads an answer's body, which may be anything.
    pub fn of(body: &[u8]) -> Self {
        let mut complaint = Self::default();
        let Ok(text) = std::str::from_utf8(body) else {
            return complaint;
        };
        let mut is_error = false;
        let read = walk(text, |path, text| {
            match path {
                ["Error", "Code"] => complaint.code = shown(text),
                ["Error", "Message"] => complaint.message = shown(text),
                ["Error", "Region"] => complaint.region = Some(shown(text)),
                ["Error"] => is_error = true,
                _ => {}
            }
            Ok(())
        });
        match read.is_ok() && is_error {
            true => complaint,
            false => Self::default(),
        }
    }
}

/// A text of a stranger as it may stand in a message.
fn shown(text: &str) -> String {
    let printable = text.chars().filter(|it| !it.is_control());
    printable.take(300).collect()
}

/// A page of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub objects: Vec<Object>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Reads a page of the objects in a bucket (`ListObjectsV2`).
pub(crate) fn page_of_objects(text: &str) -> Result<Page, String> {
    let mut page = Page::default();
    let (mut is_list, mut is_cut, mut next) = (false, false, None);
    let [mut key, mut bytes, mut etag] = [None, None, None];
    walk(text, |path, text| {
        match path {
            ["ListBucketResult", "Contents", "Key"] => key = Some(text.to_owned()),
            ["ListBucketResult", "Contents", "Size"] => bytes = Some(text.to_owned()),
            ["ListBucketResult", "Contents", "ETag"] => etag = Some(text.to_owned()),
            ["ListBucketResult", "Contents"] => page.objects.push(Object {
                key: key.take().ok_or("an object has no name")?,
                bytes: { bytes.take() }
                    .and_then(|bytes| bytes.parse().ok())
                    .ok_or("an object has no length")?,
                etag: etag.take().unwrap_or_default(),
            }),
            ["ListBucketResult", "IsTruncated"] => is_cut = text == "true",
            ["ListBucketResult", "NextContinuationToken"] => next = Some(text.to_owned()),
            ["ListBucketResult"] => is_list = true,
            _ => {}
        }
        Ok(())
    })?;
    match (is_list, is_cut, next) {
        (false, _, _) => Err("it is no list of objects".to_owned()),
        (_, true, None) => Err("it does not say where its next page begins".to_owned()),
        (_, is_cut, next) => Ok(Page {
            next: next.filter(|_| is_cut),
            ..page
        }),
    }
}

/// The uploads in parts that were begun and neither completed nor given up: names and identifiers.
pub(crate) fn uploads_under_way(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut uploads = Vec::new();
    let [mut key, mut id] = [None, None];
    walk(text, |path, text| {
        match path {
            ["ListMultipartUploadsResult", "Upload", "Key"] => key = Some(text.to_owned()),
            ["ListMultipartUploadsResult", "Upload", "UploadId"] => id = Some(text.to_owned()),
            ["ListMultipartUploadsResult", "Upload"] => uploads.extend(key.take().zip(id.take())),
            _ => {}
        }
        Ok(())
    })?;
    Ok(uploads)
}

/// The identifier of an upload in parts that was begun.
pub(crate) fn upload_id(text: &str) -> Result<String, String> {
    let mut id = None;
    walk(text, |path, text| {
        if path == ["InitiateMultipartUploadResult", "UploadId"] {
            id = Some(text.to_owned());
        }
        Ok(())
    })?;
    id.filter(|id| !id.is_empty())
        .ok_or_else(|| "it has no identifier of the upload".to_owned())
}

/// Calls `each` with every element when it ends: the names from the outermost one, and the text directly in it.
fn walk<'a>(
    text: &'a str,
    mut each: impl FnMut(&[&str], &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<(String, String)> = Vec::new();
    loop {
        let event: Event<'a> = reader.read_event().map_err(|error| error.to_string())?;
        let inner = match event {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                open.push((name, String::new()));
                continue;
            }
            Event::Empty(start) => {
                let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
                open.push((name, String::new()));
                end(&mut open, &mut each)?;
                continue;
            }
            Event::End(_) => {
                end(&mut open, &mut each)?;
                continue;
            }
            Event::Text(text) => text
                .decode()
                .map_err(|error| error.to_string())?
                .into_owned(),
            Event::CData(text) => text
                .decode()
                .map_err(|error| error.to_string())?
                .into_owned(),
            Event::GeneralRef(reference) => {
                let name = String::from_utf8_lossy(&reference).into_owned();
                match reference.resolve_char_ref() {
                    Ok(Some(character)) => character.to_string(),
                    _ => resolve_predefined_entity(&name)
                        .ok_or_else(|| format!("&{name}; is no entity"))?
                        .to_owned(),
                }
            }
            Event::Eof if open.is_empty() => return Ok(()),
            Event::Eof => return Err("it ends early".to_owned()),
            _ => continue,
        };
        if let Some((_, text)) = open.last_mut() {
            text.push_str(&inner);
        }
    }
}

fn end(
    open: &mut Vec<(String, String)>,
    each: &mut impl FnMut(&[&str], &str) -> Result<(), String>,
) -> Result<(), String> {
    let path: Vec<&str> = open.iter().map(|(name, _)| name.as_str()).collect();
    if let Some((_, text)) = open.last() {
        each(&path, text)?;
    }
    open.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let text = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
            <Contents><Key>a &amp; b&#252;&lt;.csv</Key><Size>12</Size><ETag>&quot;e1&quot;</ETag><Owner><ID>Key</ID></Owner></Contents>\
            <Contents><Size>0</Size><Key>c</Key></Contents><CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes>\
            <IsTruncated>true</IsTruncated><NextContinuationToken>t=</NextContinuationToken></ListBucketResult>";
        let page = page_of_objects(text).unwrap();
        let object = |key: &str, bytes, etag: &str| Object {
            key: key.to_owned(),
            bytes,
            etag: etag.to_owned(),
        };
        assert_eq!(
            page.objects,
            [object("a & bü<.csv", 12, "\"e1\""), object("c", 0, "")]
        );
        assert_eq!(page.next.as_deref(), Some("t="));
        let last = text.replace("true", "false");
        assert_eq!(page_of_objects(&last).unwrap().next, None);
        for wrong in [
            "<html/>",
            "",
            &text[..text.len() - 5],
            &text.replace("<Size>12</Size>", ""),
            &text.replace("<NextContinuationToken>t=</NextContinuationToken>", ""),
            &text.replace("&lt;", "&lol;"),
        ] {
            assert!(page_of_objects(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn complaints_are_read_and_pages_of_other_servers_are_none() {
        let text = "<Error><Code>AccessDenied</Code><Message>No\nway</Message><Region>eu-west-1</Region><HostId>x</HostId></Error>";
        let complaint = Complaint::of(text.as_bytes());
        assert_eq!(
            (complaint.code.as_str(), complaint.message.as_str()),
            ("AccessDenied", "Noway")
        );
        assert_eq!(complaint.region.as_deref(), Some("eu-west-1"));
        for other in [
            &b"<html><Code>x</Code></html>"[..],
            b"<Error><Code>",
            b"\xff",
            b"",
        ] {
            assert_eq!(Complaint::of(other), Complaint::default());
        }
    }
}
