//! Connections are cut when the member at their other end is not trusted any more: its certificate was revoked, or its authority is gone from
//! the member's directory.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;
use tracing::warn;

use super::{Certificates, CredentialsDirectory, LOOK_INTERVAL};

/// Looks after which a certificate is verified anew though no file has changed: it may have expired.
const LOOKS: u32 = 30;

impl Certificates {
    /// Waits until a certificate that was verified with these files is not trusted any more, by the files that there are then. Gives why.
    pub async fn until_refused(
        self: Arc<Self>,
        mut verified: Arc<CredentialsDirectory>,
        chain: Vec<CertificateDer<'static>>,
    ) -> String {
        let mut looks = 0;
        loop {
            sleep(LOOK_INTERVAL).await;
            let now = self.loaded();
            looks += 1;
            if Arc::ptr_eq(&now, &verified) && looks < LOOKS {
                continue;
            }
            looks = 0;
            if let Err(why) = now.verify(&chain) {
                return why;
            }
            verified = now;
        }
    }
}

/// A connection to a member that fails once that is not trusted any more, whoever waits for it.
pub(crate) struct WatchedStream<S> {
    stream: S,
    address: String,
    refused: Pin<Box<dyn Future<Output = String> + Send>>,
    is_cut: bool,
}

impl<S> WatchedStream<S> {
    /// A connection to an address; it is cut when the future ends, which says why.
    pub fn new(
        stream: S,
        address: &str,
        refused: impl Future<Output = String> + Send + 'static,
    ) -> Self {
        Self {
            stream,
            address: address.to_owned(),
            refused: Box::pin(refused),
            is_cut: false,
        }
    }

    /// Fails if it is cut; else whoever reads or writes is woken when it is.
    fn expect_trusted(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.is_cut
            && let Poll::Ready(why) = self.refused.as_mut().poll(cx)
        {
            warn!(
                address = self.address,
                "a connection is cut: the certificate of the member there {why}"
            );
            self.is_cut = true;
        }
        match self.is_cut {
            true => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the member is not trusted any more",
            )),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.expect_trusted(cx)?;
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.expect_trusted(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.expect_trusted(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.expect_trusted(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}
