//! Reading files: ranges of objects, and whole files from their beginning to their end, read on where they break off.

use std::ops::Range;

use bytes::Bytes;
use hyper::{Method, StatusCode};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::s3::{ObjectFile, nonsense};
use crate::transport::Response;
use crate::{RemoteError, Result};

const MOST_REDIRECTIONS: usize = 5;
/// Bytes after which failures before them do not count any more.
const PROGRESS: u64 = 1 << 20;

/// Takes bytes as they come.
pub trait TakeBytes: FnMut(&[u8]) -> std::io::Result<()> + Send {}

impl<T: FnMut(&[u8]) -> std::io::Result<()> + Send> TakeBytes for T {}

/// How often reading broke off since it last came ahead.
#[derive(Default)]
struct Failures {
    count: u32,
    /// Where it was when the first of them happened.
    at: u64,
}

impl Client {
    /// Reads a range of an object, whatever happens to the connection on the way.
    ///
    /// # Errors
    /// The object has changed, or the connection breaks off again and again.
    pub async fn read_range(
        &self,
        file: &ObjectFile,
        range: Range<u64>,
        take: &mut impl TakeBytes,
    ) -> Result<()> {
        let mut at = range.start;
        let mut failures = Failures::default();
        while at < range.end {
            let call = Call::new(Method::GET, &file.address)
                .header("range", format!("bytes={at}-{}", range.end - 1))
                .header("if-match", file.etag.clone());
            let mut response = self.perform(&call).await?;
            check_range(&response, file, at..range.end)?;
            let outcome = copy(&mut response, &mut at, range.end, &file.address, take).await?;
            if at < range.end {
                let why = outcome.unwrap_or_else(|| "the body ended early".to_owned());
                self.after(&mut failures, at, &file.address, why).await?;
            }
        }
        Ok(())
    }

    /// A range of an object as one piece of memory.
    ///
    /// # Errors
    /// Those of [`Client::read_range`].
    pub async fn range(&self, file: &ObjectFile, range: Range<u64>) -> Result<Bytes> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(length).is_err() {
            let why = format!("there is no memory for {length} bytes of it");
            return Err(nonsense(&file.address, &why));
        }
        let mut take = |more: &[u8]| {
            bytes.extend_from_slice(more);
            Ok(())
        };
        self.read_range(file, range, &mut take).await?;
        Ok(bytes.into())
    }

    /// Reads a file of an HTTP server from its beginning to its end.
    ///
    /// # Errors
    /// It is not there, it has changed meanwhile, or the connection breaks off and the server does not let it be read on.
    pub async fn download(&self, address: &Address, take: &mut impl TakeBytes) -> Result<()> {
        let mut address = address.clone();
        let mut first: Option<Version> = None;
        let mut failures = Failures::default();
        let (mut at, mut redirections) = (0, 0);
        loop {
            let mut call = Call::new(Method::GET, &address);
            if let Some(validator) = first.as_ref().and_then(|it| it.validator.as_ref()) {
                call = call
                    .header("range", format!("bytes={at}-"))
                    .header("if-range", validator.clone());
            }
            let mut response = self.perform(&call).await?;
            if response.status.is_redirection() {
                redirections += 1;
                address = redirected(&address, &response, redirections)?;
                continue;
            }
            let version = Version::of(&response, &address, at)?;
            let known = first.get_or_insert_with(|| version.clone());
            if !known.is_same(&version) {
                return Err(RemoteError::Changed {
                    url: address.to_string(),
                });
            }
            let (validator, end) = (known.validator.clone(), known.bytes);
            let is_whole = response.status != StatusCode::PARTIAL_CONTENT;
            let mut skip = if is_whole { at } else { 0 };
            let mut take_rest = |bytes: &[u8]| {
                let passed =
                    usize::try_from(skip).map_or(bytes.len(), |skip| skip.min(bytes.len()));
                skip -= passed as u64;
                take(&bytes[passed..])
            };
            let mut reached = if is_whole { 0 } else { at };
            let limit = end.unwrap_or(u64::MAX);
            let outcome =
                copy(&mut response, &mut reached, limit, &address, &mut take_rest).await?;
            at = at.max(reached);
            let why = match (outcome, end) {
                (None, None) => return Ok(()),
                (None, Some(end)) if at == end => return Ok(()),
                (why, _) => why.unwrap_or_else(|| "the body ended early".to_owned()),
            };
            if at > 0 && validator.is_none() {
                return Err(RemoteError::Interrupted {
                    url: address.to_string(),
                    what: "read",
                    tries: 1,
                    why: format!(
                        "{why} (the server does not say whether a second answer is the same file)"
                    ),
                });
            }
            self.after(&mut failures, at, &address, why).await?;
        }
    }

    /// Waits after reading broke off, or gives up.
    async fn after(
        &self,
        failures: &mut Failures,
        at: u64,
        address: &Address,
        why: String,
    ) -> Result<()> {
        if failures.count == 0 || at - failures.at >= PROGRESS {
            *failures = Failures { count: 0, at };
        }
        failures.count += 1;
        if failures.count >= self.attempts() {
            return Err(RemoteError::Interrupted {
                url: address.to_string(),
                what: "read",
                tries: failures.count,
                why,
            });
        }
        self.pause(failures.count).await;
        Ok(())
    }
}

