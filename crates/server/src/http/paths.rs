//! Paths of TAP as clients write them.

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// The address with the path that is meant, if another one is written: clients that are given `/tap/` as the service's address ask for
/// `/tap//sync`, and some end each path by a slash.
pub(super) fn meant(written: &Uri) -> Option<Uri> {
    let path = written.path();
    let is_of_tap = path == "/tap" || path.starts_with("/tap/");
    if !is_of_tap || !(path.contains("//") || path.ends_with('/')) {
        return None;
    }
    let segments = path.split('/').filter(|it| !it.is_empty());
    let mut meant: String = segments.flat_map(|it| ["/", it]).collect();
    if let Some(query) = written.query() {
        meant = format!("{meant}?{query}");
    }
    let mut parts = written.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(meant).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_that_say_nothing_are_left_out() {
        for (written, wanted) in [
            ("/tap/", Some("/tap")),
            ("/tap//sync?QUERY=a//b/", Some("/tap/sync?QUERY=a//b/")),
            ("/tap/async/7/", Some("/tap/async/7")),
            ("http://a.org/tap//tables", Some("http://a.org/tap/tables")),
            ("/tap/sync", None),
            ("/tape//x", None),
            ("/hats/a/b/", None),
        ] {
            let found = meant(&written.parse().unwrap());
            assert_eq!(found, wanted.map(|it| it.parse().unwrap()), "{written}");
        }
    }
}
