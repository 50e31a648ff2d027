//! What entitles a request to be forwarded: nothing stands against it, and its gates let it through.

use super::claims::Claims;
use super::tally::Tally;
use super::{Client, Journey};
use crate::admit::{Denied, Exempt, Outcome, Pass, Policy, Reach, Want};
use crate::config::{Missing, Mode, Route};
use crate::fence::{Kind, ResourceKey, Token};
use crate::record::Decision;
use crate::refusal::{Refusal, Why};
use crate::route::{Class, Key, Keys, Match, Tree};
use smallvec::SmallVec;
use std::sync::Arc;

/// What entitles a request to be forwarded.
pub(super) enum Permit {
    /// It needs no pass.
    Exempt(Exempt),
    /// A write's pass.
    Write(Pass),
}

impl Journey {
    /// Brings the request through its gates, where it has any.
    pub(super) async fn admit(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        client: &Client,
        policies: &[Arc<Policy>],
        tally: &mut Tally<'_>,
    ) -> Result<Permit, Refusal> {
        let (gates, policy) = (&self.shared.gates, &policies[found.route.index]);
        if let Some(exempt) = Exempt::of(found, claims.own, gates, policies) {
            tally.decision = Decision::Passed;
            return Ok(Permit::Exempt(exempt));
        }
        let observing = found.route.mode == Mode::Observe;
        let mut bad = claims.bad.clone();
        let (mut wants, mut reaches) = (SmallVec::<[Want<'_>; 1]>::new(), Vec::new());
        for key in found.keys.iter().flat_map(Keys::iter) {
            let route = found.route_of(key.end);
            let token = claims.of(key.end);
            let claimed = match judge(route, key, token) {
                Ok(false) => Ok(None),
                // Rare and large: kept out of this future.
                Ok(true) => Box::pin(self.claim_below(&key.resource)).await.map(Some),
                Err(why) => Err(why),
            };
            match claimed {
                Ok(reach) => reaches.extend(reach),
                Err(why) if observing => bad = bad.or(Some(why)),
                Err(why) => return Err(claims.refusal(why)),
            }
            wants.push(Want {
                key: &key.resource,
                token: token.unwrap_or(Token::NONE),
                policy: &policies[route.index],
            });
        }
        if reaches
            .iter()
            .any(|reach| wants.iter().any(|want| reach.covers(want.key)))
        {
            let why = "one end of the request lies below the other";
            return Err(claims.refusal(Why::Forbidden(why.into())));
        }
        let kind = if found.class == Class::Read {
            Kind::Read
        } else {
            Kind::Write
        };
        let admitted = gates.admit(&wants, kind, policy, reaches).await;
        let pass = admitted.map_err(|denied| self.denied(claims, &denied, tally))?;
        if pass.waited() && client.socket.has_left() {
            pass.finish(Outcome::Unsent);
            return Err(Why::Body { sent: false }.into()); // nobody reads it
        }
        tally.observed = observing;
        tally.decision = match bad.or(pass.observed().map(Why::from)) {
            Some(why) => {
                tally.seen.ends(&why);
                why.decision()
            }
            None if kind == Kind::Read => Decision::Passed,
            None if pass.raised() => Decision::Raised,
            None => Decision::Admitted,
        };
        Ok(match pass.into_exempt(found, policies) {
            Ok(exempt) => Permit::Exempt(exempt),
            Err(pass) => Permit::Write(pass),
        })
    }

    /// The claim on what lies below a resource, for a request that reaches there: nothing of it may be
    /// fenced.
    async fn claim_below(&self, resource: &ResourceKey) -> Result<Reach, Why> {
        const BELOW: &str = "the request reaches below its own resource, where others are fenced";
        let prefix = [resource.as_bytes(), b"/"].concat();
        let reach = self.shared.gates.reach(prefix).await;
        let reach = reach.map_err(|denied| Why::from(&denied))?;
        reach.ok_or_else(|| Why::Forbidden(BELOW.into()))
    }

    fn denied(&self, claims: &Claims<'_>, denied: &Denied, tally: &mut Tally<'_>) -> Refusal {
        tally.seen.stood(denied);
        if let Some(age) = denied.age {
            let counted = &self.shared.counted[claims.route.index];
            counted.zombie_age.observe(age.as_secs_f64());
        }
        let mut refusal = claims.refusal(Why::from(denied));
        refusal.fence = claims.disclosed(denied.fence);
        refusal
    }
}

/// What is said without a gate: a token must be there, and what lies below is not to be changed unseen.
/// Whether the request needs the claim on that.
fn judge(route: &Route, key: &Key, token: Option<Token>) -> Result<bool, Why> {
    const FOLDER: &str =
        "the request changes a whole folder, whose resources have fences of their own";
    if token.is_none() && route.missing == Missing::Reject {
        return Err(Why::Missing);
    }
    match key.tree {
        Tree::No => Ok(false),
        Tree::Ask => Ok(true),
        Tree::Refuse => Err(Why::Forbidden(FOLDER.into())),
    }
}
