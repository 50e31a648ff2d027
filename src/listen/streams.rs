//! The requests of one HTTP/2 connection, each in a task of its own: one whose client takes nothing of
//! its response is ended alone. It may hold an upstream connection.

use crate::clock::{self, Time};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::{AbortHandle, Id};

/// The requests of a connection.
#[derive(Clone, Default)]
pub(super) struct Streams(Rc<RefCell<HashMap<Id, Stream>>>);

struct Stream {
    task: AbortHandle,
    taking: Option<Rc<Taking>>,
}

/// How a client takes its response.
struct Taking {
    /// A part was handed over, and the next one not asked for.
    handed: Cell<bool>,
    since: Cell<Option<Time>>,
}

/// The body of a response on its way to an HTTP/2 client.
pub(super) struct Watched<B> {
    body: B,
    taking: Rc<Taking>,
}

impl Streams {
    /// Watches the response of the request whose task this is.
    pub(super) fn watch<B>(&self, body: B) -> Watched<B> {
        let taking = Rc::new(Taking {
            handed: Cell::new(false),
            since: Cell::new(None),
        });
        let mut streams = self.0.borrow_mut();
        if let Some(stream) = tokio::task::try_id().and_then(|id| streams.get_mut(&id)) {
            stream.taking = Some(Rc::clone(&taking));
        }
        Watched { body, taking }
    }

    /// Resets those that take nothing of their response for that long. To be called about once a second.
    pub(super) fn sweep(&self, patience: Duration) {
        let now = clock::now();
        for stream in self.0.borrow().values() {
            if stream
                .taking
                .as_ref()
                .is_some_and(|taking| taking.idle_for(now) >= patience)
            {
                stream.task.abort();
            }
        }
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, work: F) {
        let streams = self.clone();
        let task = tokio::task::spawn_local(async move {
            let _left = Left(streams, tokio::task::id());
            work.await;
        });
        let stream = Stream {
            task: task.abort_handle(),
            taking: None,
        };
        self.0.borrow_mut().insert(task.id(), stream);
    }
}

/// Takes a request off the list when its task ends.
struct Left(Streams, Id);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.0.borrow_mut().remove(&self.1);
    }
}

impl Taking {
    fn idle_for(&self, now: Time) -> Duration {
        if !self.handed.get() {
            return Duration::ZERO;
        }
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        now.since(since)
    }
}

impl<B: Body + Unpin> Body for Watched<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.taking.handed.set(polled.is_ready());
        self.taking.since.set(None);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
