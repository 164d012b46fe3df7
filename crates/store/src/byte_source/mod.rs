//! What a file of rows is read from: a local file, a file at a peer, or another source with faults put into it. Objects are read by
//! sources of crates above ([`crate::FileHome`]).
//!
//! A source gives bytes and vouches for none of them: [`crate::ChunkFile`] verifies what it reads, wherever it comes from. The
//! director index is read from local files only: its lookups are a page each, on the thread that asks.

mod faulty;
mod http;
mod local;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

pub use faulty::{Fault, FaultySource};
pub use http::{HttpFile, HttpPeer, HttpTimeouts, PeerConnector, PeerStream};
pub use local::LocalFile;

/// A file that never changes, as something to read ranges of bytes from.
///
/// Any number of reads may run at a time. Dropping the future of a read ends it.
#[async_trait]
pub trait ByteSource: fmt::Debug + Send + Sync {
    /// What messages call it: a path, or an address in the place of one.
    fn name(&self) -> &Arc<Path>;

    /// Bytes that it had when it was opened.
    fn num_bytes(&self) -> u64;

    /// Fills the buffer with the bytes from `offset` on. A local file does so at once, on the thread that polls.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if it ends before the range does; [`io::ErrorKind::TimedOut`]; whatever else kept it from
    /// reading. What is in the buffer is then worth nothing.
    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether it keeps a file of this machine open.
    fn is_local(&self) -> bool {
        false
    }

    /// The number of the place from which bytes come now; see [`Self::distrust`].
    fn place(&self) -> usize {
        0
    }

    /// Says that bytes which came from a place are wrong. Whether those that are read again come from another one.
    fn distrust(&self, place: usize) -> bool {
        let _ = place;
        false
    }

    /// Has bytes fetched that will be read soon, if it can; nothing waits for that.
    fn read_ahead(&self, range: &Range<u64>) {
        let _ = range;
    }
}
