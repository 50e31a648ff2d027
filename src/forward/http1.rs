//! HTTP/1.1 connections of one serving thread to one upstream: each carries one exchange at a time.
//!
//! Over `hyper::client::conn`, since an exchange must know which connection it is on. A task of its
//! own drives each connection, and sees when its other side closes it.

use super::dial::Dialer;
use super::failure::Failure;
use super::upload::Upload;
use crate::clock::{self, Time};
use crate::socket::Socket;
use bytes::Bytes;
use hyper::client::conn::http1::{Builder, SendRequest};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::oneshot::{Receiver, channel};
use tokio::task::AbortHandle;

/// The connections.
pub(super) struct Connections {
    dialer: Dialer,
    most: usize,
    open: Cell<usize>,
    /// The last one in is the first one out, so that those which are not needed grow old. Boxed: they change
    /// hands a dozen times an exchange.
    #[expect(clippy::vec_box, reason = "the box is handed on, not the link")]
    idle: RefCell<Vec<Box<Link>>>,
    freed: Notify,
    /// Requests that wait for a connection.
    waiting: Cell<usize>,
    /// It was seen to close a connection that it had just answered on.
    closes_early: Cell<bool>,
}

/// How long a connection may be idle before it is looked at again: its close may have come since its
/// task last ran. An upstream that was seen to close in between gets no such credit.
const SURE: Duration = Duration::from_millis(20);

/// An open connection to an upstream, and the right to use it.
pub(super) struct Link {
    pub(super) sender: SendRequest<Upload>,
    pub(super) wire: Socket,
    driver: AbortHandle,
    /// What the other side sent after it had switched protocols.
    rest: Receiver<Bytes>,
    /// When a response last came on it, or it was made.
    pub(super) used_at: Time,
    /// It has served before: its other side may have closed it by now.
    pub(super) reused: bool,
    /// It may serve again: its other side speaks HTTP/1.1.
    pub(super) reusable: bool,
    /// Bytes that had left on it when its exchange began.
    before: u64,
    pool: Weak<Connections>,
}

impl Connections {
    pub(super) fn new(dialer: Dialer, most: usize) -> Rc<Self> {
        Rc::new(Self {
            dialer,
            most,
            open: Cell::new(0),
            idle: RefCell::default(),
            freed: Notify::new(),
            waiting: Cell::new(0),
            closes_early: Cell::new(false),
        })
    }

    /// A connection: an idle one unless `fresh` is asked, else a new one; at the bound, the next
    /// that is free. Cancel-safe.
    pub(super) async fn link(
        self: &Rc<Self>,
        fresh: bool,
        now: Time,
    ) -> Result<Box<Link>, Failure> {
        if !fresh
            && self.waiting.get() == 0
            && let Some(link) = self.take_idle(now)
        {
            return Ok(link);
        }
        Box::pin(self.new_link(fresh)).await // rare and large: kept out of the caller's future
    }

    async fn new_link(self: &Rc<Self>, fresh: bool) -> Result<Box<Link>, Failure> {
        let deadline = clock::now().after(self.dialer.upstream.connect_timeout);
        // Who has waited goes first.
        let mut turn = self.waiting.get() == 0;
        loop {
            if turn
                && !fresh
                && let Some(link) = self.take_idle(clock::now())
            {
                return Ok(link);
            }
            if self.open.get() >= self.most {
                // The oldest idle connection makes room for a new one.
                let oldest = {
                    let mut idle = self.idle.borrow_mut();
                    (turn && !idle.is_empty()).then(|| idle.remove(0))
                };
                drop(oldest);
            }
            if self.open.get() < self.most {
                return self.connect().await;
            }
            let _waits = Waits::begin(&self.waiting);
            tokio::select! {
                () = self.freed.notified() => turn = true,
                () = clock::sleep_until(deadline) => return Err(Failure::NoConnectionFree),
            }
        }
    }

