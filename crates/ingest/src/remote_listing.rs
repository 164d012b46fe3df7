//! What an input at a URL names: an object, those of a pattern or below a prefix, a HATS catalogue in a bucket, or a file of a server. The
//! rules are those of local inputs ([`crate::inputs`]).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use glob::Pattern;
use remote_files::{Address, Object, ObjectFile, RemoteError, is_url};

use crate::error::IngestError;
use crate::hats::{HatsCatalogue, MOST_BYTES};
use crate::inputs::{InputFiles, NO_MATCH, PATTERN_RULES, is_parquet, no_pattern};
use crate::remote::{Opener, RemoteFile, RemoteInputs};

/// Inputs at URLs as they are looked up.
pub(crate) struct Lookup<'a> {
    opener: &'a Opener,
    found: HashMap<PathBuf, Arc<RemoteFile>>,
}

/// The objects below a prefix of names, which ends with a slash or is empty.
struct Below<'a> {
    bucket: &'a str,
    prefix: &'a str,
    objects: &'a [Object],
}

impl<'a> Lookup<'a> {
    pub fn new(remote: &'a RemoteInputs) -> Self {
        Self {
            opener: &remote.opener,
            found: HashMap::new(),
        }
    }

    /// The files that were found, by their names.
    pub fn found(self) -> HashMap<PathBuf, Arc<RemoteFile>> {
        self.found
    }

    /// The files of an input, if it is a URL.
    ///
    /// # Errors
    /// Nothing is there, or it may not be read.
    pub fn files_of(&mut self, input: &Path) -> Result<Option<InputFiles>, IngestError> {
        let Some(text) = input.to_str().filter(|text| is_url(text)) else {
            return Ok(None);
        };
        let address = Address::parse(text)?;
        let files = match &address {
            Address::Http(_) => {
                let file = RemoteFile::whole(self.opener, address.clone());
                if self.found.contains_key(file.name()) {
                    let reason = "two URLs differ only in what comes after the question mark: load them one after the other";
                    return Err(IngestError::layout(file.name(), reason));
                }
                single(self.keep(file))
            }
            Address::S3 { bucket, key } => self.files_in_bucket(input, bucket, key, &address)?,
        };
        Ok(Some(files))
    }

    fn files_in_bucket(
        &mut self,
        input: &Path,
        bucket: &str,
        key: &str,
        address: &Address,
    ) -> Result<InputFiles, IngestError> {
        let client = self.opener.client().clone();
        if let Some(wildcard) = key.find(['*', '?', '[']) {
            let objects = self.opener.wait(client.list(bucket, &key[..wildcard]))?;
            // An object of this very name.
            if let Some(object) = objects.iter().find(|object| object.key == key) {
                return Ok(single(self.keep_object(bucket, object)));
            }
            return self.matching(input, bucket, key, &objects);
        }
        let prefix = match key.is_empty() || key.ends_with('/') {
            true => key.to_owned(),
            false => match self.opener.wait(client.stat(address)) {
                Ok(file) => {
                    return Ok(single(self.keep(RemoteFile::object(self.opener, file))));
                }
                Err(IngestError::Remote(missing @ RemoteError::Missing { .. })) => {
                    let prefix = format!("{key}/");
                    match self.opener.wait(client.list(bucket, &prefix)) {
                        Ok(objects) if !objects.is_empty() => prefix,
                        Err(IngestError::Cancelled) => return Err(IngestError::Cancelled),
                        _ => return Err(missing.into()),
                    }
                }
                Err(error) => return Err(error),
            },
        };
        let objects = self.opener.wait(client.list(bucket, &prefix))?;
        let below = Below {
            bucket,
            prefix: &prefix,
            objects: &objects,
        };
        self.directory(input, &below)
    }

    fn matching(
        &mut self,
        input: &Path,
        bucket: &str,
        pattern: &str,
        objects: &[Object],
    ) -> Result<InputFiles, IngestError> {
        let compiled = Pattern::new(pattern).map_err(|error| no_pattern(input, &error))?;
        let is_match = |object: &&Object| {
            !object.key.ends_with('/') && compiled.matches_with(&object.key, PATTERN_RULES)
        };
        let files: Vec<PathBuf> = { objects.iter().filter(is_match) }
            .map(|object| self.keep_object(bucket, object))
            .collect();
        match files.is_empty() {
            true => Err(IngestError::layout(input, NO_MATCH)),
            false => Ok(InputFiles {
                files,
                is_group: true,
                hats: None,
            }),
        }
    }

    /// The Parquet files below a prefix, or the HATS catalogue that it is.
    fn directory(&mut self, input: &Path, below: &Below<'_>) -> Result<InputFiles, IngestError> {
        let names: Vec<PathBuf> = { below.objects.iter() }
            .filter_map(|object| object.key.strip_prefix(below.prefix))
            .filter(|name| !name.is_empty() && !name.ends_with('/'))
            .map(PathBuf::from)
            .collect();
        let dir = PathBuf::from(format!("s3://{}/{}", below.bucket, below.prefix));
        let client = self.opener.client().clone();
        let read = |name: &Path| {
            let address = Address::S3 {
                bucket: below.bucket.to_owned(),
                key: format!("{}{}", below.prefix, name.display()),
            };
            let small = self.opener.wait(client.read_small(&address, MOST_BYTES))?;
            Ok(String::from_utf8_lossy(&small.content).into_owned())
        };
        let hats = HatsCatalogue::of_names(&dir, &names, read)?;
        let wanted: Vec<PathBuf> = match &hats {
            Some(catalogue) => {
                let files = catalogue.files()?.into_iter();
                files
                    .filter_map(|file| file.strip_prefix(&dir).ok().map(Path::to_owned))
                    .collect()
            }
            None => { names.into_iter() }
                .filter(|name| is_parquet(name) && !is_hidden(name))
                .collect(),
        };
        let by_key: HashMap<&str, &Object> = { below.objects.iter() }
            .map(|object| (object.key.as_str(), object))
            .collect();
        let mut files = Vec::new();
        for name in wanted {
            let key = format!("{}{}", below.prefix, name.display());
            if let Some(object) = by_key.get(key.as_str()) {
                files.push(self.keep_object(below.bucket, object));
            }
        }
        match files.is_empty() && hats.is_none() {
            true => Err(IngestError::layout(
                input,
                "there are no Parquet files below it: name an object, or a pattern in quotes, such as 's3://bucket/dir/*.csv'",
            )),
            false => Ok(InputFiles {
                files,
                is_group: true,
                hats,
            }),
        }
    }

    fn keep_object(&mut self, bucket: &str, object: &Object) -> PathBuf {
        let file = ObjectFile {
            address: Address::S3 {
                bucket: bucket.to_owned(),
                key: object.key.clone(),
            },
            bytes: object.bytes,
            etag: object.etag.clone(),
        };
        self.keep(RemoteFile::object(self.opener, file))
    }

    fn keep(&mut self, file: RemoteFile) -> PathBuf {
        let name = file.name().to_owned();
        self.found.insert(name.clone(), Arc::new(file));
        name
    }
}

fn single(file: PathBuf) -> InputFiles {
    InputFiles {
        files: vec![file],
        is_group: false,
        hats: None,
    }
}

/// Whether a part of a name begins with a dot or an underscore: these are no data.
fn is_hidden(name: &Path) -> bool {
    name.iter()
        .any(|part| part.to_string_lossy().starts_with(['.', '_']))
}
