//! Bringing the rows of a bucket from all who keep some of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use axum::http::{Method, StatusCode};
use datafusion::common::{DataFusionError, Result};
use engine::shuffle::{BucketReader, Holder, WantedBucket, lost_rows};
use futures::future::try_join_all;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::BucketRequest;
use crate::client::{MemberClient, MemberResponse};
use crate::frames::{Frame, FrameReader};
use crate::tls::Role;

/// How long one who keeps rows may say nothing when it is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Batches that may wait for whoever merges them.
const BATCHES_AHEAD: usize = 2;

/// Asks workers, and front ends, for the rows that they keep.
pub(crate) struct BucketFetcher {
    client: Arc<MemberClient>,
    /// Where connections live.
    runtime: Handle,
}

impl fmt::Debug for BucketFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BucketFetcher")
    }
}

impl BucketFetcher {
    /// One whose connections live in the runtime in which this is called.
    pub fn new(client: Arc<MemberClient>) -> Self {
        Self {
            client,
            runtime: Handle::current(),
        }
    }
}

/// What comes of a bucket.
enum Came {
    Rows(RecordBatch),
    /// All have come.
    End,
}

impl BucketReader for BucketFetcher {
    fn read(&self, bucket: WantedBucket) -> BoxStream<'static, Result<RecordBatch>> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let client = Arc::clone(&self.client);
        let task = self.runtime.spawn(async move {
            let last = match fetch(&client, &bucket, &sender).await {
                Ok(()) => Ok(Came::End),
                Err(error) => Err(error),
            };
            // Nobody may read any more.
            let _ = sender.send(last).await;
        });
        let coming = Coming {
            receiver,
            task: task.abort_handle(),
        };
        stream::unfold(Some(coming), |coming| async move {
            let mut coming = coming?;
            match coming.receiver.recv().await {
                Some(Ok(Came::Rows(batch))) => Some((Ok(batch), Some(coming))),
                Some(Ok(Came::End)) => None,
                Some(Err(error)) => Some((Err(error), None)),
                None => {
                    let why = "the rows that a shuffle keeps were not read to their end";
                    Some((Err(lost_rows(why)), None))
                }
            }
        })
        .boxed()
    }
}

/// Rows that come. Dropping them ends the requests.
struct Coming {
    receiver: mpsc::Receiver<Result<Came>>,
    task: AbortHandle,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What one who keeps rows sends.
struct Source {
    holder: Arc<Holder>,
    response: MemberResponse,
    reader: FrameReader,
    /// The piece of the request whose rows come next.
    piece: u32,
}

async fn fetch(
    client: &MemberClient,
    wanted: &WantedBucket,
    sender: &mpsc::Sender<Result<Came>>,
) -> Result<()> {
    // The places of the sources, by the pieces in their order.
    let mut order = VecDeque::with_capacity(wanted.pieces.len());
    let mut places: HashMap<Arc<Holder>, usize> = HashMap::new();
    let mut requests: Vec<(Arc<Holder>, BucketRequest)> = Vec::new();
    for piece in wanted.pieces.iter() {
        let place = *places.entry(Arc::clone(&piece.holder)).or_insert_with(|| {
            let request = BucketRequest {
                shuffle: wanted.shuffle,
                bucket: wanted.bucket,
                pieces: Vec::new(),
            };
            requests.push((Arc::clone(&piece.holder), request));
            requests.len() - 1
        });
        requests[place].1.pieces.push((piece.run, piece.at));
        order.push_back(place);
    }
    let opened = requests.into_iter();
    let opened = opened.map(|(holder, request)| Source::open(client, holder, request));
    let mut sources = try_join_all(opened).await?;
    for place in order {
        let source = &mut sources[place];
        while let Some(batch) = source.next_of_piece().await? {
            if sender.send(Ok(Came::Rows(batch))).await.is_err() {
                return Ok(());
            }
        }
    }
    for source in sources {
        source.end().await?;
    }
    Ok(())
}

impl Source {
    async fn open(
        client: &MemberClient,
        holder: Arc<Holder>,
        request: BucketRequest,
    ) -> Result<Self> {
        let lost = |why: String| lost_at(&holder, &why);
        let body = serde_json::to_vec(&request).map_err(|error| lost(error.to_string()))?;
        let role = role_of(&holder);
        let (method, path) = (Method::POST, "/shuffles/bucket");
        let sent = client.send(method, role, &holder.address, path, body.into());
        let response = match timeout(PATIENCE, sent).await {
            Ok(response) => response.map_err(|error| lost(error.to_string()))?,
            Err(_) => return Err(lost("it does not answer".to_owned())),
        };
        match response.status {
            StatusCode::OK => Ok(Self {
                holder,
                response,
                reader: FrameReader::default(),
                piece: 0,
            }),
            status => {
                let why = response.text().await;
                Err(lost(format!("it answers {status}: {why}")))
            }
        }
    }

    /// Some rows of the piece that comes next; none at its end.
    async fn next_of_piece(&mut self) -> Result<Option<RecordBatch>> {
        match self.next().await? {
            Frame::Rows(piece, batch) if piece == self.piece => Ok(Some(batch)),
            Frame::Done(piece) if piece == self.piece => {
                self.piece += 1;
                Ok(None)
            }
            _ => Err(self.lost("it sends something else than it was asked for")),
        }
    }

    /// Nothing else comes.
    async fn end(mut self) -> Result<()> {
        match self.next().await? {
            Frame::Footer => {
                // The connection is kept for the next request.
                let _ = timeout(PATIENCE, self.response.next()).await;
                Ok(())
            }
            _ => Err(self.lost("it sends more than it was asked for")),
        }
    }

    async fn next(&mut self) -> Result<Frame> {
        loop {
            let read = self.reader.next().map_err(|why| self.lost(why))?;
            match read {
                Some(Frame::Failed(failure)) => return Err(self.lost(failure.sentence)),
                Some(Frame::Progress) => {}
                Some(frame) => return Ok(frame),
                None => match timeout(PATIENCE, self.response.next()).await {
                    Ok(Ok(Some(bytes))) => self.reader.push(&bytes),
                    Ok(Ok(None)) => return Err(self.lost("they ended before their end")),
                    Ok(Err(error)) => {
                        return Err(self.lost(format!("they stopped in the middle: {error}")));
                    }
                    Err(_) => return Err(self.lost("nothing comes any more")),
                },
            }
        }
    }

    fn lost(&self, why: impl AsRef<str>) -> DataFusionError {
        lost_at(&self.holder, why.as_ref())
    }
}

fn lost_at(holder: &Holder, why: &str) -> DataFusionError {
    let address = &holder.address;
    lost_rows(format!(
        "rows that {address} keeps for this statement cannot be read: {why}"
    ))
}

/// The role that a member has to have who keeps rows.
pub(super) fn role_of(holder: &Holder) -> Role {
    match holder.is_front_end {
        true => Role::FrontEnd,
        false => Role::Worker,
    }
}
