//! The straight line: a request from its head to its response, one stage after the other.
//!
//! Knows the stages and their order; what each does, it does not know.

mod claims;
mod tally;

use crate::admit::{Denied, Exempt, Gates, Outcome, Pass, Policy, Reach, Want};
use crate::clock;
use crate::config::{Missing, Mode, Route, Settings, SettledAt, TokenPlace};
use crate::fence::{Kind, ResourceKey, Token};
use crate::forward::headers::{self, Peer};
use crate::forward::{Download, Upstreams};
use crate::record::{Decision, FENCING_STATUS, Metrics};
use crate::refusal::{Refusal, Why};
use crate::route::{Class, DESTINATION_TOKEN, Key, Keys, Match, Reject, Routes, Tree};
use crate::socket::Socket;
use bytes::Bytes;
use claims::Claims;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use tally::Tally;

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

/// A client connection.
pub struct Client {
    /// What is said of it upstream.
    pub peer: Peer,
    /// The connection itself.
    pub socket: Socket,
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

    /// Drives the writes whose clients have left. To be run in the thread's `LocalSet`.
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
        let mut tally = Tally::new(&self.shared.metrics.unrouted);
        match self.travel(&client, request, &mut tally).await {
            Ok(response) => response,
            Err(refusal) => {
                tally.decision = refusal.why.decision();
                refusal
                    .response(&self.shared.settings.server.problem_base)
                    .map(Either::Right)
            }
        }
    }

    async fn travel(
        &self,
        client: &Client,
        request: Request<Incoming>,
        tally: &mut Tally,
    ) -> Result<Response<Reply>, Refusal> {
        let (mut head, body) = request.into_parts();
        let found = self.shared.routes.classify(&head);
        let found = found.map_err(|reject| self.rejected(reject, tally))?; // 1 which rule, which resources
        tally.metrics = Arc::clone(&self.policy(&found.route).metrics);
        let claims = Claims::of_request(&found, &head)?; // 2 the tokens it shows
        self.prepare(&found, &mut head, &client.peer)?; // 3 the head that goes upstream
        let permit = self.admit(&found, &claims, client, tally).await?; // 4 sealed, durable, drained
        let request = Request::from_parts(head, body);
        let mut response = self.send(&found, permit, request, &claims, tally).await?; // 5 the only way out
        *response.version_mut() = Version::HTTP_11;
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

    /// Brings the request through its gates, where it has any.
    async fn admit(
        &self,
        found: &Match,
        claims: &Claims,
        client: &Client,
        tally: &mut Tally,
    ) -> Result<Permit, Refusal> {
        if let Some(exempt) = Exempt::of(found, claims.own) {
            tally.decision = Decision::Passed;
            return Ok(Permit::Exempt(exempt));
        }
        let observing = found.route.mode == Mode::Observe;
        let mut bad = claims.bad.clone();
        let (mut wants, mut reaches) = (SmallVec::<[Want; 1]>::new(), Vec::new());
        for key in found.keys.iter().flat_map(Keys::iter) {
            let route = found.route_of(key.end);
            let token = claims.of(key.end);
            match self.judge(route, key, token).await {
                Ok(reach) => reaches.extend(reach),
                Err(why) if observing => bad = bad.or(Some(why)),
                Err(why) => return Err(claims.refusal(why)),
            }
            let key = ResourceKey::from_bytes(&key.bytes)
                .ok_or_else(|| claims.refusal(Why::Malformed("the resource has no key".into())))?;
            let policy = Arc::clone(self.policy(route));
            wants.push(Want {
                key,
                token: token.unwrap_or(Token::NONE),
                policy,
            });
        }
        if reaches
            .iter()
            .any(|reach| wants.iter().any(|want| reach.covers(&want.key)))
        {
            let why = "one end of the request lies below the other";
            return Err(claims.refusal(Why::Forbidden(why.into())));
        }
        let kind = if found.class == Class::Read {
            Kind::Read
        } else {
            Kind::Write
        };
        let policy = self.policy(&found.route);
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

    /// What is said without a gate: a token must be there, and nothing fenced below the key. Gives the
    /// claim on what lies below, where the request reaches there.
    async fn judge(
        &self,
        route: &Route,
        key: &Key,
        token: Option<Token>,
    ) -> Result<Option<Reach>, Why> {
        const BELOW: &str = "the request reaches below its own resource, where others are fenced";
        const FOLDER: &str =
            "the request changes a whole folder, whose resources have fences of their own";
        if token.is_none() && route.missing == Missing::Reject {
            return Err(Why::Missing);
        }
        match key.tree {
            Tree::No => Ok(None),
            Tree::Refuse => Err(Why::Forbidden(FOLDER.into())),
            Tree::Ask => {
                let prefix = [&key.bytes[..], b"/"].concat();
                // Rare and large: kept out of the caller's future.
                let reach = Box::pin(self.shared.gates.reach(prefix)).await;
                let reach = reach.map_err(|denied| Why::from(&denied))?;
                reach.map(Some).ok_or_else(|| Why::Forbidden(BELOW.into()))
            }
        }
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
        head.version = Version::HTTP_11;
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

fn token_headers(route: &Route) -> Rc<[HeaderName]> {
    let own = match &route.token {
        TokenPlace::Header(names) => names.as_slice(),
        TokenPlace::Query(_) | TokenPlace::PathPrefix => &[],
    };
    own.iter().cloned().chain([DESTINATION_TOKEN]).collect()
}
