//! The connections of one serving thread to one upstream.
//!
//! Over `hyper::client::conn`, since an exchange must know which connection it is on. A connection
//! is driven by whoever owns it; an idle one is driven by nobody, and looked at before it is used.

use super::failure::Failure;
use super::upload::Upload;
use crate::clock::{self, Time};
use crate::config::settings::Upstream;
use crate::socket::Socket;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Connections to one upstream. For one thread.
pub(super) struct Pool {
    pub(super) upstream: Arc<Upstream>,
    most: usize,
    open: Cell<usize>,
    /// The last one in is the first one out, so that those which are not needed grow old.
    idle: RefCell<Vec<Link>>,
    freed: Notify,
}

/// An open connection to an upstream, and the right to use it.
pub(super) struct Link {
    pub(super) sender: SendRequest<Upload>,
    pub(super) wire: Socket,
    /// `None` once it was hung up.
    connection: Option<Pin<Box<Connection<Socket, Upload>>>>,
    idle_since: Time,
    /// It has served before: its other side may have closed it by now.
    pub(super) reused: bool,
    /// It may serve again: its other side speaks HTTP/1.1.
    pub(super) reusable: bool,
    timeouts: (Duration, Duration),
    pool: Weak<Pool>,
}

impl Pool {
    /// `share`: of how many threads' pools this is one; they divide `max_connections`.
    pub(super) fn new(upstream: Arc<Upstream>, share: usize) -> Rc<Self> {
        let most = upstream.max_connections.div_ceil(share.max(1)).max(1);
        Rc::new(Self {
            upstream,
            most,
            open: Cell::new(0),
            idle: RefCell::default(),
            freed: Notify::new(),
        })
    }

    /// A connection: an idle one unless `fresh` is asked, else a new one; at the bound, the next
    /// that is free. Cancel-safe.
    pub(super) async fn link(self: &Rc<Self>, fresh: bool) -> Result<Link, Failure> {
        if !fresh && let Some(link) = self.take_idle() {
            return Ok(link);
        }
        Box::pin(self.new_link(fresh)).await // rare and large: kept out of the caller's future
    }

    async fn new_link(self: &Rc<Self>, fresh: bool) -> Result<Link, Failure> {
        let deadline = clock::now().after(self.upstream.connect_timeout);
        loop {
            if !fresh && let Some(link) = self.take_idle() {
                return Ok(link);
            }
            if self.open.get() >= self.most {
                // The oldest idle connection makes room for a new one.
                let oldest = {
                    let mut idle = self.idle.borrow_mut();
                    (!idle.is_empty()).then(|| idle.remove(0))
                };
                drop(oldest);
            }
            if self.open.get() < self.most {
                return self.connect().await;
            }
            tokio::select! {
                () = self.freed.notified() => {}
                () = clock::sleep_until(deadline) => return Err(Failure::NoConnectionFree),
            }
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn sweep(&self) {
        let now = clock::now();
        let old = |link: &Link| now.since(link.idle_since) >= self.upstream.idle_timeout;
        let gone: Vec<Link> = self
            .idle
            .borrow_mut()
            .extract_if(.., |link| old(link))
            .collect();
        drop(gone);
    }

    fn take_idle(&self) -> Option<Link> {
        loop {
            let mut link = self.idle.borrow_mut().pop()?;
            let fresh_enough = clock::now().since(link.idle_since) < self.upstream.idle_timeout;
            if fresh_enough && link.sender.is_ready() && !link.wire.is_stale() {
                link.reused = true;
                return Some(link);
            }
        }
    }

    async fn connect(self: &Rc<Self>) -> Result<Link, Failure> {
        let room = Room::take(self);
        let authority = &self.upstream.authority;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let connect = TcpStream::connect((host, authority.port_u16().unwrap_or(80)));
        let stream = tokio::time::timeout(self.upstream.connect_timeout, connect)
            .await
            .map_err(|_| Failure::ConnectTimeout)?
            .map_err(Failure::Connect)?;
        let wire = Socket::abortive(stream);
        let (sender, connection) = Builder::new()
            .handshake(wire.clone())
            .await
            .map_err(|_| Failure::ConnectTimeout)?;
        room.keep();
        Ok(Link {
            sender,
            wire,
            connection: Some(Box::pin(connection)),
            idle_since: clock::now(),
            reused: false,
            reusable: true,
            timeouts: (
                self.upstream.response_timeout,
                self.upstream.body_idle_timeout,
            ),
            pool: Rc::downgrade(self),
        })
    }

    fn release(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.freed.notify_one();
    }
}

/// Room for one connection, given back unless the connection came to be.
struct Room<'a>(Option<&'a Pool>);

impl<'a> Room<'a> {
    fn take(pool: &'a Pool) -> Self {
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
    /// Lets the connection do what it can; `Ready` once it has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.connection {
            Some(connection) => connection.as_mut().poll(cx).map(|_| ()),
            None => Poll::Ready(()),
        }
    }

    /// Ends the connection; what it has not sent comes back to its sender.
    pub(super) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// `response_timeout` and `body_idle_timeout` of its upstream.
    pub(super) const fn timeouts(&self) -> (Duration, Duration) {
        self.timeouts
    }

    /// Gives the connection back after a whole exchange; closed where it cannot serve another.
    pub(super) fn give_back(mut self, cx: &mut Context<'_>) {
        let ended = self.drive(cx).is_ready();
        let ready = !ended && self.sender.is_ready() && self.reusable;
        if ready || ended {
            self.wire.be_polite(true);
        }
        if ready && let Some(pool) = self.pool.upgrade() {
            self.idle_since = clock::now();
            pool.idle.borrow_mut().push(self);
            pool.freed.notify_one();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.close();
        if let Some(pool) = self.pool.upgrade() {
            pool.release();
        }
    }
}
