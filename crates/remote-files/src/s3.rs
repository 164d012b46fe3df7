//! Objects in buckets: what there is, small ones, and their removal.

use std::time::Duration;

use bytes::Bytes;
use chrono::DateTime;
use hyper::Method;

use crate::address::Address;
use crate::client::{Call, Client};
use crate::listing::{Page, page_of_objects};
use crate::{RemoteError, Result};

/// Bytes of a page of a list.
const LONGEST_PAGE: usize = 64 << 20;

/// An object as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// What changes with its content.
    pub etag: String,
}

/// A file at a URL that was looked at: what is read of it later is the same, or an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFile {
    /// Where it is.
    pub address: Address,
    /// Its length.
    pub bytes: u64,
    /// What changes with its content.
    pub etag: String,
}

/// A small object, whole.
#[derive(Debug, Clone)]
pub struct SmallObject {
    /// Its content.
    pub content: Vec<u8>,
    /// What changes with its content.
    pub etag: String,
    /// How long ago it was written, by the store's own clock.
    pub age: Option<Duration>,
}

/// When an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    None,
    /// If there is none of the name.
    New,
    /// If what is there is what was looked at, by its `ETag`.
    Is(String),
}

impl Condition {
    pub(crate) fn on<'a>(&self, call: Call<'a>) -> Call<'a> {
        match self {
            Self::None => call,
            Self::New => call.header("if-none-match", "*"),
            Self::Is(etag) => call.header("if-match", etag.clone()),
        }
    }
}

