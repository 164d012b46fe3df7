//! Another source with faults put into it, for tests of whatever reads from sources.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::ByteSource;

/// What goes wrong with a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with an error of this kind.
    Fails(io::ErrorKind),
    /// It ends in the middle and says so.
    CutShort,
    /// It gives the first half of the bytes for all of them; the others are 0.
    HalfRead,
    /// A bit of one byte is another: of the one at this place, counted round from the first.
    FlippedByte(usize),
    /// It is right, but takes so much longer.
    Slow(Duration),
}

/// A source of which some reads go wrong.
#[derive(Debug)]
pub struct FaultySource {
    inner: Arc<dyn ByteSource>,
    fault: Fault,
    /// The reads that go wrong, by their numbers.
    wrong: Range<u64>,
    reads: AtomicU64,
}

impl FaultySource {
    /// A source whose reads have a fault if their numbers, which count from 0, are in a range.
    pub fn new(inner: Arc<dyn ByteSource>, fault: Fault, wrong: Range<u64>) -> Self {
        Self {
            inner,
            fault,
            wrong,
            reads: AtomicU64::new(0),
        }
    }

    /// Reads so far.
    pub fn num_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl ByteSource for FaultySource {
    fn name(&self) -> &Arc<Path> {
        self.inner.name()
    }

    fn num_bytes(&self) -> u64 {
        self.inner.num_bytes()
    }

    async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if !self.wrong.contains(&number) {
            return self.inner.read_at(offset, buffer).await;
        }
        let half = buffer.len() / 2;
        match self.fault {
            Fault::Fails(kind) => Err(io::Error::new(kind, "a fault was injected")),
            Fault::CutShort => {
                self.inner.read_at(offset, &mut buffer[..half]).await?;
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Fault::HalfRead => {
                buffer[half..].fill(0);
                self.inner.read_at(offset, &mut buffer[..half]).await
            }
            Fault::FlippedByte(place) => {
                self.inner.read_at(offset, buffer).await?;
                if !buffer.is_empty() {
                    let place = place % buffer.len();
                    buffer[place] ^= 1 << (place % 8);
                }
                Ok(())
            }
            Fault::Slow(time) => {
                tokio::time::sleep(time).await;
                self.inner.read_at(offset, buffer).await
            }
        }
    }

    fn place(&self) -> usize {
        self.inner.place()
    }

    fn distrust(&self, place: usize) -> bool {
        self.inner.distrust(place)
    }

    fn read_ahead(&self, range: &Range<u64>) {
        self.inner.read_ahead(range);
    }
}
