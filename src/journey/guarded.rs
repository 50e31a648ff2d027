//! The condition that a write carries for the resource itself: its turn at the object, what it has to learn first,
//! and what it is kept for.

use super::Journey;
use super::claims::Claims;
use super::permit::Permit;
use crate::admit::{Outcome, Pass};
use crate::clock;
use crate::fence::Token;
use crate::forward::{ANSWER, Guarded, Kept, Outgoing, Place, Ungathered};
use crate::guard::{Guards, Setting, Turn, Unlearnt};
use crate::record::RouteMetrics;
use crate::refusal::{Refusal, Why};
use crate::route::{Class, Effect, Match};
use bytes::Bytes;
use http::{HeaderValue, Method};
use std::future::{Future, poll_fn};
use std::task::Poll;

const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

/// What is to be sent: the right to, the condition that it goes out with, and the place of its body among those
/// that are held.
pub(super) type Ready<'a> = (Permit, Option<Guarded>, Option<Place<'a>>);

/// A pass of which nothing has gone out yet: dropped, nothing has.
pub(super) struct Unbegun(Option<Pass>);

impl Unbegun {
    pub(super) const fn of(pass: Pass) -> Self {
        Self(Some(pass))
    }

    /// Does something that may take its time before the write goes out. A newer token ends it, and the write is not
    /// started after the seal (I3). Dropping the future leaves nothing begun.
    pub(super) async fn during<T>(
        self,
        work: impl Future<Output = Result<T, Why>>,
    ) -> Result<(Pass, T), Why> {
        let cut = poll_fn(|cx| match &self.0 {
            Some(pass) => pass.poll_cut(cx),
            None => Poll::Pending,
        });
        let done = tokio::select! {
            biased;
            () = cut => return Err(Why::Superseded { sent: false }),
            done = work => done?,
        };
        match self.into_pass() {
            Some(pass) if pass.is_current() => Ok((pass, done)),
            Some(pass) => {
                pass.finish(Outcome::Unsent);
                Err(Why::Superseded { sent: false })
            }
            None => Err(Why::Busy),
        }
    }

    fn into_pass(mut self) -> Option<Pass> {
        self.0.take()
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        if let Some(pass) = self.0.take() {
            pass.finish(Outcome::Unsent);
        }
    }
}

/// Objects that a request changes beside its own.
pub(super) struct Changing<'a> {
    guards: &'a Guards,
    counted: &'a RouteMetrics,
    found: &'a Match<'a>,
}

impl Changing<'_> {
    fn note(&self) {
        for other in &self.found.others {
            self.guards.changed(self.found.route, other, self.counted);
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.note();
    }
}

impl Journey {
    /// Gives a write the condition of its route's guard. Where the gateway has to ask for the object's state, it
    /// does so first; a read that raises learns it, so that the write after it names what was read.
    ///
    /// # Errors
    /// Why it does not go out. Nothing of it has then.
    pub(super) async fn guard<'a>(
        &'a self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        permit: Permit,
        request: &mut Outgoing,
    ) -> Result<Ready<'a>, Refusal> {
        if found.object.is_none() {
            return Ok((permit, None, None));
        }
        let told = |why| claims.refusal(why);
        match permit {
            Permit::Write(_) if found.effect == Effect::Beside => Ok((permit, None, None)),
            Permit::Write(pass) => {
                // Rare: kept out of the others' future.
                let prepared = Box::pin(self.prepared(found, claims, pass, request)).await;
                let (pass, guarded, place) = prepared.map_err(told)?;
                Ok((Permit::Write(pass), guarded, place))
            }
            Permit::Exempt(_)
                if found.class == Class::Read && found.keys.is_some() && claims.own.is_some() =>
            {
                Box::pin(self.looked_at(found, claims, request))
                    .await
                    .map_err(told)?;
                Ok((permit, None, None))
            }
            Permit::Exempt(_) => Ok((permit, None, None)),
        }
    }

    /// Notes that the objects which the request changes beside its own are others from here on, and again when that
    /// is dropped, whatever became of the request.
    pub(super) fn changing<'a>(&'a self, found: &'a Match<'a>) -> Changing<'a> {
        let changing = Changing {
            guards: &self.shared.guards,
            counted: &self.shared.counted[found.route.index],
            found,
        };
        changing.note();
        changing
    }

    async fn prepared<'a>(
        &'a self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        pass: Pass,
        request: &mut Outgoing,
    ) -> Result<(Pass, Option<Guarded>, Option<Place<'a>>), Why> {
        let wait = clock::now().after(found.route.drain_timeout);
        let work = async {
            tokio::select! {
                biased;
                taken = self.turn_taken(found, claims, request) => taken,
                () = clock::sleep_until(wait) => Err(Why::Busy),
            }
        };
        let (pass, (turn, kept, place)) = Unbegun::of(pass).during(work).await?;
        Ok((pass, turn.map(|turn| Guarded { turn, kept }), place))
    }

    async fn turn_taken<'a>(
        &'a self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        request: &mut Outgoing,
    ) -> Result<(Option<Turn>, Option<Kept>, Option<Place<'a>>), Why> {
        let most = found.route.guard_retry.unwrap_or(0);
        let small = request.length().is_some_and(|length| length <= most as u64);
        let gathered = if most > 0 && small && found.method == Method::PUT {
            match self.upstreams.gather(request, most).await {
                // Where there is no room it goes without.
                Err(Ungathered::Busy) => None,
                gathered => Some(gathered?),
            }
        } else {
            None
        };
        let (kept, place) = gathered
            .map(|(body, place)| {
                let head = request.head.clone();
                (Kept { head, body }, place)
            })
            .unzip();
        let mut turn = self.turn(found, claims, request).await?;
        if let Some(turn) = &mut turn {
            if turn.must_learn() {
                self.learn(found, turn).await?;
            }
            turn.condition(&mut request.head.headers)?;
        }
        Ok((turn, kept, place))
    }

    async fn turn(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        request: &Outgoing,
    ) -> Result<Option<Turn>, Why> {
        let setting = self.setting(found, claims, request);
        let turn = self.shared.guards.turn(setting).await;
        turn.map_err(|_| Why::Busy)
    }

    fn setting<'a>(
        &'a self,
        found: &'a Match<'_>,
        claims: &Claims<'_>,
        request: &'a Outgoing,
    ) -> Setting<'a> {
        let decoded = request.head.headers.get(DECODED_LENGTH);
        let decoded = decoded.map(HeaderValue::to_str).and_then(Result::ok);
        Setting {
            found,
            head: &request.head,
            token: claims.own.unwrap_or(Token::NONE),
            length: decoded.map_or_else(|| request.length(), |text| text.parse().ok()),
            counted: &self.shared.counted[found.route.index],
            honours: &self.shared.honours[found.route.upstream.index],
        }
    }

    async fn looked_at(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        request: &Outgoing,
    ) -> Result<(), Why> {
        let setting = self.setting(found, claims, request);
        // Where a write of the same holder has its turn, that one learns it.
        match self.shared.guards.turn_at_once(setting) {
            Some(mut turn) if turn.knows_nothing() => self.learn(found, &mut turn).await,
            _ => Ok(()),
        }
    }

    async fn learn(&self, found: &Match<'_>, turn: &mut Turn) -> Result<(), Why> {
        let question = turn.question().await?;
        let asked = self
            .upstreams
            .ask(found.route.upstream.index, question, Bytes::new(), ANSWER);
        let answer = asked.await.map_err(|_| Unlearnt::Silent)?;
        Ok(turn.learn(answer.status(), answer.headers())?)
    }
}
