//! A TCP connection whose handle is shared: with the HTTP library, which reads and writes, and with
//! whoever must see what reached it, whether the other side is still there, or close it at once.

mod wire;

use crate::clock::{self, Time};
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
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
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
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

    /// Takes a client's TLS handshake; from then on the connection is encrypted. Dropping the future
    /// closes the connection.
    ///
    /// # Errors
    /// Where the handshake fails, or the connection is closed or encrypted already.
    pub async fn accept(&self, config: Arc<ServerConfig>) -> io::Result<()> {
        let stream = TlsAcceptor::from(config).accept(self.plain()?).await?;
        self.encrypted(stream.into());
        Ok(())
    }

    /// Makes the TLS handshake with an upstream of that name. As [`Socket::accept`].
    ///
    /// # Errors
    /// As there, and where its certificate is not to be trusted.
    pub async fn connect(
        &self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<()> {
        let stream = TlsConnector::from(config)
            .connect(name, self.plain()?)
            .await?;
        self.encrypted(stream.into());
        Ok(())
    }

    fn plain(&self) -> io::Result<TcpStream> {
        match self.0.io.take() {
            Some(Wire::Plain(io)) => Ok(io.into_inner()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn encrypted(&self, stream: TlsStream<TcpStream>) {
        *self.0.io.borrow_mut() = Some(Wire::Tls(Box::new(TokioIo::new(stream))));
    }

    /// The protocol that was agreed on in the handshake (ALPN, RFC 7301); `None` without TLS or agreement.
    #[must_use]
    pub fn protocol(&self) -> Option<Vec<u8>> {
        match &*self.0.io.borrow() {
            Some(Wire::Tls(io)) => Some(io.inner().get_ref().1.alpn_protocol()?.to_vec()),
            _ => None,
        }
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

    /// The certificate that the other side showed (DER); `None` where it showed none.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        match &*self.0.io.borrow() {
            Some(Wire::Tls(io)) => {
                let shown = io.inner().get_ref().1.peer_certificates()?;
                Some(shown.first()?.to_vec())
            }
            _ => None,
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

    /// Bounds what the kernel takes beyond what is on its way (`TCP_NOTSENT_LOWAT`).
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn keep_unsent_below(&self, bytes: u32) -> io::Result<()> {
        match &*self.0.io.borrow() {
            Some(io) => SockRef::from(io.tcp()).set_tcp_notsent_lowat(bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Whether the kernel has taken all that was to be sent.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.0.stalled_since.get().is_none()
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

    fn is_encrypted(&self) -> bool {
        matches!(&*self.0.io.borrow(), Some(Wire::Tls(_)))
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
            // TLS may have sent some of it before that.
            Poll::Ready(Err(_)) if self.is_encrypted() => self.0.sent.set(self.0.sent.get() + 1),
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
        let flushed = self.with_io(|io| io.poll_flush(cx));
        match &flushed {
            // What TLS has taken may not have left yet.
            Poll::Pending if self.0.stalled_since.get().is_none() => {
                self.0.stalled_since.set(Some(clock::now()));
            }
            Poll::Ready(Ok(())) => self.0.stalled_since.set(None),
            Poll::Pending | Poll::Ready(Err(_)) => {}
        }
        flushed
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
