//! HTTP/2 connections of one serving thread to one upstream: each carries many exchanges at once.
//!
//! Over the `h2` crate itself, since an exchange must know what became of its stream: whether the upstream
//! refused it unseen, and when its reset had arrived.

mod connection;
mod pump;
mod resets;
mod stream;

pub(super) use stream::Stream;

use super::dial::Dialer;
use super::failure::Failure;
use crate::clock;
use connection::Connection;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long an idle connection is trusted not to have been closed meanwhile.
const SURE: Duration = Duration::from_millis(20);

/// How long a connection that is not used any more may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long a new connection may take to say how many streams it takes, before another is made.
const GREETING: Duration = Duration::from_millis(500);

/// The connections.
pub(super) struct Connections {
    dialer: Dialer,
    most: usize,
    open: RefCell<Vec<Rc<Connection>>>,
    /// Those that take no new stream.
    leaving: RefCell<Vec<Rc<Connection>>>,
    connecting: Cell<bool>,
    /// A stream has ended, or a connection has come or gone.
    changed: Notify,
}

impl Connections {
    pub(super) fn new(dialer: Dialer, most: usize) -> Rc<Self> {
        Rc::new(Self {
            dialer,
            most,
            open: RefCell::default(),
            leaving: RefCell::default(),
            connecting: Cell::new(false),
            changed: Notify::new(),
        })
    }

    /// A place for one stream: on a connection that has room, else on a new one; at the bound, the next
    /// that is free. Cancel-safe.
    pub(super) async fn stream(self: &Rc<Self>) -> Result<Stream, Failure> {
        let deadline = clock::now().after(self.dialer.upstream.connect_timeout);
        loop {
            if let Some(stream) = self.room() {
                return Ok(stream);
            }
            if !self.connecting.get() && self.may_open() {
                self.connect().await?;
                continue;
            }
            if deadline.has_passed() {
                return Err(Failure::NoConnectionFree);
            }
            let look = clock::now().after(GREETING).min(deadline);
            tokio::select! {
                () = self.changed.notified() => {}
                () = clock::sleep_until(look) => {}
            }
        }
    }

    fn room(self: &Rc<Self>) -> Option<Stream> {
        let now = clock::now();
        loop {
            let found = {
                let open = self.open.borrow();
                let most = self.dialer.upstream.max_streams;
                open.iter().find(|c| c.has_room(most)).cloned()
            }?;
            if found.was_told_to_go() {
                self.leave(&found);
                continue;
            }
            let idle = now.since(found.used_at.get());
            if found.streams.get() == 0 && idle >= SURE && found.wire.has_left() {
                self.leave(&found);
                continue;
            }
            return Some(Stream::new(found, self));
        }
    }

    /// Those that end with what they carry come on top, at most as many. One that is new is asked first how
    /// many streams it takes.
    fn may_open(&self) -> bool {
        let open = self.open.borrow();
        let has_room = open.len() < self.most && self.leaving.borrow().len() < self.most;
        let now = clock::now();
        let new = |c: &Rc<Connection>| {
            !c.greeted.get() && now.since(c.made_at) < GREETING && !c.ended.get()
        };
        has_room && !open.iter().any(new)
    }

    /// One at a time: those who wait share what comes of it.
    async fn connect(self: &Rc<Self>) -> Result<(), Failure> {
        let _busy = Busy::begin(self);
        let wire = self.dialer.dial().await?;
        let connection = Connection::open(wire, self.dialer.upstream.max_streams, self).await?;
        self.open.borrow_mut().push(connection);
        Ok(())
    }

    /// It takes no new stream, and ends with those that it has.
    fn leave(&self, connection: &Rc<Connection>) {
        self.open
            .borrow_mut()
            .retain(|c| !Rc::ptr_eq(c, connection));
        if connection.sender.take().is_some() {
            connection.left_at.set(Some(clock::now()));
            self.leaving.borrow_mut().push(Rc::clone(connection));
            connection.wake();
        }
        self.changed.notify_waiters();
    }

    /// Closes connections that are not needed, or that take nothing. To be called some ten times a second.
    pub(super) fn sweep(&self) {
        let now = clock::now();
        let upstream = &self.dialer.upstream;
        let (mut old, mut dead) = (Vec::new(), Vec::new());
        for connection in self.open.borrow().iter() {
            let idle = connection.streams.get() == 0
                && now.since(connection.used_at.get()) >= upstream.idle_timeout;
            if connection.ended.get() || idle || connection.is_silent(now) {
                old.push(Rc::clone(connection));
            }
        }
        for connection in &old {
            self.leave(connection);
        }
        let open = self.open.borrow();
        for connection in open.iter().chain(self.leaving.borrow().iter()) {
            let said = connection
                .left_at
                .get()
                .filter(|_| connection.streams.get() == 0);
            let late = said.is_some_and(|since| now.since(since) >= GOODBYE);
            if late || connection.wire.stalled_for() >= upstream.body_idle_timeout {
                dead.push(Rc::clone(connection));
            }
        }
        drop(open);
        for connection in &dead {
            connection.close();
        }
        self.leaving.borrow_mut().retain(|c| !c.ended.get());
    }
}

impl Drop for Connections {
    /// Nothing is under way on them any more: each says goodbye, without waiting for one that takes nothing.
    fn drop(&mut self) {
        for connection in self.open.get_mut() {
            connection.sender.take();
            connection.be_polite();
            if connection.wire.is_flushed() {
                connection.wake();
            } else {
                connection.close();
            }
        }
    }
}

/// That a connection is being made, until dropped.
struct Busy<'a>(&'a Connections);

impl<'a> Busy<'a> {
    fn begin(pool: &'a Connections) -> Self {
        pool.connecting.set(true);
        Self(pool)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        self.0.changed.notify_waiters();
    }
}
