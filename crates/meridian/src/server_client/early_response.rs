//! Connections whose response is read though the server has stopped reading the request.
//!
//! A server that refuses a request may respond and close before the body has arrived as a whole. Whatever is written then fails, and
//! hyper ends the connection for that before it has read the response, which is there.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Why nothing can be written to a connection any more; empty as long as that is possible.
pub type BrokenWrite = Arc<OnceLock<String>>;

/// A connection that waits for its end when nothing can be written to it any more, while it is read on.
#[derive(Debug)]
pub struct ReadableToTheEnd<S> {
    stream: S,
    broken: BrokenWrite,
}

impl<S> ReadableToTheEnd<S> {
    pub fn new(stream: S) -> (Self, BrokenWrite) {
        let broken = BrokenWrite::default();
        let connection = Self {
            stream,
            broken: Arc::clone(&broken),
        };
        (connection, broken)
    }

    /// What is left of an outcome of writing. The reader is woken by what arrives, and by the end, which the other side has made.
    fn unless_closed<T>(&self, outcome: io::Result<T>) -> Poll<io::Result<T>> {
        match outcome {
            Err(error) if is_closed(&error) => {
                let _ = self.broken.set(error.to_string());
                Poll::Pending
            }
            outcome => Poll::Ready(outcome),
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadableToTheEnd<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadableToTheEnd<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_broken() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.unless_closed(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_broken() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices));
        self.unless_closed(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_broken() {
            return Poll::Pending;
        }
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.unless_closed(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.is_broken() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.stream).poll_shutdown(context),
        }
    }
}
