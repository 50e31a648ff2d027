//! The straight line: a request from its head to its response, one stage after the other.
//!
//! Knows the stages and their order; what each does, it does not know.

use crate::admit::{Denied, Exempt, Gates, Pass, Policy};
use crate::clock;
use crate::config::{Missing, Mode, Route, Settings, SettledAt, TokenPlace};
use crate::extract;
use crate::fence::{Kind, ResourceKey, Token};
use crate::forward::headers::{self, Peer};
use crate::forward::{self, Download, Upstreams};
use crate::record::{Decision, Metrics, RouteMetrics};
use crate::refusal::{FENCING_STATUS, Refusal, Why};
use crate::route::{
    Class, DESTINATION_TOKEN, End, Key, Match, PATH_OVERRIDES, Reject, Routes, Tree,
};
use bytes::Bytes;
use http::header::{EXPECT, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::rc::Rc;
use std::sync::Arc;

/// The body of a response: the upstream's, or the gateway's own.
pub type Reply = Either<Download, Full<Bytes>>;

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
        let upstreams = Upstreams::new(&settings.upstreams, settings.server.workers);
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
            upstreams,
            token_headers,
            hosts,
            shared,
        }
    }

    /// What is done between requests, every second or so.
    pub fn sweep(&self) {
        self.upstreams.sweep();
    }

    /// Serves one request. Dropping the future means that its client has left: a request that waits
    /// is not forwarded, a write that was forwarded runs on.
    pub async fn serve(
        self: Rc<Self>,
        peer: Rc<Peer>,
        request: Request<Incoming>,
    ) -> Response<Reply> {
        let mut tally = Tally::new(&self.shared.metrics.unrouted);
        let (head, body) = request.into_parts();
        // A client that waits to be asked for its body reads first.
        let sends = !head.headers.contains_key(EXPECT);
        let mut body = Some(body);
        match self.travel(&peer, head, &mut body, &mut tally).await {
            Ok(response) => response,
            Err(refusal) => {
                if let Some(body) = body.filter(|_| sends) {
                    forward::linger(body);
                }
                tally.decision = refusal.why.decision();
                refusal
                    .response(&self.shared.settings.server.problem_base)
                    .map(Either::Right)
            }
        }
    }

    async fn travel(
        &self,
        peer: &Peer,
        mut head: Parts,
        body: &mut Option<Incoming>,
        tally: &mut Tally,
    ) -> Result<Response<Reply>, Refusal> {
        let found = self
            .shared
            .routes
            .classify(&head)
            .map_err(|r| self.rejected(r, tally))?; // 1
        tally.metrics = Arc::clone(&self.policy(&found.route).metrics);
        let claims = self.claim(&found, &head)?; // 2 the tokens it shows
        let permit = self.admit(&found, &claims, tally).await?; // 3 sealed, durable, drained
        self.prepare(&found, &mut head, peer)?; // 4 the head that goes upstream
        let Some(body) = body.take() else {
            return Err(Why::Malformed("the body is gone".into()).into());
        };
        let request = Request::from_parts(head, body);
        let mut response = self.send(&found, permit, request, &claims, tally).await?; // 5 the only way out
        headers::inbound(response.headers_mut());
        if let Some(status) = tally.status(&found) {
            response.headers_mut().insert(FENCING_STATUS, status);
        }
        Ok(response.map(Either::Left))
    }

    fn policy(&self, route: &Route) -> &Arc<Policy> {
        &self.shared.policies[route.index]
    }

    fn rejected(&self, reject: Reject, tally: &mut Tally) -> Refusal {
        let (why, route) = match reject {
            Reject::Unrouted => (Why::Unrouted, None),
            Reject::MethodNotAllowed => (Why::Method, None),
            Reject::Malformed { why, route } => (Why::Malformed(why.to_owned()), route),
            Reject::Forbidden { why, route } => (Why::Forbidden(why.to_owned()), Some(route)),
        };
        if let Some(route) = route {
            tally.metrics = Arc::clone(&self.policy(&route).metrics);
        }
        why.into()
    }

    fn claim(&self, found: &Match, head: &Parts) -> Result<Claims, Refusal> {
        let none = Claims {
            route: Arc::clone(&found.route),
            own: None,
            other: None,
            bad: None,
        };
        if found.keys.is_none() {
            return Ok(none);
        }
        let own = extract::claim(&found.route, &head.headers, found.token.as_deref());
        let other = match &found.destination {
            Some(end) if end.own_token => extract::destination_claim(&end.route, &head.headers),
            _ => own,
        };
        match (own, other) {
            (Ok(own), Ok(other)) => Ok(Claims { own, other, ..none }),
            (Err(bad), _) | (_, Err(bad)) => {
                let why = Why::Malformed(bad.to_string());
                if found.route.mode == Mode::Observe {
                    return Ok(Claims {
                        bad: Some(why),
                        ..none
                    });
                }
                Err(why.into())
            }
        }
    }

    /// Brings the request through its gates, where it has any.
    async fn admit(
        &self,
        found: &Match,
        claims: &Claims,
        tally: &mut Tally,
    ) -> Result<Permit, Refusal> {
        let (Some(keys), None) = (&found.keys, Exempt::of(found, claims.own)) else {
            tally.decision = Decision::Passed;
            return Exempt::of(found, claims.own)
                .map(Permit::Exempt)
                .ok_or_else(|| Why::Forbidden("the request has no resource".into()).into());
        };
        let observing = found.route.mode == Mode::Observe;
        let mut bad = claims.bad.clone();
        let mut stops = Vec::with_capacity(2);
        for key in std::iter::once(&keys.first).chain(&keys.second) {
            let token = claims.of(key.end);
            match self.judge(found, key, token).await {
                Err(why) if observing => bad = bad.or(Some(why)),
                Err(why) => return Err(claims.refusal(why)),
                Ok(()) => {}
            }
            let key = ResourceKey::from_bytes(&key.bytes)
                .ok_or_else(|| claims.refusal(Why::Malformed("the resource has no key".into())))?;
            stops.push((key, token.unwrap_or(Token::NONE)));
        }
        let kind = if found.class == Class::Read {
            Kind::Read
        } else {
            Kind::Write
        };
        let admitted = self
            .shared
            .gates
            .admit(&stops, kind, self.policy(&found.route))
            .await;
        let pass = admitted.map_err(|denied| self.denied(claims, denied))?;
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

    /// What can be said without a gate: a token that must be there, and what lies below the key.
    async fn judge(&self, found: &Match, key: &Key, token: Option<Token>) -> Result<(), Why> {
        if token.is_none() && found.route.missing == Missing::Reject {
            return Err(Why::Missing);
        }
        let below = match key.tree {
            Tree::No => false,
            Tree::Refuse => true,
            Tree::Ask => {
                let prefix = [&key.bytes[..], b"/"].concat();
                self.shared
                    .gates
                    .any_under(prefix)
                    .await
                    .map_err(|denied| Why::from(&denied))?
            }
        };
        if below {
            return Err(Why::Forbidden(
                "The request reaches below its own resource, where other resources are fenced; set \
                 collections = \"allow\" on the route if that is right"
                    .into(),
            ));
        }
        Ok(())
    }

    fn denied(&self, claims: &Claims, denied: Denied) -> Refusal {
        if let Some(age) = denied.age {
            self.policy(&claims.route).metrics.zombie_age.record(age);
        }
        let mut refusal = claims.refusal(Why::from(&denied));
        refusal.fence = claims.disclosed(denied.fence);
        refusal
    }

    fn prepare(&self, found: &Match, head: &mut Parts, peer: &Peer) -> Result<(), Refusal> {
        let upstream = &found.route.upstream;
        head.uri = Uri::from(found.target.clone());
        head.version = http::Version::HTTP_11;
        for name in PATH_OVERRIDES {
            head.headers.remove(name);
        }
        headers::outbound(&mut head.headers, peer);
        let own_host = self.hosts[upstream.index].as_ref();
        match own_host {
            Some(host) if upstream.rewrite_host => {
                headers::rewrite_host(&mut head.headers, host.clone());
            }
            Some(host) if !head.headers.contains_key(HOST) => {
                head.headers.insert(HOST, host.clone());
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
        found: &Match,
        permit: Permit,
        request: Request<Incoming>,
        claims: &Claims,
        tally: &mut Tally,
    ) -> Result<Response<Download>, Refusal> {
        let route = &found.route;
        let trailers = &self.token_headers[route.index];
        let upstream = route.upstream.index;
        let began = clock::now();
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
        self.shared.metrics.upstream_seconds[upstream].record(clock::now().since(began));
        response.map_err(|failed| {
            tracing::debug!(route = %route.name, error = %failed.why, sent = failed.sent, "forwarding failed");
            claims.refusal(Why::from(&failed))
        })
    }
}

/// What entitles a request to be forwarded.
enum Permit {
    Exempt(Exempt),
    Write(Pass),
}

/// The tokens that a request shows, and what is needed to spell them.
struct Claims {
    route: Arc<Route>,
    own: Option<Token>,
    /// The `Destination`'s, where it has its own; else the same.
    other: Option<Token>,
    /// Why they cannot be read, where the route only observes.
    bad: Option<Why>,
}

impl Claims {
    const fn of(&self, end: End) -> Option<Token> {
        match end {
            End::Request => self.own,
            End::Destination => self.other,
        }
    }

    fn refusal(&self, why: Why) -> Refusal {
        let token = self.own.map(|token| self.route.format.spell(token));
        Refusal {
            why,
            token,
            fence: None,
        }
    }

    fn disclosed(&self, fence: Token) -> Option<String> {
        (self.route.disclose_fence && !fence.is_none()).then(|| self.route.format.spell(fence))
    }
}

/// Counts a request once, when it is over, under what became of it by then. A client that leaves
/// before its request was forwarded leaves it unsent.
struct Tally {
    metrics: Arc<RouteMetrics>,
    decision: Decision,
    observed: bool,
}

impl Tally {
    fn new(metrics: &Arc<RouteMetrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            decision: Decision::Unsent,
            observed: false,
        }
    }

    /// The `Fencing-Status` of a forwarded request. Reads and routes that are off have none.
    fn status(&self, found: &Match) -> Option<HeaderValue> {
        if found.class == Class::Read || found.route.mode == Mode::Off {
            return None;
        }
        let word = self.decision.word();
        if !self.observed {
            return Some(HeaderValue::from_static(word));
        }
        HeaderValue::from_str(&format!("{word};observed")).ok()
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.metrics.count(self.decision);
    }
}

fn token_headers(route: &Route) -> Rc<[HeaderName]> {
    let own = match &route.token {
        TokenPlace::Header(names) => names.as_slice(),
        TokenPlace::Query(_) | TokenPlace::PathPrefix => &[],
    };
    own.iter().cloned().chain([DESTINATION_TOKEN]).collect()
}
