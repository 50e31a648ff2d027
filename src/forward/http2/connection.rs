//! One HTTP/2 connection: who drives it, what has left on it, and its end.

use super::Connections;
use crate::clock::{self, Time};
use crate::forward::failure::Failure;
use crate::socket::Socket;
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How much of a response may lie here for a client that takes nothing.
const STREAM_WINDOW: u32 = 256 << 10;

/// The largest window that there is (RFC 9113 section 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// How much of a request may wait in the library for the upstream to take it, beside the part at hand.
const SEND_BUFFER: usize = 64 << 10;

/// How long a reset may take to leave. After that the connection is closed under all that it carries: a
/// raise does not wait for an upstream that takes nothing.
const RESET_PATIENCE: Duration = Duration::from_secs(1);

/// A connection.
pub(super) struct Connection {
    /// `None` once it takes no new stream.
    pub(super) sender: RefCell<Option<SendRequest<Bytes>>>,
    pub(super) wire: Socket,
    pub(super) streams: Cell<usize>,
    /// When a stream last ended, or it was made.
    pub(super) used_at: Cell<Time>,
    pub(super) left_at: Cell<Option<Time>>,
    pub(super) ended: Cell<bool>,
    /// How often all that there was to send has left.
    flushes: Cell<u64>,
    flushed: Notify,
    driver: RefCell<Option<Waker>>,
}

impl Connection {
    /// Begins to speak HTTP/2 on a connection, and gives it a task. `streams`: how many exchanges there may be
    /// on it.
    pub(super) async fn open(
        wire: Socket,
        streams: usize,
        pool: &Rc<Connections>,
    ) -> Result<Rc<Self>, Failure> {
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let handshake = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(1) // until it says how many it takes
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(streams.saturating_mul(STREAM_WINDOW).min(MAX_WINDOW))
            .max_send_buffer_size(SEND_BUFFER)
            .handshake(TokioIo::new(wire.clone()));
        let (sender, io) = handshake.await.map_err(|_| Failure::Broken)?;
        let connection = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            wire,
            streams: Cell::new(0),
            used_at: Cell::new(clock::now()),
            left_at: Cell::new(None),
            ended: Cell::new(false),
            flushes: Cell::new(0),
            flushed: Notify::new(),
            driver: RefCell::new(None),
        });
        let driver = Driver {
            io,
            connection: Rc::clone(&connection),
            pool: Rc::downgrade(pool),
            most: 1,
        };
        tokio::task::spawn_local(driver);
        Ok(connection)
    }

    /// Whether it takes another exchange. `most`: how many there may be.
    pub(super) fn has_room(&self, most: usize) -> bool {
        let sender = self.sender.borrow();
        let Some(sender) = sender.as_ref().filter(|_| !self.ended.get()) else {
            return false;
        };
        self.streams.get() < most.min(sender.current_max_send_streams())
    }

    /// Lets its task look at what has changed.
    pub(super) fn wake(&self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Closes it now, under all that it carries, and says when that was.
    pub(super) fn close(&self) -> Time {
        let closed = self.wire.close();
        self.ended.set(true);
        self.sender.take();
        self.flushed.notify_waiters();
        self.wake();
        closed
    }

    /// Waits until what was handed over so far has left, or the connection has ended, and says when. Closes
    /// it where it takes too long.
    pub(super) async fn flush(&self) -> Time {
        let before = self.flushes.get();
        let left = async {
            while self.flushes.get() == before && !self.ended.get() {
                self.wake();
                self.flushed.notified().await;
            }
        };
        let left = tokio::time::timeout(RESET_PATIENCE, left).await;
        if left.is_err() || self.ended.get() {
            self.close()
        } else {
            clock::now()
        }
    }
}

/// The task of a connection.
struct Driver {
    io: h2::client::Connection<TokioIo<Socket>, Bytes>,
    connection: Rc<Connection>,
    pool: Weak<Connections>,
    /// How many streams the upstream took when it was last looked at.
    most: usize,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = Rc::clone(&self.connection);
        *connection.driver.borrow_mut() = Some(cx.waker().clone());
        // What went wrong is told by whoever has a stream on it.
        let over = Pin::new(&mut self.io).poll(cx).is_ready();
        let pool = self.pool.upgrade();
        if over {
            connection.close();
            if let Some(pool) = pool {
                pool.leave(&connection);
            }
            return Poll::Ready(());
        }
        if connection.wire.is_flushed() {
            connection.flushes.set(connection.flushes.get() + 1);
            connection.flushed.notify_waiters();
        }
        let most = self.io.max_concurrent_send_streams();
        if std::mem::replace(&mut self.most, most) < most
            && let Some(pool) = pool
        {
            pool.changed.notify_waiters();
        }
        Poll::Pending
    }
}
