//! The response body on its way to the client.

use super::arriving::Arriving;
use super::exchange::Timer;
use super::failure::Failure;
use super::link::Link;
use super::tunnel::Tunnel;
use crate::admit::Unseen;
use crate::clock;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

/// A response body. One that breaks off ends with an error, so that the client sees it.
pub struct Download(Source);

enum Source {
    /// Read straight from the upstream connection, which goes back to its pool at the end.
    Direct(Box<Direct>),
    /// Read by the task that owns the write.
    Piped {
        parts: Receiver<Part>,
        hint: SizeHint,
    },
    Done,
    /// There is none: the connection becomes a WebSocket.
    Switched(Option<Box<Tunnel>>),
}

struct Direct {
    body: Arriving,
    link: Link,
    whole: bool,
    idle: Duration,
    /// Made when a part has to be waited for.
    timer: Option<Pin<Box<Timer>>>,
    /// What may still take effect until the connection, above, is closed; and whether it is settled where the
    /// response ends well.
    unseen: Option<(Unseen, bool)>,
}

/// What the owner of a write hands on of its response.
pub(super) enum Part {
    Frame(Frame<Bytes>),
    End,
}

impl Download {
    /// A body read straight from its connection. Dropped before its end, it closes the connection.
    /// `whole`: the request was sent to its end. `unseen`: what is not settled by the response's head, and whether it is by its
    /// end.
    pub(super) fn direct(
        body: Arriving,
        link: Link,
        whole: bool,
        unseen: Option<(Unseen, bool)>,
    ) -> Self {
        if body.is_end_stream() {
            link.give_back(whole);
            settle(unseen);
            return Self(Source::Done);
        }
        let idle = link.limits().body_idle;
        Self(Source::Direct(Box::new(Direct {
            body,
            link,
            whole,
            idle,
            timer: None,
            unseen,
        })))
    }

    /// No body, but what comes after the head that grants a WebSocket.
    pub(super) fn switched(tunnel: Tunnel) -> Self {
        Self(Source::Switched(Some(Box::new(tunnel))))
    }

    /// Takes the WebSocket that the response grants.
    pub fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match &mut self.0 {
            Source::Switched(tunnel) => tunnel.take(),
            _ => None,
        }
    }

    /// A body that comes in parts, the last of which is [`Part::End`].
    pub(super) fn piped(parts: Receiver<Part>, hint: SizeHint) -> Self {
        Self(Source::Piped { parts, hint })
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        let (polled, over) = match &mut self.0 {
            Source::Done | Source::Switched(_) => return Poll::Ready(None),
            Source::Direct(direct) => direct.poll(cx),
            Source::Piped { parts, .. } => match parts.poll_recv(cx) {
                Poll::Pending => (Poll::Pending, false),
                Poll::Ready(Some(Part::Frame(frame))) => (Poll::Ready(Some(Ok(frame))), false),
                Poll::Ready(Some(Part::End)) => (Poll::Ready(None), true),
                Poll::Ready(None) => (Poll::Ready(Some(Err(Failure::Broken))), true),
            },
        };
        if over {
            let broken = matches!(polled, Poll::Ready(Some(Err(_))));
            if let Source::Direct(direct) = std::mem::replace(&mut self.0, Source::Done)
                && !broken
            {
                let Direct {
                    link,
                    whole,
                    unseen,
                    ..
                } = *direct;
                link.give_back_later(whole); // closed where the request was not whole
                settle(unseen);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Source::Done | Source::Switched(_))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Direct(direct) => direct.body.size_hint(),
            Source::Piped { hint, .. } => *hint,
            Source::Done | Source::Switched(_) => SizeHint::with_exact(0),
        }
    }
}

/// The response has ended well.
fn settle(unseen: Option<(Unseen, bool)>) {
    if let Some((unseen, true)) = unseen {
        unseen.settled();
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, Failure>>>;

impl Direct {
    /// The next part, and whether it is the last.
    fn poll(&mut self, cx: &mut Context<'_>) -> (Polled, bool) {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timer = None;
                (Poll::Ready(Some(Ok(frame))), self.body.is_end_stream())
            }
            Poll::Ready(Some(Err(_))) => (Poll::Ready(Some(Err(Failure::Broken))), true),
            Poll::Ready(None) => (Poll::Ready(None), true),
            Poll::Pending => {
                let deadline = clock::now().after(self.idle);
                let timer = self.timer.get_or_insert_with(|| Box::pin(Timer::default()));
                match timer.as_mut().poll_first(deadline, cx) {
                    Poll::Ready(()) => (Poll::Ready(Some(Err(Failure::Silent))), true),
                    Poll::Pending => (Poll::Pending, false),
                }
            }
        }
    }
}
