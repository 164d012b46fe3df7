//! Inputs at URLs. They are opened only where the operator's command line names them: a request that nobody gave [`RemoteInputs`] takes a
//! URL for the name of a file.
//!
//! Parquet in buckets is read by ranges, in place; everything else is copied first, as what can be read only once ([`crate::spool`]).

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use remote_files::{Address, Client, ObjectFile, RemoteError};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::error::IngestError;
use crate::progress::Progress;

/// How often a wait for a server looks whether the load was cancelled.
const PATIENCE: Duration = Duration::from_millis(100);
/// Bytes of a request for a range: larger ones are sent as several, side by side.
const REQUEST: u64 = 8 << 20;
/// Bytes between two ranges that are fetched rather than asking twice.
const GAP: u64 = 128 << 10;
/// Requests for one range or several that are under way at a time.
const REQUESTS_AHEAD: usize = 8;

/// Who opens inputs at URLs, and those that were found.
#[derive(Clone)]
pub struct RemoteInputs {
    pub(crate) opener: Opener,
    files: Arc<HashMap<PathBuf, Arc<RemoteFile>>>,
}

impl fmt::Debug for RemoteInputs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RemoteInputs({})", self.files.len())
    }
}

/// Asks servers, for threads that wait.
#[derive(Clone)]
pub(crate) struct Opener {
    client: Client,
    runtime: Handle,
    progress: Arc<Progress>,
    /// Bytes of a row group that are in memory at a time.
    window: u64,
}

impl Opener {
    /// Waits for an answer, or until the load is cancelled.
    pub fn wait<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, IngestError> {
        let cancelled = async {
            while !self.progress.is_cancelled() {
                tokio::time::sleep(PATIENCE).await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                outcome = work => Ok(outcome?),
                () = cancelled => Err(IngestError::Cancelled),
            }
        })
    }

    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl RemoteInputs {
    /// Inputs that the client opens. They are read from threads of the load, for which the present runtime does the waiting.
    pub fn new(client: Client) -> Self {
        Self {
            opener: Opener {
                client,
                runtime: Handle::current(),
                progress: Arc::default(),
                window: 0,
            },
            files: Arc::default(),
        }
    }

    /// The same for one load, which ends when that is cancelled, with so many bytes of a row group in memory at a time.
    pub(crate) fn of_load(mut self, progress: &Arc<Progress>, window: u64) -> Self {
        self.opener.progress = progress.clone();
        self.opener.window = window;
        self
    }

    /// The same with the files that were found.
    pub(crate) fn with_files(self, files: HashMap<PathBuf, Arc<RemoteFile>>) -> Self {
        Self {
            files: files.into(),
            ..self
        }
    }

    /// The file of that name, if it is one at a URL.
    pub(crate) fn get(&self, name: &Path) -> Option<&Arc<RemoteFile>> {
        self.files.get(name)
    }
}

/// A file at a URL.
pub(crate) struct RemoteFile {
    opener: Opener,
    /// What messages call it.
    name: PathBuf,
    kind: Kind,
    /// Why it could not be read, where only a sentence of somebody else's comes through.
    failure: Mutex<Option<IngestError>>,
}

enum Kind {
    /// An object, of which ranges can be read.
    Object(ObjectFile),
    /// A file that is read from its beginning to its end.
    Whole(Address),
}

impl RemoteFile {
    pub fn object(opener: &Opener, file: ObjectFile) -> Self {
        let name = file.address.to_string().into();
        Self::new(opener, name, Kind::Object(file))
    }

    pub fn whole(opener: &Opener, address: Address) -> Self {
        let name = address.to_string().into();
        Self::new(opener, name, Kind::Whole(address))
    }

    fn new(opener: &Opener, name: PathBuf, kind: Kind) -> Self {
        Self {
            opener: opener.clone(),
            name,
            kind,
            failure: Mutex::default(),
        }
    }

    pub fn name(&self) -> &Path {
        &self.name
    }

    /// Bytes of a row group that are in memory at a time.
    pub fn window(&self) -> u64 {
        self.opener.window
    }

    /// Whether it is read where it is: a Parquet file of which ranges can be had. Others are copied first.
    pub fn is_read_in_place(&self) -> bool {
        matches!(self.kind, Kind::Object(_)) && crate::inputs::is_parquet(&self.name)
    }

    /// Its length, if that is known before it is read.
    pub fn bytes(&self) -> Option<u64> {
        match &self.kind {
            Kind::Object(file) => Some(file.bytes),
            Kind::Whole(_) => None,
        }
    }

    /// Copies it to a file that is open. Errors of writing name `copy`.
    pub fn copy_to(
        &self,
        target: &mut File,
        copy: &Path,
        progress: &Progress,
    ) -> Result<(), IngestError> {
        let mut written = Ok(());
        let mut take = |bytes: &[u8]| match target.write_all(bytes) {
            Ok(()) => {
                progress.advance(bytes.len() as u64);
                Ok(())
            }
            Err(error) => {
                let sentence = error.to_string();
                written = Err(error);
                Err(std::io::Error::other(sentence))
            }
        };
        let client = self.opener.client();
        let outcome = match &self.kind {
            Kind::Object(file) => {
                let whole = 0..file.bytes;
                self.opener.wait(client.read_range(file, whole, &mut take))
            }
            Kind::Whole(address) => self.opener.wait(client.download(address, &mut take)),
        };
        written.map_err(|error| IngestError::io("write", copy, error))?;
        outcome
    }

