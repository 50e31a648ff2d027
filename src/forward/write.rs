//! A write from pass to outcome: the body of the task that owns it.

use super::download::{Download, Part, give_back};
use super::exchange::{self, Timer};
use super::failure::Failed;
use super::pool::{Link, Pool};
use super::upload::{Progress, Upload};
use crate::admit::{Outcome, Pass};
use crate::clock::{self, Time};
use crate::config::settings::SettledAt;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

type Reply = oneshot::Sender<Result<Response<Download>, Failed>>;

/// Runs a write to its end, and ends its pass with what became of it.
pub(super) async fn run(
    pool: &Rc<Pool>,
    pass: Pass,
    request: Request<Upload>,
    progress: &Progress,
    settled_at: SettledAt,
    reply: Reply,
) {
    let (response, link) = match exchange::run(pool, Some(&pass), request, progress).await {
        Ok(answer) => answer,
        Err(stopped) => {
            pass.finish(match stopped.closed {
                Some(since) => Outcome::Unknown {
                    whole: progress.is_whole(),
                    since,
                },
                None => Outcome::Unsent,
            });
            let failed = Failed {
                why: stopped.why,
                sent: stopped.closed.is_some(),
            };
            let _ = reply.send(Err(failed)); // nobody listens where the client has left
            return progress.linger();
        }
    };
    let settles = !pool.upstream.unsettled_status.contains(&response.status());
    let (head, body) = response.into_parts();
    if progress.is_whole() && settled_at == SettledAt::ResponseHead {
        pass.finish(answered(settles));
        let body = Download::direct(body, link).await;
        let _ = reply.send(Ok(Response::from_parts(head, body)));
        return;
    }
    let (parts, receiver) = mpsc::channel(1);
    let piped = Download::piped(receiver, body.size_hint());
    let _ = reply.send(Ok(Response::from_parts(head, piped)));
    if progress.is_whole() {
        to_the_end(
            pass,
            body,
            link,
            parts,
            settles,
            pool.upstream.response_body_timeout,
        )
        .await;
    } else {
        early(pass, body, link, parts, progress).await;
    }
}

fn answered(settles: bool) -> Outcome {
    if settles {
        Outcome::Answered
    } else {
        Outcome::Unknown {
            whole: true,
            since: clock::now(),
        }
    }
}

/// An answer before the request was whole: nothing more of it is sent, the answer is passed on, and
/// the connection closed. A cut closes it at once.
async fn early(
    pass: Pass,
    body: Incoming,
    link: Link,
    parts: mpsc::Sender<Part>,
    progress: &Progress,
) {
    progress.stop();
    let mut relay = Relay::new(body, link, Some(parts));
    while relay.step(&pass).await == Step::More {}
    let since = relay.link.wire.close();
    pass.finish(Outcome::Unknown {
        whole: false,
        since,
    });
    drop(relay);
    progress.linger();
}

/// The write counts as answered at the end of its response. Superseded, it is detached from its
/// client, and the rest of the response is read and dropped for a while before it is cut.
async fn to_the_end(
    pass: Pass,
    body: Incoming,
    link: Link,
    parts: mpsc::Sender<Part>,
    settles: bool,
    patience: std::time::Duration,
) {
    let mut relay = Relay::new(body, link, Some(parts));
    loop {
        match relay.step(&pass).await {
            Step::More => {}
            Step::Cut => relay.detach(clock::now().after(patience)),
            Step::End => {
                let Relay { link, .. } = relay;
                give_back(link).await;
                return pass.finish(answered(settles));
            }
            Step::Broken => {
                let since = relay.link.wire.close();
                return pass.finish(Outcome::Unknown { whole: true, since });
            }
        }
    }
}

#[derive(PartialEq)]
enum Step {
    More,
    Cut,
    End,
    Broken,
}

/// Moves a response from its connection to its client, part by part.
struct Relay {
    body: Incoming,
    link: Link,
    /// `None`: detached, what comes is dropped.
    parts: Option<mpsc::Sender<Part>>,
    give_up_at: Option<Time>,
}

impl Relay {
    const fn new(body: Incoming, link: Link, parts: Option<mpsc::Sender<Part>>) -> Self {
        Self {
            body,
            link,
            parts,
            give_up_at: None,
        }
    }

    fn detach(&mut self, give_up_at: Time) {
        self.parts = None;
        self.give_up_at = Some(give_up_at);
    }

    /// One part, or the reason why there is none. A client that takes nothing for as long as an
    /// upstream may say nothing is broken off too.
    async fn step(&mut self, pass: &Pass) -> Step {
        let (_, idle) = self.link.timeouts();
        let deadline = self.give_up_at.unwrap_or_else(|| clock::now().after(idle));
        let frame = {
            let mut timer = pin!(Timer::default());
            poll_fn(|cx| {
                if self.parts.is_some() && pass.poll_cut(cx).is_ready() {
                    return Poll::Ready(Err(Step::Cut));
                }
                if let Poll::Ready(frame) = self.poll_frame(cx) {
                    return Poll::Ready(frame);
                }
                timer
                    .as_mut()
                    .poll_until(deadline, cx)
                    .map(|()| Err(Step::Broken))
            })
            .await
        };
        let (part, step) = match frame {
            Ok(frame) => (Part::Frame(frame), Step::More),
            Err(Step::End) => (Part::End, Step::End),
            Err(step) => return step,
        };
        let Some(parts) = self.parts.clone() else {
            return step;
        };
        let mut handing = pin!(parts.send(part));
        let mut timer = pin!(Timer::default());
        let sent = poll_fn(|cx| {
            if pass.poll_cut(cx).is_ready() {
                return Poll::Ready(Err(Step::Cut));
            }
            if let Poll::Ready(sent) = handing.as_mut().poll(cx) {
                return Poll::Ready(Ok(sent.is_ok()));
            }
            timer
                .as_mut()
                .poll_until(deadline, cx)
                .map(|()| Err(Step::Broken))
        })
        .await;
        match sent {
            Ok(true) => step,
            Ok(false) => {
                // The client has left; the write goes on to its end without it.
                self.detach(clock::now().after(idle));
                step
            }
            Err(Step::Cut) if step == Step::End => Step::End,
            Err(other) => other,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, Step>> {
        let _ = self.link.drive(cx);
        Pin::new(&mut self.body)
            .poll_frame(cx)
            .map(|frame| match frame {
                Some(Ok(frame)) => Ok(frame),
                Some(Err(_)) => Err(Step::Broken),
                None => Err(Step::End),
            })
    }
}
