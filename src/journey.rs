//! The straight line: a request from its head to its response, one stage after the other.
//!
//! Knows the stages and their order; what each does, it does not know.

mod claims;
mod client;
mod reply;
mod tally;

pub use client::Client;
pub use reply::Reply;

use crate::admit::{Denied, Exempt, Gates, Outcome, Pass, Policy, Reach, Want};
use crate::config::{Missing, Mode, Route, Settings, SettledAt, TokenPlace};
use crate::fence::{Kind, ResourceKey, Token};
use crate::forward::headers::{self, Peer};
use crate::forward::{Download, Outgoing, Upstreams};
use crate::record::{Decision, FENCING_STATUS, Metrics};
use crate::refusal::{Refusal, Why};
use crate::route::{Class, DESTINATION_TOKEN, Key, Keys, Match, Reject, Routes, Tree};
use claims::Claims;
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use tally::Tally;

const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// What all serving threads share.
pub struct Shared {
    /// The routes.
    pub routes: Routes,
    /// Each route's policy, in the order of the configuration.
    pub policies: Vec<Arc<Policy>>,
    /// The gates.
    pub gates: Arc<Gates>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The configuration.
    pub settings: Settings,
}

/// One serving thread.
pub struct Worker {
    shared: Arc<Shared>,
    upstreams: Upstreams,
    /// For each route, the headers that must not come as a trailer.
    token_headers: Vec<Rc<[HeaderName]>>,
    /// For each upstream, its own Host.
    hosts: Vec<Option<HeaderValue>>,
}

