//! Writing objects from local files: small ones in one request, others in parts that are sent side by side.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use hyper::Method;
use tokio::task::JoinSet;

use crate::address::Address;
use crate::client::{Call, Client};
use crate::listing::{Complaint, upload_id, uploads_under_way};
use crate::s3::{Condition, nonsense};
use crate::{RemoteError, Result};

/// Bytes of a part; S3 takes 5 MiB and more.
const PART: u64 = 16 << 20;
/// Parts of an object at most.
const MOST_PARTS: u64 = 10_000;
/// Parts that are sent side by side.
const PARTS_AHEAD: usize = 4;
/// Bytes of an answer.
const LONGEST_ANSWER: usize = 16 << 20;

impl Client {
    /// Writes a local file of so many bytes as an object, with a note in one of its headers.
    ///
    /// # Errors
    /// It cannot be read, has another length, or may not be written. Nothing is visible of it then.
    pub async fn upload(
        &self,
        path: &Path,
        bytes: u64,
        address: &Address,
        note: (&str, &str),
    ) -> Result<()> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() != bytes {
            return Err(changed_file(path));
        }
        if bytes <= PART {
            let content = read_part(&mut file, path, 0, bytes)?;
            self.put(address, content, &Condition::None, Some(note))
                .await?;
            return Ok(());
        }
        let begun = Call::new(Method::POST, address)
            .query("uploads", "")
            .header(note.0, note.1);
        let text = self.text_of(&begun).await?;
        let id = upload_id(&text).map_err(|why| nonsense(address, &why))?;
        let sent = self
            .upload_parts(&mut file, path, bytes, address, &id)
            .await;
        let done = match sent {
            Ok(tags) => self.complete(address, &id, &tags, bytes).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            // What cannot be given up now is by the next backup.
            let _ = self.abort(address, &id).await;
        }
        done
    }

    async fn upload_parts(
        &self,
        file: &mut File,
        path: &Path,
        bytes: u64,
        address: &Address,
        id: &str,
    ) -> Result<Vec<String>> {
        let part = PART.max(bytes.div_ceil(MOST_PARTS));
        let count = bytes.div_ceil(part);
        let mut tags = vec![String::new(); usize::try_from(count).unwrap_or_default()];
        let mut under_way = JoinSet::new();
        for number in 0..count {
            if under_way.len() >= PARTS_AHEAD {
                take_tag(&mut under_way, &mut tags).await?;
            }
            let begin = number * part;
            let content = read_part(file, path, begin, part.min(bytes - begin))?;
            let (client, address, id) = (self.clone(), address.clone(), id.to_owned());
            under_way.spawn(async move {
                let tag = client
                    .upload_part(&address, &id, number + 1, content)
                    .await?;
                Ok::<_, RemoteError>((number, tag))
            });
        }
        while !under_way.is_empty() {
            take_tag(&mut under_way, &mut tags).await?;
        }
        Ok(tags)
    }

    async fn upload_part(
        &self,
        address: &Address,
        id: &str,
        number: u64,
        content: Bytes,
    ) -> Result<String> {
        let number = number.to_string();
        let call = Call::new(Method::PUT, address)
            .query("partNumber", &number)
            .query("uploadId", id)
            .body(content);
        let response = self.perform(&call).await?;
        let tag = response.header("etag").map(str::to_owned);
        let _ = response.whole(LONGEST_ANSWER).await;
        tag.ok_or_else(|| nonsense(address, "a part has no ETag"))
    }

    async fn complete(
        &self,
        address: &Address,
        id: &str,
        tags: &[String],
        bytes: u64,
    ) -> Result<()> {
        let parts: String = { tags.iter().enumerate() }
            .map(|(at, tag)| {
                let tag = quick_xml::escape::escape(tag.as_str());
                let number = at + 1;
                format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
            })
            .collect();
        let body = format!(
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{parts}</CompleteMultipartUpload>"
        );
        let call = Call::new(Method::POST, address)
            .query("uploadId", id)
            .body(body.into());
        let mut tries = 0;
        loop {
            tries += 1;
            let text = match self.text_of(&call).await {
                Ok(text) => text,
                // A try whose answer was lost may have completed it.
                Err(error @ RemoteError::NotAsExpected { .. }) => {
                    let there = self.stat(address).await;
                    return match there.is_ok_and(|there| there.bytes == bytes) {
                        true => Ok(()),
                        false => Err(error),
                    };
                }
                Err(error) => return Err(error),
            };
            // It may fail after its status was sent.
            let complaint = Complaint::of(text.as_bytes());
            if complaint.code.is_empty() {
                return Ok(());
            }
            if tries >= self.attempts() {
                return Err(RemoteError::Interrupted {
                    url: address.to_string(),
                    what: "written",
                    tries,
                    why: complaint.code,
                });
            }
            self.pause(tries).await;
        }
    }

    async fn abort(&self, address: &Address, id: &str) -> Result<()> {
        let call = Call::new(Method::DELETE, address).query("uploadId", id);
        let response = self.perform(&call).await?;
        let _ = response.whole(LONGEST_ANSWER).await;
        Ok(())
    }

    /// Gives up the uploads in parts below a prefix that nobody completed: the store keeps what was sent of them, and charges for it.
    ///
    /// # Errors
    /// They may not be listed or given up.
    pub async fn abort_uploads(&self, bucket: &str, prefix: &str) -> Result<()> {
        let address = |key: &str| Address::S3 {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        };
        let whole = address("");
        let call = Call::new(Method::GET, &whole)
            .query("uploads", "")
            .query("prefix", prefix);
        let text = self.text_of(&call).await?;
        let uploads = uploads_under_way(&text).map_err(|why| nonsense(&whole, &why))?;
        for (key, id) in uploads {
            if key.starts_with(prefix) {
                match self.abort(&address(&key), &id).await {
                    // Somebody else was faster.
                    Err(RemoteError::NotAsExpected { .. } | RemoteError::Missing { .. }) => {}
                    other => other?,
                }
            }
        }
        Ok(())
    }

    async fn text_of(&self, call: &Call<'_>) -> Result<String> {
        let content = self.whole(call, LONGEST_ANSWER).await?.content;
        String::from_utf8(content).map_err(|_| nonsense(call.address, "it is no UTF-8"))
    }
}

async fn take_tag(
    under_way: &mut JoinSet<Result<(u64, String)>>,
    tags: &mut [String],
) -> Result<()> {
    let Some(joined) = under_way.join_next().await else {
        return Ok(());
    };
    let (number, tag) = joined.map_err(std::io::Error::other)??;
    if let Some(place) = usize::try_from(number).ok().and_then(|at| tags.get_mut(at)) {
        *place = tag;
    }
    Ok(())
}

fn read_part(file: &mut File, path: &Path, begin: u64, bytes: u64) -> Result<Bytes> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(bytes).read_to_end(&mut content)?;
    match content.len() as u64 == bytes {
        true => Ok(content.into()),
        false => Err(changed_file(path)),
    }
}

fn changed_file(path: &Path) -> RemoteError {
    let why = format!("{} has another length than it had", path.display());
    RemoteError::Local(std::io::Error::other(why))
}
