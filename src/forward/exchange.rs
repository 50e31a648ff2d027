//! One exchange: a request on a connection, until the final response head or a failure.
//!
//! Says what reached the socket and when it closed; what follows for the gates, its caller decides.

use super::Outgoing;
use super::arriving::Arriving;
use super::failure::Failure;
use super::link::Link;
use super::pool::Pool;
use super::upload::Progress;
use crate::admit::Pass;
use crate::clock::{self, Time};
use crate::route::upgrade::is_websocket;
use http::{Response, StatusCode};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// An exchange that brought no response.
pub(super) struct Stopped {
    pub(super) why: Failure,
    /// When the connection was closed; `None` where no byte of the request reached one.
    pub(super) closed: Option<Time>,
}

impl Stopped {
    pub(super) const fn unsent(why: Failure) -> Self {
        Self { why, closed: None }
    }
}

/// Sends a request and waits for its response head. With a pass, the exchange ends as soon as the
/// pass is cut, unless the request was whole by then.
///
/// The request is tried again, once and on a new connection, where the first one turned out closed
/// before it took a byte, and only if the gates still stand as they did (I6). Dropping the future
/// closes the connection.
pub(super) async fn run(
    pool: &Rc<Pool>,
    pass: Option<&Pass>,
    mut request: Box<Outgoing>,
    progress: &Rc<Progress>,
) -> Result<(Response<Arriving>, Link), Stopped> {
    let began = clock::now();
    let (mut fresh, upgrade) = (false, request.upgrade);
    let ended = loop {
        let mut link = match obtain(pool, pass, progress, fresh, began).await {
            Ok(link) => link,
            Err(why) => break Err(Stopped::unsent(why)),
        };
        progress.begin();
        let watched = pool.watch.enter(progress);
        let (why, unused) = match converse(&mut link, pass, request, progress).await {
            Ok(response) if may_be(&response, upgrade && progress.is_whole()) => {
                pool.seconds
                    .observe(clock::now().since(began).as_secs_f64());
                pool.reach.answered();
                return Ok((response, link));
            }
            Ok(_) => (Failure::Broken, None), // an upgrade that nobody asked for
            Err(end) => end,
        };
        drop(watched);
        progress.stop();
        if matches!(why, Failure::Silent) {
            link.distrust();
        }
        if let Some(closed) = link.cut().await {
            break Err(Stopped {
                why,
                closed: Some(closed),
            });
        }
        match (why, unused) {
            (Failure::Broken, Some(unused)) if !fresh && link.was_used() => {
                if pass.is_some_and(|pass| !pass.is_current()) {
                    break Err(Stopped::unsent(Failure::Superseded));
                }
                request = unused;
                fresh = true;
            }
            (why, _) => break Err(Stopped::unsent(why)),
        }
    };
    pool.seconds
        .observe(clock::now().since(began).as_secs_f64());
    ended
}

/// No other protocol is switched to than the one that was asked for.
fn may_be(response: &Response<Arriving>, upgrade: bool) -> bool {
    response.status() != StatusCode::SWITCHING_PROTOCOLS
        || upgrade && is_websocket(response.headers())
}

/// A connection for the request. One that had to be waited for is used only if the gates still stand
/// as they did: a write does not start after the seal (I3).
async fn obtain(
    pool: &Rc<Pool>,
    pass: Option<&Pass>,
    progress: &Progress,
    fresh: bool,
    now: Time,
) -> Result<Link, Failure> {
    let mut link = pin!(pool.link(fresh, now));
    let mut waited = false;
    let link = poll_fn(|cx| match pass {
        Some(pass) if pass.poll_cut(cx).is_ready() => Poll::Ready(Err(Failure::Superseded)),
        // The client has left while its request waits: it is not forwarded.
        _ if progress.is_abandoned() => Poll::Ready(Err(Failure::BodyBroken)),
        _ => {
            let polled = link.as_mut().poll(cx);
            waited |= polled.is_pending();
            polled
        }
    })
    .await?;
    if waited && pass.is_some_and(|pass| !pass.is_current()) {
        return Err(Failure::Superseded);
    }
    Ok(link)
}

/// `Err` with the request where no byte of it was taken.
async fn converse(
    link: &mut Link,
    pass: Option<&Pass>,
    request: Box<Outgoing>,
    progress: &Progress,
) -> Result<Response<Arriving>, (Failure, Option<Box<Outgoing>>)> {
    let mut response = pin!(link.send(request));
    poll_fn(|cx| {
        if pass.is_some_and(|pass| !progress.is_whole() && pass.poll_cut(cx).is_ready()) {
            return Poll::Ready(Err((Failure::Superseded, None)));
        }
        match response.as_mut().poll(cx) {
            Poll::Ready(Ok(response)) => return Poll::Ready(Ok(response)),
            Poll::Ready(Err(unused)) => return Poll::Ready(Err((Failure::Broken, unused))),
            Poll::Pending => progress.owned_by(cx.waker()),
        }
        if progress.is_broken() {
            let why = if progress.is_too_large() {
                Failure::BodyTooLarge
            } else if progress.is_forged() {
                Failure::Forged
            } else {
                Failure::BodyBroken
            };
            return Poll::Ready(Err((why, None)));
        }
        if progress.is_overdue() {
            let stalled = !progress.is_whole() && progress.waits_for_client();
            let why = if stalled {
                Failure::BodyStalled
            } else {
                Failure::Silent
            };
            return Poll::Ready(Err((why, None)));
        }
        Poll::Pending
    })
    .await
}

pin_project_lite::pin_project! {
    /// A timer whose deadline moves. Set anew only when it has to fire earlier, or fired too early.
    #[derive(Default)]
    pub(super) struct Timer {
        #[pin]
        sleep: Option<tokio::time::Sleep>,
        armed_for: Option<Time>,
    }
}

impl Timer {
    /// Keeps the deadline with which it was first polled.
    pub(super) fn poll_first(
        self: std::pin::Pin<&mut Self>,
        deadline: Time,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let deadline = self.armed_for.unwrap_or(deadline);
        self.poll_until(deadline, cx)
    }

    pub(super) fn poll_until(
        mut self: std::pin::Pin<&mut Self>,
        deadline: Time,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let mut this = self.as_mut().project();
            if this.armed_for.is_none_or(|armed| deadline < armed) {
                let left = deadline.left();
                if left.is_zero() {
                    return Poll::Ready(());
                }
                this.sleep.set(Some(tokio::time::sleep(left)));
                *this.armed_for = Some(deadline);
            }
            if let Some(sleep) = this.sleep.as_pin_mut()
                && sleep.poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            *this.armed_for = None;
        }
    }
}
