//! The straight line: a request from its head to its response, one stage after the other.
//!
//! Knows the stages and their order; what each does, it does not know.

mod claims;
mod client;
mod consent;
mod guarded;
mod named;
mod note;
mod permit;
mod reply;
mod signed;
mod tally;
mod witness;
mod worker;

pub use client::Client;
pub use reply::Reply;
pub use worker::Worker;

use crate::admit::{Gates, Policy};
use crate::config::{Kind, Route, Settings, SettledAt, TokenPlace};
use crate::event::Events;
use crate::forward::headers::{self, Peer};
use crate::forward::{Download, Guarded, Outgoing, Upstreams};
use crate::guard::{Guards, Honours};
use crate::record::{
    BadRequest, Decision, FENCING_STATUS, Metrics, Reach, Recorders, RouteMetrics,
};
use crate::refusal::{Dialect, Refusal, Why};
use crate::route::{DESTINATION_TOKEN, Match, Reject, Routes};
use crate::sign::Signing;
use crate::tls::client::Tls;
use claims::Claims;
use http::header::{CONNECTION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use permit::Permit;
use signed::Who;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tally::Tally;
use witness::Witness;

/// Each route's policy, as one serving thread has them.
type Policies = Rc<[Arc<Policy>]>;

const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// What all serving threads share, under one configuration.
pub struct Shared {
    /// The routes.
    pub routes: Routes,
    /// Where each route's requests are counted, in the order of the configuration.
    pub counted: Vec<Arc<RouteMetrics>>,
    /// The gates.
    pub gates: Arc<Gates>,
    /// What is believed of the objects of routes that have a guard.
    pub guards: Arc<Guards>,
    /// For each upstream, what is known of the conditions that it honours.
    pub honours: Vec<Arc<Honours>>,
    /// For each upstream, how it is signed for where the gateway does that.
    pub signing: Vec<Option<Arc<Signing>>>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Who is told of each request.
    pub recorders: Recorders,
    /// Where that goes which somebody on call should hear of.
    pub events: Arc<Events>,
    /// For each upstream, how it is spoken to where that is over TLS.
    pub upstream_tls: Vec<Option<Arc<Tls>>>,
    /// For each upstream, whether it can be reached.
    pub reach: Vec<Arc<Reach>>,
    /// The configuration.
    pub settings: Settings,
}

/// One configuration: what its requests share, and what each route asks of them.
#[derive(Clone)]
pub struct Plan {
    /// What they share.
    pub shared: Arc<Shared>,
    /// Each route's policy, in the order of the configuration. Apart from the rest: as long as somebody has
    /// them, what comes after this configuration may have to wait ([`Handover`](crate::admit::Handover)).
    pub policies: Arc<[Arc<Policy>]>,
}

/// The way of requests under one configuration, on one serving thread.
struct Journey {
    shared: Arc<Shared>,
    upstreams: Upstreams,
    /// For each route, the headers that must not come as a trailer.
    token_headers: Vec<Rc<[HeaderName]>>,
    /// For each upstream, its own Host.
    hosts: Vec<Option<HeaderValue>>,
    /// What the body of a refusal is where no route is known: if there are object stores only, an error as they have
    /// it.
    dialect: Dialect,
    /// For each route, whether nobody answered when it was last asked who may raise: said once.
    unanswered: Vec<Cell<bool>>,
}

impl Journey {
    fn new(shared: Arc<Shared>) -> Self {
        let settings = &shared.settings;
        let seconds = settings.upstreams.iter();
        let seconds: Vec<_> = seconds
            .map(|upstream| shared.metrics.upstream_seconds(&upstream.name))
            .collect();
        let upstreams = Upstreams::new(
            &settings.upstreams,
            &shared.upstream_tls,
            settings.server.workers,
            &seconds,
            &shared.reach,
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
        let unanswered = settings.routes.iter().map(|_| Cell::default()).collect();
        let mut kinds = settings.routes.iter().map(|route| route.upstream.kind);
        let dialect = if kinds.all(|kind| kind == Kind::S3) {
            Dialect::S3
        } else {
            Dialect::Problem
        };
        Self {
            shared,
            upstreams,
            token_headers,
            hosts,
            dialect,
            unanswered,
        }
    }

    /// Takes a request up at once, so that the future is not moved about with its head in it. It holds the
    /// policies until it is admitted: from there on a write's pass has its own, and a read needs none.
    fn serve(
        self: Rc<Self>,
        policies: Policies,
        client: &Rc<Client>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Reply>> + use<> {
        let under_way = client.begin();
        let recorders = &self.shared.recorders;
        let entry = recorders
            .any()
            .then(|| note::begin(recorders, client, &request));
        // The HTTP library takes the body of an answer to HEAD off in HTTP/1.1 alone.
        let bodiless = *request.method() == Method::HEAD && request.version() == Version::HTTP_2;
        let witness = Witness::of(request.headers());
        let request = self.upstreams.outgoing(request);
        let client = Rc::clone(client);
        async move {
            let mut tally = Tally::new(&self.shared.metrics.unrouted, self.dialect, entry);
            let rest = request.rest();
            let mut response = match self.travel(&client, request, policies, &mut tally).await {
                Ok(response) => response.map(Either::Left),
                Err(refusal) => {
                    tally.decision = refusal.why.decision();
                    tally.seen.ends(&refusal.why);
                    let base = &self.shared.settings.server.problem_base;
                    let response = refusal.response(base, tally.dialect);
                    let kept = |body| if bodiless { Full::default() } else { body };
                    response.map(|body| Either::Right(kept(body)))
                }
            };
            if let Some(sighting) = witness.tells(&client, &mut tally) {
                self.shared.events.saw(sighting);
            }
            // With a success the upstream may read on while it answers.
            if !response.status().is_success() && rest.ends_connection() {
                let headers = response.headers_mut();
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            let entry = tally.end(response.status());
            response.map(|body| Reply::new(body, under_way, entry))
        }
    }

    async fn travel<'a>(
        &'a self,
        client: &Client,
        mut request: Box<Outgoing>,
        policies: Policies,
        tally: &mut Tally<'a>,
    ) -> Result<Response<Download>, Refusal> {
        let head = &mut request.head;
        // In HTTP/1.1 the HTTP library has counted them.
        if head.headers.len() > self.shared.settings.server.max_headers {
            self.shared.metrics.bad_request(BadRequest::TooLarge);
            return Err(Why::TooManyHeaders.into());
        }
        let found = self.shared.routes.classify(head);
        let mut found = found.map_err(|reject| self.rejected(reject, tally))?; // 1 which rule, which resources
        tally.is_on(found.route, &self.shared.counted[found.route.index]);
        let proven = self.identify(found.route, &mut request, tally)?; // who asks, where the gateway signs
        let mut place = None; // among the bodies that are held
        if found.lists_objects {
            // Rare: kept out of this future.
            let named = Box::pin(self.named(&mut found, &mut request)).await?;
            place = Some(named.map_err(|reject| self.rejected(reject, tally))?);
            tally.is_on(found.route, &self.shared.counted[found.route.index]);
        }
        let head = &mut request.head;
        tally.seen.on(&found);
        note::routed(tally, &found);
        let claims = Claims::of_request(&found, head)?; // 2 the tokens it shows
        tally.seen.token = claims.own;
        let who = Who::of(client, proven.as_ref());
        let claims = self.consent(&found, claims, who, head, &policies).await?; // 3 who is asked agrees
        self.prepare(&found, head, &client.peer)?; // 4 the head that goes upstream
        note::traced(tally, &mut head.headers);
        request.upgrade = found.upgrade;
        if !request.limit_body(found.route.max_body) {
            return Err(claims.refusal(Why::TooLarge { sent: false }));
        }
        note::claimed(tally, &claims);
        let permit = self
            .admit(&found, &claims, client, &policies, tally)
            .await?; // 5 sealed, durable, drained
        drop(policies);
        let permit = self.sign(&found, &claims, permit, &mut request).await?;
        let ready = self.guard(&found, &claims, permit, &mut request).await?; // 6 a condition for the resource itself
        let (permit, guarded, kept_in) = ready;
        let others = self.changing(&found);
        let mut response = self
            .send(&found, permit, guarded, request, &claims, tally)
            .await?; // 7 the only way out
        drop((place, kept_in, others));
        let tunnel = response.body_mut().take_tunnel();
        let came_as = std::mem::replace(response.version_mut(), Version::HTTP_11);
        headers::inbound(response.headers_mut(), came_as);
        if let Some(tunnel) = tunnel {
            headers::upgrade(response.headers_mut());
            client.switches(tunnel);
        }
        if let Some(status) = tally.status(&found) {
            response.headers_mut().append(FENCING_STATUS, status); // the upstream's own is off by now
        }
        Ok(response)
    }

    fn rejected<'a>(&'a self, reject: Reject<'_>, tally: &mut Tally<'a>) -> Refusal {
        let (why, route) = match reject {
            Reject::Unrouted => (Why::Unrouted, None),
            Reject::MethodNotAllowed => (Why::Method, None),
            Reject::Malformed { why, route } => (Why::Malformed(why.to_owned()), route),
            Reject::Forbidden { why, route } => (Why::Forbidden(why.into_owned()), Some(route)),
        };
        if let Some(route) = route {
            tally.is_on(route, &self.shared.counted[route.index]);
        }
        why.into()
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
        if found.upgrade {
            headers::upgrade(&mut head.headers);
        }
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
            let text = format!("{}://{host}{}", upstream.scheme(), end.target);
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
        guarded: Option<Guarded>,
        request: Box<Outgoing>,
        claims: &Claims<'_>,
        tally: &mut Tally<'_>,
    ) -> Result<Response<Download>, Refusal> {
        let route = found.route;
        let trailers = &self.token_headers[route.index];
        let upstream = route.upstream.index;
        let forwarded = std::mem::replace(&mut tally.decision, Decision::OutcomeUnknown);
        note::judged(tally, found);
        let at = if found.answered_at_end {
            SettledAt::ResponseEnd
        } else {
            route.settled_at
        };
        let response = match permit {
            Permit::Exempt(exempt) => {
                let exempt = self
                    .upstreams
                    .exempt(upstream, exempt, request, trailers, at);
                Box::pin(exempt).await // as large as all the rest: kept out of a write's future
            }
            Permit::Write(pass) => {
                self.upstreams
                    .write(upstream, pass, guarded, request, trailers, at)
                    .await
            }
        };
        tally.decision = forwarded;
        if let (Some(signing), Ok(response)) = (&self.shared.signing[upstream], &response) {
            signing.signer.heard(response.status());
        }
        let unsettled = &route.upstream.unsettled_status;
        if matches!(&response, Ok(response) if unsettled.contains(&response.status())) {
            tally.seen.is_unknown();
        }
        note::answered(tally, &response, unsettled);
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

fn token_headers(route: &Route) -> Rc<[HeaderName]> {
    let own = match &route.token {
        TokenPlace::Header(names) => names.as_slice(),
        TokenPlace::Query(_) | TokenPlace::PathPrefix => &[],
    };
    own.iter().cloned().chain([DESTINATION_TOKEN]).collect()
}
