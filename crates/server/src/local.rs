//! The two ways of a connection by a file of the system (a Unix-domain stream), of which the one out is not watched for room.
//!
//! Linux tells whoever watches such a stream for room each time that the other side has read something: a server that waits for
//! the next command would be woken twice for each answer, by a client that could go on meanwhile. So bytes are written at once,
//! and room is waited for only where there is none. (Over TCP the system tells of room only those for whom there was none.)

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Splits a connection into its two ways.
///
/// # Errors
/// The system cannot watch it.
pub(crate) fn split(stream: tokio::net::UnixStream) -> io::Result<(Incoming, Outgoing)> {
    let stream = Arc::new(watched(stream.into_std()?, Interest::READABLE)?);
    let outgoing = Outgoing {
        stream: Arc::clone(&stream),
        room: None,
    };
    Ok((Incoming(stream), outgoing))
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for descriptors that may be closed while they are watched: a stream's is its own"
)]
fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

/// What comes from the other side.
#[derive(Debug)]
pub(crate) struct Incoming(Arc<AsyncFd<UnixStream>>);

/// What goes to the other side. Dropping it tells that side that nothing comes any more.
#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: Arc<AsyncFd<UnixStream>>,
    /// Watches for room while there is none.
    room: Option<AsyncFd<UnixStream>>,
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let free = into.initialize_unfilled();
            let Ok(read) = ready.try_io(|stream| stream.get_ref().read(free)) else {
                continue;
            };
            let read = read?;
            if read > 0 && read < free.len() {
                // Nothing is left, and the system tells when there is more: no need to ask it in vain.
                ready.clear_ready();
            }
            into.advance(read);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let Some(room) = &self.room else {
                match self.stream.get_ref().write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let stream = self.stream.get_ref().try_clone()?;
                        self.room = Some(watched(stream, Interest::WRITABLE)?);
                        continue;
                    }
                    written => return Poll::Ready(written),
                }
            };
            let mut ready = ready!(room.poll_write_ready(context))?;
            if let Ok(written) = ready.try_io(|stream| stream.get_ref().write(bytes)) {
                drop(ready);
                self.room = None;
                return Poll::Ready(written);
            }
        }
    }

    /// Nothing is held back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // The other side may have gone first.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    fn connected() -> (tokio::net::UnixStream, Incoming, Outgoing) {
        let (client, server) = tokio::net::UnixStream::pair().unwrap();
        let (incoming, outgoing) = split(server).unwrap();
        (client, incoming, outgoing)
    }

    #[tokio::test]
    async fn both_ways_carry_what_is_said() {
        let (mut client, mut incoming, mut outgoing) = connected();
        for word in [&b"one"[..], b"two"] {
            client.write_all(word).await.unwrap();
            let mut heard = [0; 3];
            incoming.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, word);
            outgoing.write_all(word).await.unwrap();
            client.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, word);
        }
    }

    #[tokio::test]
    async fn what_comes_after_a_short_read_is_heard() {
        let (mut client, mut incoming, _outgoing) = connected();
        let mut heard = [0; 100];
        for _ in 0..3 {
            client.write_all(b"one").await.unwrap();
            assert_eq!(incoming.read(&mut heard).await.unwrap(), 3);
            // Not there yet when it is read for, and there when it is.
            let (read, sent) = tokio::join!(incoming.read(&mut heard), client.write_all(b"later"));
            sent.unwrap();
            assert_eq!(read.unwrap(), 5);
        }
        // Said and gone before anything is read.
        client.write_all(b"last").await.unwrap();
        drop(client);
        tokio::task::yield_now().await;
        let read = timeout(Duration::from_secs(10), async {
            let last = incoming.read(&mut heard).await.unwrap();
            (last, incoming.read(&mut heard).await.unwrap())
        });
        assert_eq!(read.await.unwrap(), (4, 0));
    }

    #[tokio::test]
    async fn much_waits_for_room_and_no_longer() {
        let (mut client, _incoming, mut outgoing) = connected();
        let sent: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut written = 0;
        while let Ok(more) =
            timeout(Duration::from_millis(50), outgoing.write(&sent[written..])).await
        {
            written += more.unwrap();
        }
        assert!(outgoing.room.is_some() && written < sent.len(), "{written}");
        let (heard, said) = tokio::join!(
            async {
                let mut heard = vec![0; sent.len()];
                client.read_exact(&mut heard).await.unwrap();
                heard
            },
            outgoing.write_all(&sent[written..])
        );
        said.unwrap();
        assert!(heard == sent);
        // With room again, it is not watched for.
        outgoing.write_all(b"more").await.unwrap();
        assert!(outgoing.room.is_none());
    }

    #[tokio::test]
    async fn either_side_hears_that_the_other_has_gone() {
        let (mut client, incoming, outgoing) = connected();
        drop(outgoing);
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        drop(incoming);
        let (client, mut incoming, mut outgoing) = connected();
        drop(client);
        assert_eq!(incoming.read(&mut [0; 8]).await.unwrap(), 0);
        let refused = outgoing.write_all(b"is anybody there").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}
