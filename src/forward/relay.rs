//! Moves a response from its connection to its client while the write's pass is not ended.

use super::arriving::Arriving;
use super::download::Part;
use super::exchange::Timer;
use super::grpc;
use super::link::Link;
use super::upload::{Limits, Progress};
use crate::admit::Pass;
use crate::clock::{self, Time};
use crate::guard::Turn;
use bytes::Bytes;
use http_body::{Body, Frame};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::Sender;

/// What came of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A part was moved.
    More,
    /// A higher token asks for an end.
    Cut,
    /// The response has ended.
    End,
    /// The upstream, or a client that took nothing, broke it off.
    Broken,
}

/// A response on its way.
pub(super) struct Relay {
    body: Arriving,
    link: Link,
    /// `None`: detached, what comes is dropped.
    parts: Option<Sender<Part>>,
    progress: Rc<Progress>,
    give_up_at: Option<Time>,
    /// Whether the response, as far as it came, says what became of the write.
    says: bool,
    /// The write's turn at its object, where its route has a guard.
    turn: Option<Turn>,
}

impl Relay {
    /// `promised`: only its trailers say what became of the write.
    pub(super) const fn new(
        body: Arriving,
        link: Link,
        parts: Sender<Part>,
        progress: Rc<Progress>,
        promised: bool,
        turn: Option<Turn>,
    ) -> Self {
        Self {
            body,
            link,
            parts: Some(parts),
            progress,
            give_up_at: None,
            says: !promised,
            turn,
        }
    }

    /// Whether the response says what became of the write. To be asked at its end.
    pub(super) const fn says_something(&self) -> bool {
        self.says
    }

    /// From now on drops what comes, and gives up at that time.
    pub(super) fn detach(&mut self, give_up_at: Time) {
        self.parts = None;
        self.give_up_at = Some(give_up_at);
    }

    /// Lets the next write of the object go.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
    }

    /// How long the parts of the exchange may take.
    pub(super) const fn limits(&self) -> Limits {
        self.link.limits()
    }

    /// Ends the exchange, and says when the gateway had let go of it.
    pub(super) async fn close(mut self) -> Time {
        self.link.cut().await.unwrap_or_else(clock::now)
    }

    /// Gives the connection back after [`Step::End`].
    pub(super) fn give_back(self) {
        self.link.give_back_later(self.progress.is_whole());
    }

    /// Moves what is left, without a pass, for as long as the client is there.
    pub(super) async fn finish(mut self) {
        while self.parts.is_some() {
            match self.step(None).await {
                Step::More | Step::Cut => {}
                Step::End => return self.give_back(),
                Step::Broken => return,
            }
        }
    }

    /// One part. With a pass, a cut ends the step as long as the response is not detached. Neither the
    /// upstream nor the client may pause for longer than `body_idle_timeout`.
    pub(super) async fn step(&mut self, pass: Option<&Pass>) -> Step {
        let frame = self.next(pass).await;
        if let Some(trailers) = frame.as_ref().ok().and_then(Frame::trailers_ref)
            && let Some(says) = grpc::says_something(trailers)
        {
            self.says = says;
        }
        if let Some(turn) = &mut self.turn {
            match &frame {
                Ok(frame) => turn.hears(frame.data_ref().map_or(&[], |data| data)),
                Err(Step::End) => turn.ended(),
                Err(_) => {}
            }
        }
        let (part, step) = match frame {
            Ok(frame) => (Part::Frame(frame), Step::More),
            Err(Step::End) => (Part::End, Step::End),
            Err(step) => return step,
        };
        let Some(parts) = self.parts.clone() else {
            return step;
        };
        match self.hand_on(parts, part, pass).await {
            Ok(true) => step,
            Ok(false) => {
                self.parts = None; // the client has left; the write goes on to its end without it
                step
            }
            Err(Step::Cut) if step == Step::End => Step::End,
            Err(other) => other,
        }
    }

    async fn next(&mut self, pass: Option<&Pass>) -> Result<Frame<Bytes>, Step> {
        let began = clock::now();
        let mut timer = pin!(Timer::default());
        poll_fn(|cx| {
            if self.give_up_at.is_none() && is_cut(pass, cx) {
                return Poll::Ready(Err(Step::Cut));
            }
            if let Poll::Ready(frame) = self.poll_frame(cx) {
                return Poll::Ready(frame);
            }
            if !self.progress.is_whole() {
                self.progress.owned_by(cx.waker());
                if self.progress.is_broken() {
                    return Poll::Ready(Err(Step::Broken)); // the client left in the middle of its body
                }
            }
            let deadline = self.deadline(began);
            timer
                .as_mut()
                .poll_until(deadline, cx)
                .map(|()| Err(Step::Broken))
        })
        .await
    }

    /// Whether the client took the part.
    async fn hand_on(
        &mut self,
        parts: Sender<Part>,
        part: Part,
        pass: Option<&Pass>,
    ) -> Result<bool, Step> {
        let began = clock::now();
        let mut handing = pin!(parts.send(part));
        let mut timer = pin!(Timer::default());
        poll_fn(|cx| {
            if is_cut(pass, cx) {
                return Poll::Ready(Err(Step::Cut));
            }
            if let Poll::Ready(sent) = handing.as_mut().poll(cx) {
                return Poll::Ready(Ok(sent.is_ok()));
            }
            let deadline = self.deadline(began);
            timer
                .as_mut()
                .poll_until(deadline, cx)
                .map(|()| Err(Step::Broken))
        })
        .await
    }

    /// A request that is still on its way counts as no pause. Looked at when a deadline has come, so that
    /// a pause of both sides is noticed after at most twice the limit.
    fn deadline(&self, began: Time) -> Time {
        let idle = self.link.limits().body_idle;
        let last = began.max(self.progress.last(clock::now()));
        self.give_up_at.unwrap_or_else(|| last.after(idle))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, Step>> {
        Pin::new(&mut self.body)
            .poll_frame(cx)
            .map(|frame| match frame {
                Some(Ok(frame)) => Ok(frame),
                Some(Err(_)) => Err(Step::Broken),
                None => Err(Step::End),
            })
    }
}

fn is_cut(pass: Option<&Pass>, cx: &Context<'_>) -> bool {
    pass.is_some_and(|pass| pass.poll_cut(cx).is_ready())
}