impl Client {
    /// Looks at an object.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub async fn stat(&self, address: &Address) -> Result<ObjectFile> {
        let asked = self.perform(&Call::new(Method::HEAD, address)).await;
        let response = match asked {
            Ok(response) => response,
            // An answer to HEAD does not say why.
            Err(
                error @ (RemoteError::Missing { .. }
                | RemoteError::Denied { .. }
                | RemoteError::Rejected { .. }),
            ) => {
                let get = Call::new(Method::GET, address).header("range", "bytes=0-0");
                return Err(self.perform(&get).await.err().unwrap_or(error));
            }
            Err(error) => return Err(error),
        };
        let length = response.header("content-length");
        let bytes = length.and_then(|it| it.parse().ok());
        let etag = response.header("etag").map(str::to_owned);
        let (Some(bytes), Some(etag)) = (bytes, etag) else {
            return Err(nonsense(address, "it has no length, or no ETag"));
        };
        // Its connection is of use again.
        response
            .whole(0)
            .await
            .map_err(|why| nonsense(address, &why))?;
        Ok(ObjectFile {
            address: address.clone(),
            bytes,
            etag,
        })
    }

    /// All objects of a bucket whose names begin so, in the order of their names.
    ///
    /// # Errors
    /// There is no such bucket, or it may not be listed.
    pub async fn list(&self, bucket: &str, prefix: &str) -> Result<Vec<Object>> {
        let address = Address::S3 {
            bucket: bucket.to_owned(),
            key: String::new(),
        };
        let mut objects = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut call = Call::new(Method::GET, &address)
                .query("list-type", "2")
                .query("prefix", prefix);
            if let Some(token) = &next {
                call = call.query("continuation-token", token);
            }
            let page = self.page(&call).await?;
            objects.extend(page.objects);
            if page.next.is_none() {
                break;
            }
            if page.next == next {
                return Err(nonsense(&address, "a page of the list follows itself"));
            }
            next = page.next;
        }
        objects.retain(|object| object.key.starts_with(prefix));
        objects.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(objects)
    }

    /// Whether a bucket has any object whose name begins so.
    ///
    /// # Errors
    /// There is no such bucket, or it may not be listed.
    pub async fn has_any(&self, bucket: &str, prefix: &str) -> Result<bool> {
        let address = Address::S3 {
            bucket: bucket.to_owned(),
            key: String::new(),
        };
        let call = Call::new(Method::GET, &address)
            .query("list-type", "2")
            .query("max-keys", "1")
            .query("prefix", prefix);
        Ok(!self.page(&call).await?.objects.is_empty())
    }

    async fn page(&self, call: &Call<'_>) -> Result<Page> {
        let text = self.whole(call, LONGEST_PAGE).await?.content;
        let text = String::from_utf8(text).map_err(|_| nonsense(call.address, "it is no UTF-8"))?;
        page_of_objects(&text).map_err(|why| nonsense(call.address, &why))
    }

    /// A small object, of which at most so many bytes are taken.
    ///
    /// # Errors
    /// It is not there, may not be read, or is longer.
    pub async fn read_small(&self, address: &Address, most: usize) -> Result<SmallObject> {
        self.whole(&Call::new(Method::GET, address), most).await
    }

    /// Reads an answer whole, from its beginning again where it breaks off.
    pub(crate) async fn whole(&self, call: &Call<'_>, most: usize) -> Result<SmallObject> {
        let mut tries = 0;
        loop {
            tries += 1;
            let response = self.perform(call).await?;
            let header = |name| response.header(name).map(str::to_owned);
            let etag = header("etag").unwrap_or_default();
            let moment = |name| header(name).and_then(|it| DateTime::parse_from_rfc2822(&it).ok());
            let age = moment("date").zip(moment("last-modified"));
            let age = age.and_then(|(now, then)| (now - then).to_std().ok());
            if response.length().is_some_and(|length| length > most as u64) {
                return Err(nonsense(
                    call.address,
                    &format!("it is longer than {most} bytes"),
                ));
            }
            match response.whole(most).await {
                Ok(content) => return Ok(SmallObject { content, etag, age }),
                Err(why) if tries >= self.attempts() => {
                    return Err(RemoteError::Interrupted {
                        url: call.address.to_string(),
                        what: "read",
                        tries,
                        why,
                    });
                }
                Err(_) => self.pause(tries).await,
            }
        }
    }

    /// Writes an object; returns its `ETag`.
    ///
    /// # Errors
    /// It may not be written, or the condition does not hold ([`RemoteError::NotAsExpected`]).
    pub async fn put(
        &self,
        address: &Address,
        content: Bytes,
        condition: &Condition,
        note: Option<(&str, &str)>,
    ) -> Result<String> {
        let mut call = Call::new(Method::PUT, address).body(content.clone());
        if let Some((name, value)) = note {
            call = call.header(name, value);
        }
        let response = match self.perform(&condition.on(call)).await {
            Ok(response) => response,
            // A try whose answer was lost may have written it.
            Err(error @ RemoteError::NotAsExpected { .. }) => {
                let there = self.read_small(address, content.len()).await;
                return match there {
                    Ok(there) if there.content == content => Ok(there.etag),
                    _ => Err(error),
                };
            }
            Err(error) => return Err(error),
        };
        let etag = response.header("etag").unwrap_or_default().to_owned();
        // What it says besides is of no interest, nor that it breaks off.
        let _ = response.whole(LONGEST_PAGE).await;
        Ok(etag)
    }

    /// A header of an object, if it is there.
    ///
    /// # Errors
    /// It may not be read.
    pub async fn note(&self, address: &Address, name: &str) -> Result<Option<String>> {
        match self.perform(&Call::new(Method::HEAD, address)).await {
            Ok(response) => {
                let note = response.header(name).map(str::to_owned);
                let _ = response.whole(0).await;
                Ok(note)
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an object. One that is not there is removed.
    ///
    /// # Errors
    /// It may not be removed.
    pub async fn delete(&self, address: &Address) -> Result<()> {
        match self.perform(&Call::new(Method::DELETE, address)).await {
            Ok(response) => {
                let _ = response.whole(LONGEST_PAGE).await;
                Ok(())
            }
            Err(RemoteError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn nonsense(address: &Address, why: &str) -> RemoteError {
    RemoteError::Nonsense {
        url: address.to_string(),
        why: why.to_owned(),
    }
}