impl Worker {
    /// A serving thread over what all of them share.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        let settings = &shared.settings;
        let upstreams = Upstreams::new(
            &settings.upstreams,
            settings.server.workers,
            &shared.metrics.upstream_seconds,
        );
        let token_headers = settings
            .routes
            .iter()
            .map(|route| token_headers(route))
            .collect();
        let host =
            |authority: &http::uri::Authority| HeaderValue::from_str(authority.as_str()).ok();
        let hosts = settings
            .upstreams
            .iter()
            .map(|u| host(&u.authority))
            .collect();
        Self {
            shared,
            upstreams,
            token_headers,
            hosts,
        }
    }

    /// What is done between requests, some ten times a second.
    pub fn sweep(&self) {
        self.upstreams.sweep();
    }

    /// Drives the writes whose clients have left. To be run on the serving thread.
    pub async fn adopt(&self) {
        self.upstreams.adopt().await;
    }

    /// Serves one request. Dropping the future means that its client has left: a request that waits
    /// is not forwarded, a write that was forwarded runs on.
    pub async fn serve(
        self: Rc<Self>,
        client: Rc<Client>,
        request: Request<Incoming>,
    ) -> Response<Reply> {
        let under_way = client.begin();
        let mut tally = Tally::new(&self.shared.metrics.unrouted);
        // The HTTP library takes the body of an answer to HEAD off in HTTP/1.1 alone.
        let bodiless = *request.method() == Method::HEAD && request.version() == Version::HTTP_2;
        let request = self.upstreams.outgoing(request);
        let rest = request.rest();
        let mut response = match self.travel(&client, request, &mut tally).await {
            Ok(response) => response.map(|body| Reply::new(Either::Left(body), under_way)),
            Err(refusal) => {
                tally.decision = refusal.why.decision();
                refusal
                    .response(&self.shared.settings.server.problem_base)
                    .map(|body| if bodiless { Full::default() } else { body })
                    .map(|body| Reply::new(Either::Right(body), under_way))
            }
        };
        // With a success the upstream may read on while it answers.
        if !response.status().is_success() && rest.ends_connection() {
            let headers = response.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn travel<'a>(
        &'a self,
        client: &Client,
        mut request: Box<Outgoing>,
        tally: &mut Tally<'a>,
    ) -> Result<Response<Download>, Refusal> {
        let head = &mut request.head;
        let found = self.shared.routes.classify(head);
        let found = found.map_err(|reject| self.rejected(reject, tally))?; // 1 which rule, which resources
        tally.metrics = &self.policy(found.route).metrics;
        let claims = Claims::of_request(&found, head)?; // 2 the tokens it shows
        self.prepare(&found, head, &client.peer)?; // 3 the head that goes upstream
        if !request.limit_body(found.route.max_body) {
            return Err(claims.refusal(Why::TooLarge { sent: false }));
        }
        let permit = self.admit(&found, &claims, client, tally).await?; // 4 sealed, durable, drained
        let mut response = self.send(&found, permit, request, &claims, tally).await?; // 5 the only way out
        *response.version_mut() = Version::HTTP_11;
        headers::inbound(response.headers_mut());
        if let Some(status) = tally.status(&found) {
            response.headers_mut().append(FENCING_STATUS, status); // the upstream's own is off by now
        }
        Ok(response)
    }

    fn policy(&self, route: &Route) -> &Arc<Policy> {
        &self.shared.policies[route.index]
    }

    fn rejected<'a>(&'a self, reject: Reject<'_>, tally: &mut Tally<'a>) -> Refusal {
        let (why, route) = match reject {
            Reject::Unrouted => (Why::Unrouted, None),
            Reject::MethodNotAllowed => (Why::Method, None),
            Reject::Malformed { why, route } => (Why::Malformed(why.to_owned()), route),
            Reject::Forbidden { why, route } => (Why::Forbidden(why.to_owned()), Some(route)),
        };
        if let Some(route) = route {
            tally.metrics = &self.policy(route).metrics;
        }
        why.into()
    }

    /// Brings the request through its gates, where it has any.
    async fn admit(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        client: &Client,
        tally: &mut Tally<'_>,
    ) -> Result<Permit, Refusal> {
        if let Some(exempt) = Exempt::of(found, claims.own) {
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
                policy: self.policy(route),
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
        let policy = self.policy(found.route);
        let admitted = self.shared.gates.admit(&wants, kind, policy, reaches).await;
        let pass = admitted.map_err(|denied| self.denied(claims, denied))?;
        if pass.waited() && client.socket.has_left() {
            pass.finish(Outcome::Unsent);
            return Err(Why::Body { sent: false }.into()); // nobody reads it
        }
        tally.observed = observing;
        tally.decision = match bad.or(pass.observed().map(Why::from)) {
            Some(why) => why.decision(),
            None if kind == Kind::Read => Decision::Passed,
            None if pass.raised() => Decision::Raised,
            None => Decision::Admitted,
        };
        Ok(match pass.into_exempt() {
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

    fn denied(&self, claims: &Claims<'_>, denied: Denied) -> Refusal {
        if let Some(age) = denied.age {
            self.policy(claims.route)
                .metrics
                .zombie_age
                .observe(age.as_secs_f64());
        }
        let mut refusal = claims.refusal(Why::from(&denied));
        refusal.fence = claims.disclosed(denied.fence);
        refusal
    }

    fn prepare(&self, found: &Match<'_>, head: &mut Parts, peer: &Peer) -> Result<(), Refusal> {
        let upstream = &found.route.upstream;
        let came_as = std::mem::replace(&mut head.version, Version::HTTP_11);
        if came_as != Version::HTTP_11 {
            headers::join_cookies(&mut head.headers);
            name_host(head, self.hosts[upstream.index].as_ref());
        }
        head.uri = Uri::from(found.target.clone());
        headers::outbound(&mut head.headers, found.marks, peer, came_as);
        let own_host = self.hosts[upstream.index].as_ref();
        match own_host {
            Some(host) if upstream.rewrite_host => {
                headers::rewrite_host(&mut head.headers, host.clone());
            }
            _ => {}
        }
        let Some(end) = &found.destination else {
            return Ok(());
        };
        let as_it_came = !upstream.rewrite_host
            && end.route.strip_prefix.is_none()
            && end.route.token != TokenPlace::PathPrefix;
        if !as_it_came {
            let host = head
                .headers
                .get(HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default();
            let text = format!("http://{host}{}", end.target);
            let value = HeaderValue::from_str(&text)
                .map_err(|_| Why::Malformed("the Destination is malformed".into()))?;
            head.headers.insert(DESTINATION, value);
        }
        Ok(())
    }

    async fn send(
        &self,
        found: &Match<'_>,
        permit: Permit,
        request: Box<Outgoing>,
        claims: &Claims<'_>,
        tally: &mut Tally<'_>,
    ) -> Result<Response<Download>, Refusal> {
        let route = found.route;
        let trailers = &self.token_headers[route.index];
        let upstream = route.upstream.index;
        let forwarded = std::mem::replace(&mut tally.decision, Decision::OutcomeUnknown);
        let response = match permit {
            Permit::Exempt(exempt) => {
                self.upstreams
                    .exempt(upstream, exempt, request, trailers)
                    .await
            }
            Permit::Write(pass) => {
                let at: SettledAt = route.settled_at;
                self.upstreams
                    .write(upstream, pass, request, trailers, at)
                    .await
            }
        };
        tally.decision = forwarded;
        response.map_err(|failed| {
            tracing::debug!(route = %route.name, error = %failed.why, sent = failed.sent, "forwarding failed");
            claims.refusal(Why::from(&failed))
        })
    }
}

/// Gives a request a Host, which HTTP/1.1 must have: what its target names, as in HTTP/2, else the
/// upstream's own.
fn name_host(head: &mut Parts, own: Option<&HeaderValue>) {
    if head.headers.contains_key(HOST) {
        return;
    }
    let named = head.uri.authority();
    let named = named.and_then(|named| HeaderValue::from_str(named.as_str()).ok());
    if let Some(host) = named.or_else(|| own.cloned()) {
        head.headers.insert(HOST, host);
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

/// What entitles a request to be forwarded.
enum Permit {
    Exempt(Exempt),
    Write(Pass),
}

fn token_headers(route: &Route) -> Rc<[HeaderName]> {
    let own = match &route.token {
        TokenPlace::Header(names) => names.as_slice(),
        TokenPlace::Query(_) | TokenPlace::PathPrefix => &[],
    };
    own.iter().cloned().chain([DESTINATION_TOKEN]).collect()
}