/// Hands the bytes of an answer on; why it broke off, if it did.
async fn copy(
    response: &mut Response,
    at: &mut u64,
    end: u64,
    address: &Address,
    take: &mut impl TakeBytes,
) -> Result<Option<String>> {
    loop {
        let bytes = match response.next().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(why) => return Ok(Some(why)),
        };
        if bytes.len() as u64 > end - *at {
            return Err(nonsense(address, "it is longer than it says"));
        }
        take(&bytes)?;
        *at += bytes.len() as u64;
    }
}

/// Sees that an answer is of the file that was looked at, and begins where it has to.
fn check_range(response: &Response, file: &ObjectFile, wanted: Range<u64>) -> Result<()> {
    let changed = || RemoteError::Changed {
        url: file.address.to_string(),
    };
    if response
        .header("etag")
        .is_some_and(|etag| etag != file.etag)
    {
        return Err(changed());
    }
    if response.status == StatusCode::OK && wanted == (0..file.bytes) {
        return match response.length() {
            Some(length) if length != file.bytes => Err(changed()),
            _ => Ok(()),
        };
    }
    let said = response.header("content-range").unwrap_or_default();
    let Some((range, total)) = content_range(said) else {
        return Err(nonsense(
            &file.address,
            "it is not the range that was asked for",
        ));
    };
    if total.is_some_and(|total| total != file.bytes) {
        return Err(changed());
    }
    match range.start == wanted.start && range.end <= wanted.end {
        true => Ok(()),
        false => Err(nonsense(
            &file.address,
            "it is not the range that was asked for",
        )),
    }
}

/// `bytes FIRST-LAST/TOTAL`, as a half-open range and the total, if that is known.
fn content_range(text: &str) -> Option<(Range<u64>, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = match total {
        "*" => None,
        total => Some(total.parse().ok()?),
    };
    (first <= last).then_some(())?;
    Some((first..last.checked_add(1)?, total))
}

/// What tells one version of a server's file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    /// A strong `ETag`, or the time of the last change.
    validator: Option<String>,
    /// Its length, if the server says so.
    bytes: Option<u64>,
}

impl Version {
    fn is_same(&self, other: &Self) -> bool {
        let lengths = self.bytes.zip(other.bytes);
        self.validator == other.validator && lengths.is_none_or(|(one, other)| one == other)
    }

    fn of(response: &Response, address: &Address, at: u64) -> Result<Self> {
        let header = |name| response.header(name).map(str::to_owned);
        let etag = header("etag").filter(|etag| !etag.starts_with("W/"));
        let bytes = match response.status {
            StatusCode::PARTIAL_CONTENT => {
                let said = header("content-range").unwrap_or_default();
                match content_range(&said) {
                    Some((range, total)) if range.start == at => total,
                    _ => return Err(nonsense(address, "it is not the range that was asked for")),
                }
            }
            StatusCode::OK => response.length(),
            status => return Err(nonsense(address, &format!("its status is {status}"))),
        };
        if !response.has_end() {
            return Err(nonsense(
                address,
                "it does not say where the file ends, so that a part of it could be taken for the whole: fetch the file first",
            ));
        }
        Ok(Self {
            validator: etag.or_else(|| header("last-modified")),
            bytes,
        })
    }
}

fn redirected(address: &Address, response: &Response, count: usize) -> Result<Address> {
    let Address::Http(url) = address else {
        return Err(nonsense(address, "it is redirected"));
    };
    if count > MOST_REDIRECTIONS {
        let why = format!("it redirects more than {MOST_REDIRECTIONS} times");
        return Err(nonsense(address, &why));
    }
    let next = response.header("location").and_then(|to| url.join(to).ok());
    let next = next.ok_or_else(|| {
        nonsense(
            address,
            &format!("its status is {} and it leads nowhere", response.status),
        )
    })?;
    let next = Address::parse(next.as_str())?;
    match &next {
        Address::Http(to) if url.scheme() != "https" || to.scheme() == "https" => Ok(next),
        _ => Err(nonsense(
            address,
            "it leads from https to an address that is not encrypted",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(content_range("bytes 0-0/1"), Some((0..1, Some(1))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5..10, None)));
        for wrong in [
            "",
            "bytes",
            "bytes */10",
            "bytes 9-5/10",
            "items 5-9/10",
            "bytes 5-9",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
