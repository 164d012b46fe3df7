//! AWS Signature Version 4, with the content's checksum, so that the store verifies what it gets.
//!
//! Source: *AWS Signature Version 4 for API requests*; its examples for S3 are the tests here.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::{digest, hmac};

use crate::settings::Credentials;

/// What is written as `%XX`: all but letters, digits, and `-._~`.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// The same in paths, where slashes stay.
const PATH: &AsciiSet = &STRICT.remove(b'/');

/// A path as it is sent and signed.
pub(crate) fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// A query as it is sent and signed: sorted, and each value with its equals sign.
pub(crate) fn encode_query(query: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, STRICT).to_string();
    let mut pairs: Vec<(String, String)> = { query.iter() }
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// The checksum of content (SHA-256), in hexadecimal digits.
pub(crate) fn checksum(content: &[u8]) -> String {
    hexadecimal(digest::digest(&digest::SHA256, content).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is signed of a request.
pub(crate) struct ToSign<'a> {
    pub method: &'a str,
    /// Encoded.
    pub path: &'a str,
    /// Encoded and sorted.
    pub query: &'a str,
    /// Names in lower case, in order.
    pub headers: &'a [(String, String)],
    /// The checksum of the body.
    pub checksum: &'a str,
}

/// The value of the header `Authorization`. `time` is as in the header `x-amz-date`: `20130524T000000Z`.
pub(crate) fn authorization(
    request: &ToSign<'_>,
    credentials: &Credentials,
    region: &str,
    time: &str,
) -> String {
    let date = time.get(..8).unwrap_or(time);
    let scope = format!("{date}/{region}/s3/aws4_request");
    let headers: String = { request.headers.iter() }
        .map(|(name, value)| format!("{name}:{}\n", value.trim()))
        .collect();
    let names: Vec<&str> = request
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let names = names.join(";");
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{names}\n{}",
        request.method, request.path, request.query, request.checksum
    );
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
        checksum(canonical.as_bytes())
    );
    let first = format!("AWS4{}", credentials.secret);
    let key = [date, region, "s3", "aws4_request"]
        .into_iter()
        .fold(first.into_bytes(), |key, part| sign(&key, part));
    let signature = hexadecimal(&sign(&key, &text));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        credentials.key_id
    )
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the documentation.
    fn signature(
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let credentials = Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            token: None,
        };
        let checksum = checksum(body.as_bytes());
        let mut all = vec![
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", &checksum),
            ("x-amz-date", "20130524T000000Z"),
        ];
        all.extend(headers);
        all.sort_unstable();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let headers: Vec<_> = all.into_iter().map(owned).collect();
        let (path, query) = (encode_path(path), encode_query(query));
        let request = ToSign {
            method,
            path: &path,
            query: &query,
            headers: &headers,
            checksum: &checksum,
        };
        let value = authorization(&request, &credentials, "us-east-1", "20130524T000000Z");
        value.rsplit_once('=').unwrap().1.to_owned()
    }

    #[test]
    fn the_examples_of_the_documentation_are_signed_as_there() {
        assert_eq!(
            signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], ""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(
            signature(
                "PUT",
                "/test$file.text",
                &[],
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY")
                ],
                "Welcome to Amazon S3."
            ),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", &[("lifecycle", "")], &[], ""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], ""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn names_are_encoded_as_they_are_signed() {
        assert_eq!(encode_path("/a b/ü+~*%2F"), "/a%20b/%C3%BC%2B~%2A%252F");
        assert_eq!(
            encode_query(&[("prefix", "a/b c"), ("list-type", "2")]),
            "list-type=2&prefix=a%2Fb%20c"
        );
    }
}
