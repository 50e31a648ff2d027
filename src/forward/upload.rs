//! The request body on its way to the upstream.
//!
//! A truncated body never ends: the upstream must not take it for a whole one. It stalls instead,
//! and the owner of the exchange, who sees why, closes the connection.

use super::headers;
use super::pace::Pace;
use super::unread::{Came, Rest, Unreadable};
use crate::clock::Time;
use crate::sign::Chunks;
use bytes::Bytes;
use http::HeaderName;
use http_body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The body of a request, as the HTTP library takes it.
pub(super) struct Upload {
    /// `None`: there is none.
    body: Option<Came>,
    /// Bytes still to come, where the length is known.
    left: Option<u64>,
    /// Bytes that may still come, where that is bounded.
    room: Option<u64>,
    /// A stream of HTTP/2, which may break off without an error.
    h2: bool,
    /// It comes in signed chunks, which count as they come.
    chunked: bool,
    /// Headers that may not come as a trailer either.
    token_headers: Option<Rc<[HeaderName]>>,
    progress: Rc<Progress>,
}

/// How far the body got, for the owner of the exchange.
///
/// Reads no clock while all goes well: what moves is marked, and whoever looks for what does not counts
/// the time from where it saw the mark. So a deadline may be late by the time between three looks, and is
/// never early, not even after the process was paused.
#[derive(Default)]
pub(super) struct Progress {
    whole: Cell<bool>,
    /// Something has happened since `last` was set.
    moved: Cell<bool>,
    last: Cell<Option<Time>>,
    broken: Cell<bool>,
    too_large: Cell<bool>,
    forged: Cell<bool>,
    waits_for_client: Cell<bool>,
    pace: Pace,
    /// The client was behind its rate when it was last looked at.
    too_slow: Cell<bool>,
    stopped: Cell<bool>,
    /// The client has left.
    abandoned: Cell<bool>,
    /// A deadline had passed when it was last looked at.
    late: Cell<bool>,
    /// Set once that was seen twice; stays.
    overdue: Cell<bool>,
    limits: Cell<Limits>,
    /// Who waits for the response.
    owner: RefCell<Option<Waker>>,
    /// Where `watch` has it.
    pub(super) place: Cell<usize>,
}

/// How long the parts of an exchange may take.
#[derive(Clone, Copy, Default)]
pub(super) struct Limits {
    /// From the last byte of the request to the head of the response.
    pub(super) response: Duration,
    /// The longest pause within the request's body.
    pub(super) body_idle: Duration,
    /// The least rate of the request's body, in bytes a second.
    pub(super) body_rate: Option<NonZeroU64>,
}

impl Progress {
    /// Remembers whom to wake when the body breaks off or a deadline passes.
    pub(super) fn owned_by(&self, waker: &Waker) {
        let mut owner = self.owner.borrow_mut();
        if !owner.as_ref().is_some_and(|owner| owner.will_wake(waker)) {
            *owner = Some(waker.clone());
        }
    }

    /// Wakes the owner if the exchange is overdue.
    pub(super) fn check(&self, now: Time) {
        let limits = self.limits.get();
        let limit = if self.whole.get() {
            limits.response
        } else {
            limits.body_idle
        };
        self.too_slow.set(self.falls_behind(limits, now));
        let late = now >= self.last(now).after(limit) || self.too_slow.get();
        // Seen twice: after a pause of the process, what came meanwhile is taken first.
        if self.late.replace(late) && late {
            self.overdue.set(true);
            self.wake();
        }
    }

    fn falls_behind(&self, limits: Limits, now: Time) -> bool {
        let (idle, waits) = (limits.body_idle, self.waits_for_client.get());
        let rate = limits.body_rate.filter(|_| !self.whole.get());
        rate.is_some_and(|rate| self.pace.is_behind(rate, idle, waits, now))
    }

    /// Whether a deadline has passed.
    pub(super) fn is_overdue(&self) -> bool {
        self.overdue.get()
    }

    fn wake(&self) {
        if let Some(owner) = self.owner.take() {
            owner.wake();
        }
    }

    /// Whether the last byte was handed to the HTTP library.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.get()
    }

    /// When a part of the body was last seen to be handed over, or the exchange to begin.
    pub(super) fn last(&self, now: Time) -> Time {
        match self.last.get() {
            Some(last) if !self.moved.get() => last,
            _ => {
                self.moved.set(false);
                self.last.set(Some(now));
                now
            }
        }
    }

    /// Whether the client left or sent what is no body before it was whole.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    /// Whether it was broken off for its size.
    pub(super) fn is_too_large(&self) -> bool {
        self.too_large.get()
    }

    /// Whether it was broken off since a part of it is not what its client signed.
    pub(super) fn is_forged(&self) -> bool {
        self.forged.get()
    }

    /// Whether it is overdue by its client, who sends nothing or too little; else the upstream does not take
    /// it.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client.get() || self.too_slow.get()
    }

    /// Hands over nothing more.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    /// Notes that the client has left, or has its response.
    pub(super) fn abandon(&self) {
        self.abandoned.set(true);
    }

    /// Whether the client has left, or has its response.
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    /// A connection is there, which has taken nothing yet: from now on the deadlines run.
    pub(super) fn begin(&self) {
        self.moved.set(true);
        self.stopped.set(false);
        self.late.set(false);
        self.overdue.set(false);
        self.pace.rest();
    }

    fn finish(&self) {
        self.whole.set(true);
        self.moved.set(true);
    }
}

impl Upload {
    /// Whether it comes over HTTP/2.
    pub(super) const fn came_as_h2(&self) -> bool {
        self.h2
    }

