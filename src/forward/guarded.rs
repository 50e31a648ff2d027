//! A write that carries a condition: what becomes of it where the condition does not hold.

use super::arriving::Arriving;
use super::ask;
use super::exchange::{self, Stopped};
use super::failure::Failure;
use super::link::Link;
use super::pool::Pool;
use super::upload::{Progress, Upload};
use super::{ANSWER, Outgoing};
use crate::admit::Pass;
use crate::guard::{Told, Turn};
use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use std::future::poll_fn;
use std::rc::Rc;

/// A write's turn at its object, and what it can be sent again from.
pub struct Guarded {
    /// The turn.
    pub turn: Turn,
    /// `None`: it is not sent again.
    pub kept: Option<Kept>,
}

/// A request that can be sent again: as its client sent it, without the gateway's condition.
pub struct Kept {
    /// Its head.
    pub head: Parts,
    /// All of its body.
    pub body: Bytes,
}

/// Sends a write as [`exchange::run`] does. Where the resource refuses it by the gateway's own condition, it had no
/// effect: then the object's state is learned anew, and the write goes once more where it was kept and its pass
/// still stands (I6). `progress` is that of the request which was sent last.
pub(super) async fn send(
    pool: &Rc<Pool>,
    pass: &Pass,
    guarded: &mut Guarded,
    mut request: Box<Outgoing>,
    progress: &mut Rc<Progress>,
) -> Result<(Response<Arriving>, Link, Told), Stopped> {
    let Guarded { turn, kept } = guarded;
    loop {
        turn.begin();
        let answered = exchange::run(pool, Some(pass), request, progress).await;
        let (response, mut link) = answered.inspect_err(|stopped| {
            if stopped.closed.is_none() {
                turn.unsent();
            }
        })?;
        let status = response.status();
        let told = turn.answered(status, response.headers());
        let holds = told == Told::Passes || told == Told::Refused && status == StatusCode::CONFLICT;
        if holds {
            return Ok((response, link, told));
        }
        let mine = turn.may_have_written() && has_written(pool, pass, turn).await;
        if !mine && told == Told::Refused {
            return Ok((response, link, told));
        }
        progress.stop();
        drop(response);
        link.cut().await;
        if mine {
            return Err(Stopped::unsent(Failure::Written));
        }
        let next = match kept.take() {
            Some(kept) => again(pool, pass, turn, kept).await,
            None => None,
        };
        if !pass.is_current() {
            return Err(Stopped::unsent(Failure::Superseded));
        }
        request = next.ok_or_else(|| Stopped::unsent(Failure::Conflict))?;
        request.bind(&Rc::default(), pool);
        *progress = Rc::clone(request.progress());
    }
}

/// The request anew, for the state in which the object is now. `None` where there is no such condition for it.
async fn again(pool: &Rc<Pool>, pass: &Pass, turn: &mut Turn, kept: Kept) -> Option<Box<Outgoing>> {
    let Kept { mut head, body } = kept;
    let (status, headers) = look(pool, pass, turn).await?;
    turn.learn(status, &headers).ok()?;
    turn.condition(&mut head.headers).ok()?;
    head.headers.remove(EXPECT);
    Some(Box::new(Outgoing {
        head,
        upgrade: false,
        body: Upload::held(body),
    }))
}

/// Whether an earlier write of the same holder is why the condition does not hold. Where it is not, that is counted.
async fn has_written(pool: &Rc<Pool>, pass: &Pass, turn: &mut Turn) -> bool {
    let seen = look(pool, pass, turn).await;
    let mine = seen.is_some_and(|(status, headers)| turn.has_written(status, &headers));
    // Where a newer holder did not wait for the answer, nobody knows.
    if !mine && pass.is_current() {
        turn.is_not_mine();
    }
    mine
}

/// The object's state. `None` where it is not to be had, or a newer holder does not wait for it.
async fn look(pool: &Rc<Pool>, pass: &Pass, turn: &Turn) -> Option<(StatusCode, HeaderMap)> {
    let asked = async {
        let question = turn.question().await.ok()?;
        let answer = ask::ask(pool, question, Bytes::new(), ANSWER).await.ok()?;
        let (head, _) = answer.into_parts();
        Some((head.status, head.headers))
    };
    tokio::select! {
        biased;
        () = poll_fn(|cx| pass.poll_cut(cx)) => None,
        seen = asked => seen,
    }
}
