//! Which part of a file a request asks for (RFC 9110, sections 13.1.5 and 14).
//!
//! A range that counts is given to what serves files in the one form that it knows; one that does not is taken away, so that the whole file is sent.

use std::path::Path;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, header};
use tower::ServiceExt;
use tower_http::services::ServeFile;

/// What a Range header asks for, of a file of so many bytes.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// All of it: the header is none of bytes, cannot be read, or has several ranges.
    Whole,
    /// The bytes from the first to the last one.
    Part(u64, u64),
    /// Bytes behind its end.
    Nothing,
}

/// Leaves in a request for a file the range that is to be sent, if it is a part.
pub(super) async fn settle(request: &mut Request<Body>, path: &Path) {
    if !request.headers().contains_key(header::RANGE) {
        return;
    }
    let range = match request.method() {
        &Method::GET => served_range(request.headers(), path).await,
        _ => None,
    };
    match range {
        Some(range) => request.headers_mut().insert(header::RANGE, range),
        None => request.headers_mut().remove(header::RANGE),
    };
}

async fn served_range(given: &HeaderMap, path: &Path) -> Option<HeaderValue> {
    let mut head = Request::new(Body::empty());
    *head.method_mut() = Method::HEAD;
    let Ok(file) = ServeFile::new(path).oneshot(head).await;
    let file = file.headers();
    let bytes = file.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    let bytes = bytes.parse().ok()?;
    let mut conditions = given.get_all(header::IF_RANGE).iter();
    if !conditions.all(|condition| is_of_file(condition, file)) {
        return None;
    }
    let mut ranges = given.get_all(header::RANGE).iter();
    let (range, None) = (ranges.next()?, ranges.next()) else {
        return None;
    };
    let range = match wanted(range.to_str().ok()?, bytes) {
        Wanted::Whole => return None,
        Wanted::Part(first, last) => format!("bytes={first}-{last}"),
        Wanted::Nothing => format!("bytes={}-", bytes.saturating_add(1)),
    };
    HeaderValue::from_str(&range).ok()
}

/// Whether an If-Range header has the file's tag, or its date. A weak tag is none of a file's.
fn is_of_file(condition: &HeaderValue, file: &HeaderMap) -> bool {
    let condition = condition.as_bytes().trim_ascii();
    let is_same = |name| file.get(name).map(HeaderValue::as_bytes) == Some(condition);
    match condition.first() {
        Some(b'"') => is_same(header::ETAG),
        _ => is_same(header::LAST_MODIFIED),
    }
}

fn wanted(range: &str, bytes: u64) -> Wanted {
    let ranges = match range.split_once('=') {
        Some((unit, ranges)) if unit.trim().eq_ignore_ascii_case("bytes") => ranges,
        _ => return Wanted::Whole,
    };
    let mut ranges = ranges.split(',').map(str::trim).filter(|it| !it.is_empty());
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Wanted::Whole;
    };
    let Some((first, last)) = range.split_once('-') else {
        return Wanted::Whole;
    };
    let end = bytes.saturating_sub(1);
    match (first, last, number(first), number(last)) {
        (_, "", Some(first), _) if first < bytes => Wanted::Part(first, end),
        (_, _, Some(first), Some(last)) if first <= last && first < bytes => {
            Wanted::Part(first, last.min(end))
        }
        ("", _, _, Some(last)) if last > 0 && bytes > 0 => {
            Wanted::Part(bytes.saturating_sub(last), end)
        }
        (_, "", Some(_), _) | ("", _, _, Some(_)) => Wanted::Nothing,
        (_, _, Some(first), Some(last)) if first <= last => Wanted::Nothing,
        _ => Wanted::Whole,
    }
}

/// A number of digits alone; one that is too large is larger than any file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unknown unit, several ranges and what cannot be read were answered with 416.
    #[test]
    fn a_range_is_a_part_or_the_whole_file_or_none() {
        use Wanted::{Nothing, Part, Whole};
        for (range, known) in [
            ("bytes=0-9", Part(0, 9)),
            ("Bytes=007-", Part(7, 99)),
            ("bytes=, 90-200 ,", Part(90, 99)),
            ("bytes=5-99999999999999999999999", Part(5, 99)),
            ("bytes=-8", Part(92, 99)),
            ("bytes=-200", Part(0, 99)),
            ("bytes=99-99", Part(99, 99)),
            ("bytes=100-", Nothing),
            ("bytes=100-200", Nothing),
            ("bytes=99999999999999999999999-", Nothing),
            ("bytes=-0", Nothing),
            ("bytes=9-0", Whole),
            ("bytes=0-1,5-6", Whole),
            ("bytes=200-300,400-", Whole),
            ("rows=0-9", Whole),
            ("bytes", Whole),
            ("bytes=", Whole),
            ("bytes=-", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=1-x", Whole),
            ("bytes=x-1", Whole),
            ("bytes=1.5-2", Whole),
            ("", Whole),
        ] {
            assert_eq!(wanted(range, 100), known, "{range}");
        }
        for range in ["bytes=0-", "bytes=-5", "bytes=0-0"] {
            assert_eq!(wanted(range, 0), Nothing, "{range}");
        }
    }

    #[test]
    fn a_condition_is_the_tag_or_the_date_of_the_file() {
        let date = "Mon, 30 Nov 2026 12:00:00 GMT";
        let file = [(header::ETAG, "\"a.b-c\""), (header::LAST_MODIFIED, date)];
        let file = file.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let file = HeaderMap::from_iter(file);
        let is = |condition| is_of_file(&HeaderValue::from_static(condition), &file);
        assert!(is("\"a.b-c\"") && is(date));
        for other in [
            "W/\"a.b-c\"",
            "\"a.b-d\"",
            "a.b-c",
            "",
            "Mon, 30 Nov 2026 12:00:01 GMT",
            "Mon, 30 Nov 2027 12:00:00 GMT",
        ] {
            assert!(!is(other), "{other}");
        }
    }
}
