//! The resets of a connection's streams: which of them have left, and which the other side has taken.
//!
//! A reset that the kernel took may still lie in its buffer, behind the request that it takes back, and both
//! may be delivered much later. So a PING follows it (RFC 9113 section 6.7): once that is answered, all that
//! was sent before it has arrived.

use h2::{Ping, PingPong};
use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Counts of resets, and of the greeting before them, each at most the one before it.
#[derive(Default)]
pub(super) struct Resets {
    /// Handed to the HTTP library.
    given: Cell<u64>,
    /// Taken by the kernel.
    left: Cell<u64>,
    /// Up to which somebody waits: a PING for each reset would be a nuisance to some servers.
    wanted: Cell<u64>,
    /// That the PING under way, or the last one, comes after.
    asked: Cell<u64>,
    /// Taken by the other side.
    arrived: Cell<u64>,
    changed: Notify,
    /// Bodies that wait: while they hand over more, not all may ever have left.
    held: RefCell<Vec<Waker>>,
}

impl Resets {
    /// One more was handed over. Gives its number.
    pub(super) fn add(&self) -> u64 {
        self.given.set(self.given.get() + 1);
        self.given.get()
    }

    /// Whether the other side has taken that one, and all before it.
    pub(super) fn has_arrived(&self, number: u64) -> bool {
        self.arrived.get() >= number
    }

    /// Whether the other side has taken them all.
    pub(super) fn all_arrived(&self) -> bool {
        self.has_arrived(self.given.get())
    }

    /// Somebody waits for that one.
    pub(super) fn want(&self, number: u64) {
        self.wanted.set(self.wanted.get().max(number));
    }

    /// The PING that is not answered, by what it comes after.
    pub(super) fn asking(&self) -> Option<u64> {
        (self.asked.get() > self.arrived.get()).then(|| self.asked.get())
    }

    /// Waits until another has arrived, or the connection has ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ready while none has still to leave.
    pub(super) fn poll_left(&self, cx: &Context<'_>) -> Poll<()> {
        if self.left.get() == self.given.get() {
            return Poll::Ready(());
        }
        self.held.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// All that was handed over has left.
    pub(super) fn have_left(&self) {
        if self.left.replace(self.given.get()) < self.given.get() {
            self.release();
        }
    }

    /// The connection has ended: nobody waits any more.
    pub(super) fn end(&self) {
        self.changed.notify_waiters();
        self.release();
    }

    fn release(&self) {
        for waker in self.held.take() {
            waker.wake();
        }
    }

    /// Asks for what has left, one PING at a time, and takes the answer. Ready where there is something to
    /// send.
    pub(super) fn poll_ping(&self, ping: &mut PingPong, cx: &mut Context<'_>) -> Poll<()> {
        if self.asked.get() > self.arrived.get() {
            match ping.poll_pong(cx) {
                Poll::Ready(Ok(_)) => {
                    self.arrived.set(self.asked.get());
                    self.changed.notify_waiters();
                }
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
        }
        let due = self.wanted.get() > self.arrived.get() && self.left.get() > self.arrived.get();
        if due && ping.send_ping(Ping::opaque()).is_ok() {
            self.asked.set(self.left.get());
            return Poll::Ready(());
        }
        Poll::Pending
    }
}
