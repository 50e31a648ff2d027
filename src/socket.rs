//! A TCP connection whose handle is shared: with the HTTP library, which reads and writes, and with
//! whoever must see what reached it, whether the other side is still there, or close it at once.

mod wire;

use crate::clock::{self, Time};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use rustls::ServerConfig;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use wire::Wire;

/// A handle on a connection. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Socket(Rc<Inner>);

struct Inner {
    io: RefCell<Option<Wire>>,
    /// Bytes that the kernel, or TLS, took from us, over the connection's life.
    sent: Cell<u64>,
    /// Whether to end with FIN; else with RST, so that nothing in the send buffer is delivered.
    polite: Cell<bool>,
    /// It was made to end with FIN; else that must be asked for before the close.
    orderly: bool,
    closed_at: Cell<Option<Time>>,
    /// Since when the other side takes nothing.
    stalled_since: Cell<Option<Time>>,
}

impl Socket {
    /// A connection that ends with RST unless it is told otherwise. That holds from the start, since
    /// the kernel of a process which is killed still delivers what lies in its send buffers.
    #[must_use]
    pub fn abortive(stream: TcpStream) -> Self {
        // Where it fails the connection ends in order: worse for an upstream, no worse for the settle,
        // which runs from the close either way.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        Self::new(stream, false)
    }

    /// A connection that ends with FIN.
    #[must_use]
    pub fn orderly(stream: TcpStream) -> Self {
        Self::new(stream, true)
    }

    fn new(stream: TcpStream, orderly: bool) -> Self {
        // Without it small messages are only slower.
        let _ = stream.set_nodelay(true);
        Self(Rc::new(Inner {
            io: RefCell::new(Some(Wire::Plain(TokioIo::new(stream)))),
            sent: Cell::new(0),
            orderly,
            polite: Cell::new(orderly),
            closed_at: Cell::new(None),
            stalled_since: Cell::new(None),
        }))
    }

    /// Takes a client's TLS handshake; from then on the connection is encrypted. Gives the protocol that
    /// was agreed on (ALPN), empty where none was. Dropping the future closes the connection.
    ///
    /// # Errors
    /// Where the handshake fails, or the connection is closed or encrypted already.
    pub async fn secure(&self, config: Arc<ServerConfig>) -> io::Result<Vec<u8>> {
        let Some(Wire::Plain(io)) = self.0.io.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let stream = TlsAcceptor::from(config).accept(io.into_inner()).await?;
        let protocol = stream.get_ref().1.alpn_protocol();
        let protocol = protocol.unwrap_or_default().to_vec();
        *self.0.io.borrow_mut() = Some(Wire::Tls(Box::new(TokioIo::new(stream))));
        Ok(protocol)
    }

    /// Waits until a client has sent that many bytes, or something else than `expected` begins with,
    /// and says whether it was that. Takes nothing away. For a connection without TLS.
    ///
    /// # Errors
    /// Where the connection is closed.
    pub async fn begins_with(&self, expected: &[u8]) -> io::Result<bool> {
        let mut pause = Duration::from_millis(5);
        let mut came = vec![0; expected.len()];
        loop {
            let length = poll_fn(|cx| match &*self.0.io.borrow() {
                Some(Wire::Plain(io)) => {
                    let mut buffer = tokio::io::ReadBuf::new(&mut came);
                    io.inner().poll_peek(cx, &mut buffer)
                }
                _ => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            })
            .await?;
            let came = came.get(..length).unwrap_or_default();
            if length == 0 || !expected.starts_with(came) {
                return Ok(false);
            }
            if length == expected.len() {
                return Ok(true);
            }
            if self.has_left() {
                return Ok(false); // no more will come
            }
            tokio::time::sleep(pause).await; // rare: what is sent as one piece came as two
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// How many bytes reached the socket so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.0.sent.get()
    }

    /// How the connection ends when it is closed here: with FIN, or with RST so that nothing in the
    /// send buffer is delivered later.
    pub fn be_polite(&self, polite: bool) {
        self.0.polite.set(polite);
    }

    /// Closes the descriptor now, and says when that was.
    pub fn close(&self) -> Time {
        if let Ok(mut io) = self.0.io.try_borrow_mut()
            && let Some(io) = io.take()
        {
            self.0.say_goodbye(&io);
            drop(io);
            self.0.closed_at.set(Some(clock::now()));
        }
        self.0.closed_at.get().unwrap_or_else(clock::now)
    }

    /// Whether the other side has closed, or has sent what nobody asked for. Asks the kernel: the
    /// runtime may not have looked yet.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        let io = self.0.io.borrow();
        let Some(io) = io.as_ref() else { return true };
        let mut byte = [0_u8; 1];
        let peeked = recv(
            io.tcp(),
            &mut byte[..],
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        !matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// For how long the other side has taken nothing of what there is to send.
    #[must_use]
    pub fn stalled_for(&self) -> Duration {
        self.0
            .stalled_since
            .get()
            .map_or(Duration::ZERO, |since| clock::now().since(since))
    }

    /// Whether the other side has closed or reset its end, whatever it sent before. Asks the kernel.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let io = self.0.io.borrow();
        let Some(io) = io.as_ref() else { return true };
        let wanted = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(io.tcp(), wanted)];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_err() || fds[0].revents().intersects(wanted)
    }

    /// Ends our side, and for a while reads and drops what the other side still sends, so that it gets
    /// to read what was sent to it: a reset would take that away. Bounded in time: `whole` in all, and
    /// `pause` between two parts.
    pub async fn linger(&self, whole: Duration, pause: Duration) {
        let mut dropped = [0_u8; 16 * 1024];
        let end = async {
            let mut io = self.clone();
            let _ = poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)).await;
            loop {
                let mut buffer = ReadBuf::new(&mut dropped);
                let read = poll_fn(|cx| Pin::new(&mut io).poll_read(cx, buffer.unfilled()));
                let read = timeout(pause, read).await;
                if !matches!(read, Ok(Ok(()))) || buffer.filled().is_empty() {
                    return;
                }
            }
        };
        let _ = timeout(whole, end).await;
    }

    fn with_io<T>(
        &self,
        work: impl FnOnce(Pin<&mut Wire>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.0.io.borrow_mut().as_mut() {
            Some(io) => work(Pin::new(io)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(n)) => {
                self.0.sent.set(self.0.sent.get() + *n as u64);
                self.0.stalled_since.set(None);
            }
            Poll::Pending if self.0.stalled_since.get().is_none() => {
                self.0.stalled_since.set(Some(clock::now()));
            }
            Poll::Pending | Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.with_io(|io| io.poll_read(cx, buf))
    }
}

impl Write for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.count(self.with_io(|io| io.poll_write(cx, buf)))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.count(self.with_io(|io| io.poll_write_vectored(cx, bufs)))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with_io(|io| io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.0.polite.get() {
            return Poll::Ready(Ok(())); // within an exchange only `close` ends it, with RST
        }
        self.with_io(|io| io.poll_shutdown(cx))
    }
}

impl Inner {
    fn say_goodbye(&self, io: &Wire) {
        if self.polite.get() && !self.orderly {
            let _ = SockRef::from(io.tcp()).set_linger(None);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(io) = self.io.borrow().as_ref() {
            self.say_goodbye(io);
        }
    }
}