    /// Closes connections that have been idle for too long. To be called some ten times a second.
    pub(super) fn sweep(&self) {
        let now = clock::now();
        let old = |link: &Link| {
            link.sender.is_closed() || now.since(link.used_at) >= self.dialer.upstream.idle_timeout
        };
        let gone: Vec<Box<Link>> = self
            .idle
            .borrow_mut()
            .extract_if(.., |link| old(link))
            .collect();
        drop(gone);
    }

    fn take_idle(&self, now: Time) -> Option<Box<Link>> {
        loop {
            let mut link = self.idle.borrow_mut().pop()?;
            let idle = now.since(link.used_at);
            if idle >= self.dialer.upstream.idle_timeout {
                continue;
            }
            let looks = idle >= SURE || self.closes_early.get();
            if link.sender.is_ready() && !(looks && link.wire.is_stale()) {
                link.reused = true;
                return Some(link);
            }
            self.closes_early.set(true);
        }
    }

    async fn connect(self: &Rc<Self>) -> Result<Box<Link>, Failure> {
        let room = Room::take(self);
        let wire = self.dialer.dial().await?;
        let (sender, connection) = Builder::new()
            .handshake(wire.clone())
            .await
            .map_err(|_| Failure::Broken)?;
        room.keep();
        let (tell, rest) = channel();
        let driver = tokio::task::spawn_local(async move {
            // What went wrong is told by whoever has a request on it.
            if let Ok(parts) = connection.without_shutdown().await {
                let _ = tell.send(parts.read_buf);
            }
        });
        Ok(Box::new(Link {
            sender,
            wire,
            driver: driver.abort_handle(),
            rest,
            used_at: clock::now(),
            reused: false,
            reusable: true,
            before: 0,
            pool: Rc::downgrade(self),
        }))
    }

    fn release(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.freed.notify_one();
    }
}

/// A place among those who wait for a connection.
struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    fn begin(waiting: &'a Cell<usize>) -> Self {
        waiting.set(waiting.get() + 1);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Room for one connection, given back unless the connection came to be.
struct Room<'a>(Option<&'a Connections>);

impl<'a> Room<'a> {
    fn take(pool: &'a Connections) -> Self {
        pool.open.set(pool.open.get() + 1);
        Self(Some(pool))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.0 {
            pool.release();
        }
    }
}

impl Link {
    /// The connection itself, after the other side has switched protocols, and what it has sent since.
    pub(super) async fn switched(&mut self) -> Option<(Socket, Bytes)> {
        let rest = (&mut self.rest).await.ok()?;
        Some((self.wire.clone(), rest))
    }

    /// An exchange begins. If it is not ended well, the connection ends with a reset.
    pub(super) fn begin(&mut self) {
        self.before = self.wire.sent();
        self.wire.be_polite(false);
    }

    /// Closes the connection, and says when that was; `None` where no byte of the exchange left on it.
    pub(super) fn cut(&self) -> Option<Time> {
        let closed = self.wire.close();
        (self.wire.sent() > self.before).then_some(closed)
    }

    /// Gives the connection back after an exchange; closed where it cannot serve another. `whole`: the
    /// request was sent to its end.
    pub(super) fn give_back(mut self: Box<Self>, whole: bool) {
        self.wire.be_polite(whole);
        if !whole || !self.reusable || self.sender.is_closed() {
            return;
        }
        if self.sender.is_ready() {
            return self.rest();
        }
        // The response has ended, and its last part came before the connection's task saw that.
        tokio::task::spawn_local(async move {
            if self.sender.ready().await.is_ok() {
                self.rest();
            }
        });
    }

    fn rest(self: Box<Self>) {
        if let Some(pool) = self.pool.upgrade() {
            pool.idle.borrow_mut().push(self);
            pool.freed.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.close();
        self.driver.abort();
        if let Some(pool) = self.pool.upgrade() {
            pool.release();
        }
    }
}
