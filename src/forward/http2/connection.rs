//! One HTTP/2 connection: who drives it, what has left on it, and its end.

use super::Connections;
use super::resets::Resets;
use crate::clock::{self, Time};
use crate::forward::failure::Failure;
use crate::socket::Socket;
use bytes::Bytes;
use h2::PingPong;
use h2::client::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How much of a response may lie here for a client that takes nothing.
const STREAM_WINDOW: u32 = 256 << 10;

/// The largest window that there is (RFC 9113 section 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// How much of a request may wait in the library for the upstream to take it, beside the part at hand.
const SEND_BUFFER: usize = 64 << 10;

/// How much may lie in the kernel beyond what is on its way: a reset does not wait behind megabytes.
const NOT_SENT: u32 = 128 << 10;

/// How long a connection on which nothing moves may keep a reset from arriving, and how long one on which
/// something does. After that it is closed under all that it carries: a raise does not wait for an upstream
/// that takes nothing.
const RESET_PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// How many resets h2 is to remember, so that what comes late for them is dropped and counts for nothing.
const REMEMBERED: usize = 1024;

/// A connection.
pub(super) struct Connection {
    /// `None` once it takes no new stream.
    pub(super) sender: RefCell<Option<SendRequest<Bytes>>>,
    pub(super) wire: Socket,
    pub(super) streams: Cell<usize>,
    /// When a stream last ended, or it was made.
    pub(super) used_at: Cell<Time>,
    pub(super) made_at: Time,
    /// The upstream has said how many streams it takes.
    pub(super) greeted: Cell<bool>,
    pub(super) left_at: Cell<Option<Time>>,
    pub(super) ended: Cell<bool>,
    pub(super) resets: Resets,
    /// The PING that is not answered, and since when.
    asking: Cell<Option<u64>>,
    asked_at: Cell<Option<Time>>,
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
        // Without it a reset only takes longer.
        let _ = wire.keep_unsent_below(NOT_SENT);
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let handshake = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(1) // until it says how many it takes
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(streams.saturating_mul(STREAM_WINDOW).min(MAX_WINDOW))
            .max_send_buffer_size(SEND_BUFFER)
            .max_concurrent_reset_streams(REMEMBERED)
            .max_local_error_reset_streams(None)
            .handshake(TokioIo::new(wire.clone()));
        let (sender, mut io) = handshake.await.map_err(|_| Failure::Broken)?;
        let connection = Rc::new(Self {
            sender: RefCell::new(Some(sender)),
            wire,
            streams: Cell::new(0),
            used_at: Cell::new(clock::now()),
            made_at: clock::now(),
            greeted: Cell::new(false),
            left_at: Cell::new(None),
            ended: Cell::new(false),
            resets: Resets::default(),
            asking: Cell::new(None),
            asked_at: Cell::new(None),
            driver: RefCell::new(None),
        });
        // What answers the first PING comes after its SETTINGS (RFC 9113 section 3.4).
        let greeting = connection.resets.add();
        connection.resets.want(greeting);
        let driver = Driver {
            ping: io.ping_pong(),
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
        self.resets.end();
        self.wake();
        closed
    }

    /// Whether the upstream takes no new stream on it (GOAWAY), or it has ended.
    pub(super) fn was_told_to_go(&self) -> bool {
        let mut sender = self.sender.borrow_mut();
        let mut cx = Context::from_waker(Waker::noop());
        sender
            .as_mut()
            .is_none_or(|sender| matches!(sender.poll_ready(&mut cx), Poll::Ready(Err(_))))
    }

    /// Whether a PING was not answered for long: the other side may be gone.
    pub(super) fn is_silent(&self, now: Time) -> bool {
        let asked_at = self.asked_at.get();
        asked_at.is_some_and(|at| now.since(at) >= RESET_PATIENCE.1)
    }

    /// How it ends if it ends now: in order, so that what was sent arrives, or with a reset, so that nothing
    /// of what was taken back arrives later.
    pub(super) fn be_polite(&self) {
        let idle = self.streams.get() == 0;
        self.wire.be_polite(idle && self.resets.all_arrived());
    }

    /// Waits until the other side has taken a reset, or the connection has ended, and says when. Closes it
    /// where that takes too long.
    pub(super) async fn arrival(&self, reset: u64) -> Time {
        self.resets.want(reset);
        let end = clock::now().after(RESET_PATIENCE.1);
        while !self.resets.has_arrived(reset) && !self.ended.get() {
            let before = self.wire.sent();
            self.wake();
            let news = tokio::time::timeout(RESET_PATIENCE.0, self.resets.changed()).await;
            if end.has_passed() || news.is_err() && self.wire.sent() == before {
                return self.close();
            }
        }
        if self.ended.get() {
            self.close()
        } else {
            clock::now()
        }
    }
}

/// The task of a connection.
struct Driver {
    io: h2::client::Connection<TokioIo<Socket>, Bytes>,
    ping: Option<PingPong>,
    connection: Rc<Connection>,
    pool: Weak<Connections>,
    /// How many streams the upstream took when it was last looked at.
    most: usize,
}

impl Driver {
    /// Moves what there is to move. Ready when the connection has ended.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // What went wrong is told by whoever has a stream on it.
            if Pin::new(&mut self.io).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let resets = &self.connection.resets;
            if self.connection.wire.is_flushed() {
                resets.have_left();
            }
            let Some(ping) = &mut self.ping else {
                return Poll::Pending;
            };
            if resets.poll_ping(ping, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = Rc::clone(&self.connection);
        *connection.driver.borrow_mut() = Some(cx.waker().clone());
        let over = self.poll_io(cx).is_ready();
        let pool = self.pool.upgrade();
        if over {
            connection.close();
            if let Some(pool) = pool {
                pool.leave(&connection);
            }
            return Poll::Ready(());
        }
        let asking = connection.resets.asking();
        if asking != connection.asking.replace(asking) {
            connection.asked_at.set(asking.map(|_| clock::now()));
        }
        connection.be_polite();
        let most = self.io.max_concurrent_send_streams();
        let greets = connection.resets.has_arrived(1) && !connection.greeted.replace(true);
        if (std::mem::replace(&mut self.most, most) < most || greets)
            && let Some(pool) = pool
        {
            pool.changed.notify_waiters();
        }
        Poll::Pending
    }
}