    /// Reads ranges, each as one piece of memory, in as few requests as make sense, side by side.
    pub fn ranges(&self, wanted: &[Range<u64>]) -> Result<Vec<Bytes>, IngestError> {
        let Kind::Object(file) = &self.kind else {
            return Err(IngestError::Internal);
        };
        let requests = requests_for(wanted);
        let client = self.opener.client();
        let fetched = self.opener.wait(fetch(client, file, &requests))?;
        wanted
            .iter()
            .map(|range| cut_out(range, &requests, &fetched).ok_or(IngestError::Internal))
            .collect()
    }

    /// Keeps an error for [`RemoteFile::explain`], and gives a sentence in its place.
    pub fn keep(&self, error: IngestError) -> std::io::Error {
        let sentence = error.to_string();
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        std::io::Error::other(sentence)
    }

    /// The error that was kept, or else this one.
    pub fn explain(&self, error: IngestError) -> IngestError {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take().unwrap_or(error)
    }
}

/// The requests for ranges: near ones together, long ones apart. They are in order and do not overlap.
fn requests_for(wanted: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = wanted.iter().filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut spans: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match spans.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(range.end);
            }
            _ => spans.push(range.clone()),
        }
    }
    let pieces = |span: Range<u64>| {
        let starts = (span.start..span.end).step_by(REQUEST as usize);
        starts.map(move |start| start..span.end.min(start + REQUEST))
    };
    spans.into_iter().flat_map(pieces).collect()
}

async fn fetch(
    client: &Client,
    file: &ObjectFile,
    requests: &[Range<u64>],
) -> Result<Vec<Bytes>, RemoteError> {
    let mut fetched = vec![Bytes::new(); requests.len()];
    let mut under_way = JoinSet::new();
    let mut next = requests.iter().enumerate();
    loop {
        while under_way.len() < REQUESTS_AHEAD
            && let Some((at, range)) = next.next()
        {
            let (client, file, range) = (client.clone(), file.clone(), range.clone());
            under_way.spawn(async move { (at, client.range(&file, range).await) });
        }
        let Some(joined) = under_way.join_next().await else {
            return Ok(fetched);
        };
        let (at, bytes) = joined.map_err(std::io::Error::other)?;
        if let Some(place) = fetched.get_mut(at) {
            *place = bytes?;
        }
    }
}

/// The bytes of a range among those of requests.
fn cut_out(range: &Range<u64>, requests: &[Range<u64>], fetched: &[Bytes]) -> Option<Bytes> {
    if range.is_empty() {
        return Some(Bytes::new());
    }
    let first = requests.partition_point(|request| request.end <= range.start);
    let mut pieces = Vec::new();
    let mut at = range.start;
    for (request, bytes) in requests.iter().zip(fetched).skip(first) {
        if at >= range.end {
            break;
        }
        let from = usize::try_from(at.checked_sub(request.start)?).ok()?;
        let to = usize::try_from(range.end.min(request.end) - request.start).ok()?;
        pieces.push(bytes.get(from..to)?);
        at = request.end;
    }
    match (at >= range.end, pieces.as_slice()) {
        (false, _) => None,
        // A copy, so that a small piece does not keep a large answer in memory.
        (true, pieces) => Some(pieces.concat().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// One range.
    fn only(range: Range<u64>) -> Vec<Range<u64>> {
        vec![range]
    }

    #[test]
    fn near_ranges_are_fetched_together_and_long_ones_apart() {
        assert_eq!(requests_for(&[10..20, 0..5, 7..7]), only(0..20));
        assert_eq!(
            requests_for(&[0..5, GAP + 6..GAP + 9]),
            [0..5, GAP + 6..GAP + 9]
        );
        let long = requests_for(&only(MIB..21 * MIB));
        assert_eq!(long, [MIB..9 * MIB, 9 * MIB..17 * MIB, 17 * MIB..21 * MIB]);
        assert!(requests_for(&[]).is_empty());
    }

    #[test]
    fn ranges_get_their_own_bytes() {
        let byte = |at: u64| (at % 251) as u8;
        let wanted = [
            3..REQUEST + 100,
            0..1,
            5..5,
            2 * REQUEST - 1..3 * REQUEST + 7,
            9 * REQUEST..9 * REQUEST + 10,
            REQUEST + 50..REQUEST + 60,
        ];
        let requests = requests_for(&wanted);
        let bytes = |range: &Range<u64>| range.clone().map(byte).collect::<Vec<u8>>();
        let fetched: Vec<Bytes> = requests.iter().map(|range| bytes(range).into()).collect();
        for range in &wanted {
            assert_eq!(
                cut_out(range, &requests, &fetched).unwrap(),
                bytes(range),
                "{range:?}"
            );
        }
        assert_eq!(
            cut_out(&(5 * REQUEST..5 * REQUEST + 1), &requests, &fetched),
            None
        );
    }
}
