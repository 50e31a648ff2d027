//! The socket under an upstream connection: what reached it, and when it closed.
//!
//! Shared with the pool, so that the owner of an exchange can close the descriptor at once, whatever
//! the HTTP library still holds.

use crate::clock::{self, Time};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;

/// A handle on the socket. Clones share it.
#[derive(Clone)]
pub(super) struct Wire(Rc<Socket>);

struct Socket {
    io: RefCell<Option<TokioIo<TcpStream>>>,
    /// Bytes that the kernel took from us, over the connection's life.
    sent: Cell<u64>,
    /// Whether to end with FIN; else with RST, so that nothing in the send buffer is delivered.
    polite: Cell<bool>,
    closed_at: Cell<Option<Time>>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Rc::new(Socket {
            io: RefCell::new(Some(TokioIo::new(stream))),
            sent: Cell::new(0),
            polite: Cell::new(true),
            closed_at: Cell::new(None),
        }))
    }

    /// How many bytes reached the socket so far.
    pub(super) fn sent(&self) -> u64 {
        self.0.sent.get()
    }

    /// How the connection ends should it be dropped now: with FIN between exchanges, with RST within
    /// one.
    pub(super) fn be_polite(&self, polite: bool) {
        self.0.polite.set(polite);
    }

    /// Closes the descriptor now, and says when that was.
    pub(super) fn close(&self) -> Time {
        if let Ok(mut io) = self.0.io.try_borrow_mut()
            && let Some(io) = io.take()
        {
            let stream = io.into_inner();
            if !self.0.polite.get() {
                // A failure leaves an orderly close: worse for the upstream, no worse for the
                // settle, which runs from the close either way.
                let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            drop(stream);
            self.0.closed_at.set(Some(clock::now()));
        }
        self.0.closed_at.get().unwrap_or_else(clock::now)
    }

    /// Whether the other side has closed, or has sent what nobody asked for. Asks the kernel only
    /// where the runtime has heard of something.
    pub(super) fn is_stale(&self) -> bool {
        let io = self.0.io.borrow();
        let Some(io) = io.as_ref() else { return true };
        let mut context = Context::from_waker(Waker::noop());
        if io.inner().poll_read_ready(&mut context).is_pending() {
            return false;
        }
        let mut byte = [0_u8; 1];
        let peeked = recv(
            io.inner(),
            &mut byte[..],
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        !matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    fn with_io<T>(
        &self,
        work: impl FnOnce(Pin<&mut TokioIo<TcpStream>>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.0.io.borrow_mut().as_mut() {
            Some(io) => work(Pin::new(io)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &written {
            self.0.sent.set(self.0.sent.get() + *n as u64);
        }
        written
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.with_io(|io| io.poll_read(cx, buf))
    }
}

impl Write for Wire {
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

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(io) = self.io.borrow().as_ref()
            && !self.polite.get()
        {
            let _ = SockRef::from(io.inner()).set_linger(Some(Duration::ZERO));
        }
    }
}