    /// `h2`: it comes over HTTP/2.
    pub(super) fn new(body: Came, h2: bool) -> Self {
        let progress = Progress::default();
        // Where the length is 0 the HTTP library does not ask for it.
        let whole = body.is_end_stream() || body.size_hint().exact() == Some(0);
        progress.whole.set(whole);
        Self {
            h2,
            chunked: false,
            left: body.size_hint().exact(),
            body: Some(body),
            room: None,
            token_headers: None,
            progress: Rc::new(progress),
        }
    }

    /// Takes what comes of it; `None` where there is nothing.
    pub(super) fn take(&mut self) -> Option<Came> {
        self.body.take()
    }

    /// Puts all of it in place, once that was read.
    pub(super) fn put_back(&mut self, body: Came) {
        self.left = body.size_hint().exact();
        if self.left == Some(0) {
            self.progress.finish();
        }
        self.body = Some(body);
    }

    /// What comes of it is in signed chunks: `length` bytes without them.
    pub(super) fn unchunk(&mut self, chunks: Chunks, length: u64) {
        if let Some(body) = &mut self.body {
            body.unchunk(chunks, length);
            self.chunked = true;
            self.left = Some(length);
            if length == 0 {
                self.progress.finish();
            }
        }
    }

    /// No body.
    pub(super) fn none() -> Self {
        let progress = Progress::default();
        progress.whole.set(true);
        Self {
            h2: false,
            chunked: false,
            left: Some(0),
            body: None,
            room: None,
            token_headers: None,
            progress: Rc::new(progress),
        }
    }

    /// A body that is there as a whole.
    pub(super) fn held(body: Bytes) -> Self {
        if body.is_empty() {
            Self::none()
        } else {
            Self::new(Came::held(body), false)
        }
    }

    /// Bounds its size. False where it says by itself that it is larger.
    pub(super) fn limit(&mut self, most: Option<u64>) -> bool {
        self.room = most;
        match (most, self.left) {
            (Some(most), Some(length)) => length <= most,
            _ => true,
        }
    }

    /// Says what holds for it on its route and upstream.
    pub(super) fn bind(&mut self, token_headers: Rc<[HeaderName]>, limits: Limits) {
        self.token_headers = Some(token_headers);
        self.progress.limits.set(limits);
    }

    /// Whether nothing of it is to come.
    pub(super) fn is_over(&self) -> bool {
        self.progress.is_whole()
    }

    pub(super) const fn progress(&self) -> &Rc<Progress> {
        &self.progress
    }

    /// For whoever answers the request.
    pub(super) fn rest(&self) -> Rest {
        let may_be_left = !self.h2
            && !self.progress.is_whole()
            && !self.body.as_ref().is_some_and(Came::reads_on);
        Rest::of(may_be_left.then(|| Rc::clone(&self.progress)))
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.progress.stopped.get() || self.progress.broken.get() {
            return Poll::Pending;
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let ended = body.is_end_stream();
        let raw = body.take_raw();
        if raw > 0 {
            self.progress.moved.set(true);
            self.progress.pace.came(raw);
        }
        self.progress.waits_for_client.set(polled.is_pending());
        let frame = match polled {
            Poll::Pending => return Poll::Pending,
            // A stream that was reset without an error (NO_ERROR) ends like one that has ended: it has not.
            Poll::Ready(None) if self.h2 && !ended => {
                self.progress.broken.set(true);
                self.progress.wake();
                return Poll::Pending;
            }
            Poll::Ready(None) => {
                if !self.progress.whole.get() {
                    self.progress.finish();
                }
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Err(why))) => {
                self.progress.forged.set(matches!(why, Unreadable::Forged));
                self.progress.broken.set(true);
                self.progress.wake();
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        self.progress.moved.set(true);
        let frame = match frame.into_trailers() {
            Ok(mut trailers) => {
                for name in self.token_headers.iter().flat_map(|names| names.iter()) {
                    trailers.remove(name);
                }
                headers::trailers(&mut trailers);
                self.progress.finish(); // the HTTP library ends the message here, and asks no more
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        };
        if let Some(data) = frame.data_ref().filter(|_| !self.chunked) {
            self.progress.pace.came(data.len());
        }
        if let (Some(room), Some(data)) = (self.room, frame.data_ref()) {
            self.room = room.checked_sub(data.len() as u64);
            if self.room.is_none() {
                self.progress.too_large.set(true);
                self.progress.broken.set(true);
                self.progress.wake();
                return Poll::Pending; // as where it breaks off: the upstream never sees its end
            }
        }
        if let (Some(left), Some(data)) = (self.left, frame.data_ref()) {
            self.left = Some(left.saturating_sub(data.len() as u64));
        }
        // After a part that is known to be the last the HTTP library asks no more.
        if !self.progress.whole.get() && (self.left == Some(0) || ended) {
            self.progress.finish();
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Came::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or(SizeHint::with_exact(0), Came::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_client_that_is_behind_is_to_blame_even_if_a_part_has_just_come() {
        let progress = Progress::default();
        progress.limits.set(Limits {
            response: Duration::from_secs(30),
            body_idle: Duration::from_secs(30),
            body_rate: NonZeroU64::new(1000),
        });
        progress.begin();
        progress.waits_for_client.set(true);
        let start = clock::now();
        let mut looks = 0;
        while !progress.is_overdue() {
            progress.check(start.after(Duration::from_millis(100) * looks));
            looks += 1;
        }
        assert!((50..60).contains(&looks), "{looks}");
        progress.pace.came(1);
        progress.waits_for_client.set(false);
        assert!(progress.waits_for_client());
    }
}
