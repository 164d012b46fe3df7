//! The two halves of a Unix-domain stream, of which the write half waits for writability only after a write would block.
//!
//! Linux wakes a process that waits for a Unix-domain stream's writability each time that the other side has read something: a server
//! that waits for the next command would be woken twice for each result, and delay a client that could go on. So bytes are written at
//! once, and the stream is watched for writability only while its buffer is full. (TCP wakes only those whose write would have blocked.)

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Splits a connection into its two halves.
///
/// # Errors
/// The stream cannot be registered with the reactor.
pub(crate) fn split(stream: tokio::net::UnixStream) -> io::Result<(ReadHalf, WriteHalf)> {
    let stream = Arc::new(watched(stream.into_std()?, Interest::READABLE)?);
    let outgoing = WriteHalf {
        stream: Arc::clone(&stream),
        room: None,
    };
    Ok((ReadHalf(stream), outgoing))
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for descriptors that may be closed while they are watched: a stream's is its own"
)]
fn watched(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

/// The read half.
#[derive(Debug)]
pub(crate) struct ReadHalf(Arc<AsyncFd<UnixStream>>);

/// The write half. Dropping it shuts down the stream for writing.
#[derive(Debug)]
pub(crate) struct WriteHalf {
    stream: Arc<AsyncFd<UnixStream>>,
    /// Watches for writability while the buffer is full.
    room: Option<AsyncFd<UnixStream>>,
}

impl AsyncRead for ReadHalf {
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
                // Nothing is left, and the reactor tells when more arrives: another read would be in vain.
                ready.clear_ready();
            }
            into.advance(read);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for WriteHalf {
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

    /// There is no buffer.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // The other side may have closed the stream first.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    fn connected() -> (tokio::net::UnixStream, ReadHalf, WriteHalf) {
        let (client, server) = tokio::net::UnixStream::pair().unwrap();
        let (incoming, outgoing) = split(server).unwrap();
        (client, incoming, outgoing)
    }

    #[tokio::test]
    async fn both_ways_carry_what_is_said() {
        let (mut client, mut incoming, mut outgoing) = connected();
        for word in [&b"one"[..], b"two"] {
            client.write_all(word).await.unwrap();
            let mut received = [0; 3];
            incoming.read_exact(&mut received).await.unwrap();
            assert_eq!(received, word);
            outgoing.write_all(word).await.unwrap();
            client.read_exact(&mut received).await.unwrap();
            assert_eq!(received, word);
        }
    }

    #[tokio::test]
    async fn what_comes_after_a_short_read_is_heard() {
        let (mut client, mut incoming, _outgoing) = connected();
        let mut received = [0; 100];
        for _ in 0..3 {
            client.write_all(b"one").await.unwrap();
            assert_eq!(incoming.read(&mut received).await.unwrap(), 3);
            // The bytes arrive after the read has begun.
            let (read, sent) =
                tokio::join!(incoming.read(&mut received), client.write_all(b"later"));
            sent.unwrap();
            assert_eq!(read.unwrap(), 5);
        }
        // The client sends and closes before anything is read.
        client.write_all(b"last").await.unwrap();
        drop(client);
        tokio::task::yield_now().await;
        let read = timeout(Duration::from_secs(10), async {
            let last = incoming.read(&mut received).await.unwrap();
            (last, incoming.read(&mut received).await.unwrap())
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
        let (received, sent_all) = tokio::join!(
            async {
                let mut received = vec![0; sent.len()];
                client.read_exact(&mut received).await.unwrap();
                received
            },
            outgoing.write_all(&sent[written..])
        );
        sent_all.unwrap();
        assert!(received == sent);
        // Writability is no longer watched for.
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
        let rejected = outgoing.write_all(b"is anybody there").await.unwrap_err();
        assert_eq!(rejected.kind(), io::ErrorKind::BrokenPipe);
    }
}
