//! What a client still sends of a request that was answered without it.
//!
//! Many clients read an answer only once they have sent their request, and some take a stream that is
//! reset for a failure although its answer was there. So the rest is read and dropped for a while.

use super::attend::Orphans;
use super::upload::Progress;
use crate::sign::Chunks;
use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;

/// How long a client that was answered before its request was read may go on sending.
pub const LINGER: Duration = Duration::from_secs(30);

/// How long it may pause meanwhile.
pub const LINGER_PAUSE: Duration = Duration::from_secs(5);

/// The largest body that is read for the sake of an HTTP/1.1 connection, which can then go on.
const SMALL: u64 = 64 << 10;

/// A request's body as it comes. Dropped before its end, it is read on where that serves the client.
pub(super) struct Came {
    /// `None` once it is dropped.
    body: Option<Source>,
    /// Who reads on.
    orphans: Option<Weak<Orphans>>,
    /// The signed chunks in which it comes, and how much is to come of it without them.
    chunks: Option<Box<(Chunks, u64)>>,
    /// Bytes of chunks that came since somebody asked.
    raw: usize,
}

/// Why a body cannot be read on.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It broke off.
    Broken,
    /// A part of it is not what its client signed.
    Forged,
}

/// Where the parts of a body come from.
enum Source {
    Client(Incoming),
    /// It was read before.
    Held(Full<Bytes>),
}

/// Whether an HTTP/1.1 connection can go on after its request was answered.
pub struct Rest(Option<Rc<Progress>>);

impl Came {
    pub(super) fn new(body: Incoming, head: &Parts, orphans: &Rc<Orphans>) -> Self {
        // One that waits to be asked may come or not, once there is a final answer.
        let keeps_h1 = || is_small(&body) && !head.headers.contains_key(EXPECT);
        let reads_on = !body.is_end_stream() && (head.version == Version::HTTP_2 || keeps_h1());
        Self {
            orphans: reads_on.then(|| Rc::downgrade(orphans)),
            body: Some(Source::Client(body)),
            chunks: None,
            raw: 0,
        }
    }

    /// One that was read before.
    pub(super) fn held(body: Bytes) -> Self {
        Self {
            orphans: None,
            body: Some(Source::Held(Full::new(body))),
            chunks: None,
            raw: 0,
        }
    }

    /// Whether it is read on where nobody wants it.
    pub(super) const fn reads_on(&self) -> bool {
        self.orphans.is_some()
    }
}

/// A larger one costs more than a new connection.
fn is_small(body: &Incoming) -> bool {
    body.size_hint().exact().is_some_and(|size| size <= SMALL)
}

impl Came {
    /// What comes of it is in signed chunks: `length` bytes without them.
    pub(super) fn unchunk(&mut self, chunks: Chunks, length: u64) {
        self.chunks = Some(Box::new((chunks, length)));
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unreadable>>> {
        match &mut self.body {
            Some(Source::Client(body)) => {
                let polled = Pin::new(body).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(|_| Unreadable::Broken)))
            }
            Some(Source::Held(body)) => {
                let polled = Pin::new(body).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
            None => Poll::Pending,
        }
    }

    /// The next part out of its chunks, each checked before a byte of it is given; the last one when all that comes
    /// behind it was checked too.
    fn poll_chunks(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unreadable>>> {
        loop {
            let Some((chunks, left)) = self.chunks.as_deref_mut() else {
                return Poll::Ready(None);
            };
            if let Some(size) = chunks.ready() {
                let Some(rest) = left.checked_sub(size as u64) else {
                    return Poll::Ready(Some(Err(Unreadable::Forged))); // more than it was to have
                };
                if rest > 0 || chunks.is_over() {
                    *left = rest;
                    return Poll::Ready(chunks.pop().map(|part| Ok(Frame::data(part))));
                }
            }
            let over = chunks.is_over() && *left == 0;
            let frame = match ready!(self.poll_source(cx)) {
                None if over => return Poll::Ready(None),
                None => return Poll::Ready(Some(Err(Unreadable::Broken))),
                Some(Err(why)) => return Poll::Ready(Some(Err(why))),
                Some(Ok(frame)) => frame,
            };
            // Trailers of HTTP: the chunks say nothing of them.
            let data = frame.data_ref().map_or(&b""[..], |data| data);
            self.raw += data.len();
            if let Some((chunks, _)) = self.chunks.as_deref_mut()
                && chunks.push(data).is_err()
            {
                return Poll::Ready(Some(Err(Unreadable::Forged)));
            }
        }
    }

    /// How many bytes of chunks have come since this was last asked.
    pub(super) fn take_raw(&mut self) -> usize {
        std::mem::take(&mut self.raw)
    }
}

impl Body for Came {
    type Data = Bytes;
    type Error = Unreadable;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unreadable>>> {
        if self.chunks.is_some() {
            return self.poll_chunks(cx);
        }
        self.poll_source(cx)
    }

    fn is_end_stream(&self) -> bool {
        if let Some(chunks) = &self.chunks {
            return chunks.1 == 0;
        }
        match &self.body {
            Some(Source::Client(body)) => body.is_end_stream(),
            Some(Source::Held(body)) => body.is_end_stream(),
            None => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(chunks) = &self.chunks {
            return SizeHint::with_exact(chunks.1);
        }
        match &self.body {
            Some(Source::Client(body)) => body.size_hint(),
            Some(Source::Held(body)) => body.size_hint(),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Came {
    fn drop(&mut self) {
        if let Some(Source::Client(body)) = self.body.take()
            && !body.is_end_stream()
            && let Some(orphans) = self.orphans.take().and_then(|orphans| orphans.upgrade())
        {
            orphans.take(Box::pin(read_on(body)));
        }
    }
}

/// Reads a body to its end, or until its client has left, and drops what comes. Bounded in time.
async fn read_on(mut body: Incoming) {
    let to_the_end = async {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            let Ok(Some(Ok(_))) = timeout(LINGER_PAUSE, frame).await else {
                return;
            };
        }
    };
    let _ = timeout(LINGER, to_the_end).await;
}

impl Rest {
    /// `None` where it can in any case.
    pub(super) const fn of(progress: Option<Rc<Progress>>) -> Self {
        Self(progress)
    }

    /// Whether the connection ends with an answer that is given now, since what is left of the request
    /// will not be read.
    #[must_use]
    pub fn ends_connection(&self) -> bool {
        self.0.as_ref().is_some_and(|progress| !progress.is_whole())
    }
}
