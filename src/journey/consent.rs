//! Who may write, by name, and who may raise a fence, by what a service says that is asked for each raise.

use super::Journey;
use super::claims::Claims;
use super::signed::Who;
use crate::admit::{Policy, Want};
use crate::config::{AuthRequest, Mode, Route};
use crate::forward::{ANSWER, headers};
use crate::refusal::{Refusal, Why};
use crate::route::class::{overrides_method, overrides_path};
use crate::route::header::twins;
use crate::route::marks::is_hop_by_hop;
use crate::route::{Class, Keys, Match};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::sync::Arc;
use std::time::Duration;

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
const RESOURCE: HeaderName = HeaderName::from_static("x-fencing-resource");
const NAMESPACE: HeaderName = HeaderName::from_static("x-fencing-namespace");
const TOKEN: HeaderName = HeaderName::from_static("x-fencing-token");
const IDENTITY: HeaderName = HeaderName::from_static("x-fencing-identity");

/// What is said of a body that the question does not have, and of whom the request was for.
const OF_THE_BODY: [HeaderName; 5] = [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, EXPECT, HOST];

/// How long a question may take in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long all questions for one request may take: it may name many resources.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(30);

/// What is not put into a header as it is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'"');

impl Journey {
    /// Whether this client may write here, and may raise what it would raise. Comes before the seal: what is
    /// refused leaves no trace. On a route that only observes, the request goes on without its tokens.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) async fn consent<'a>(
        &self,
        found: &Match<'_>,
        claims: Claims<'a>,
        who: Who<'_>,
        head: &Parts,
        policies: &[Arc<Policy>],
    ) -> Result<Claims<'a>, Refusal> {
        let route = found.route;
        if route.allow.is_none() && route.auth_request.is_none() && found.destination.is_none() {
            return Ok(claims);
        }
        // Rare and large: kept out of the caller's future.
        let may = Box::pin(self.may(found, &claims, who, head, policies));
        let may = tokio::time::timeout(PATIENCE_IN_ALL, may).await;
        match may.unwrap_or(Err(Why::NotAsked)) {
            Ok(()) => Ok(claims),
            Err(why) if route.mode == Mode::Observe => Ok(claims.without_tokens(why)),
            Err(why) => Err(claims.refusal(why)),
        }
    }

    async fn may(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        who: Who<'_>,
        head: &Parts,
        policies: &[Arc<Policy>],
    ) -> Result<(), Why> {
        let judged = found.class == Class::Write || claims.own.is_some();
        if judged && !who.may(found.route) {
            return Err(Why::Stranger);
        }
        let other = found.destination.as_ref().map(|end| end.route);
        if judged && other.is_some_and(|route| !who.may(route)) {
            return Err(Why::Stranger);
        }
        for key in found.keys.iter().flat_map(Keys::iter) {
            // Both ends may be one resource: then each end's route has its say on it.
            let alone = found
                .keys
                .as_ref()
                .is_some_and(|keys| keys.second.is_none());
            let own = found.route_of(key.end);
            let also = other.filter(|route| alone && route.index != own.index);
            for route in [Some(own), also].into_iter().flatten() {
                if let (Some(auth), Some(token)) = (&route.auth_request, claims.of(key.end)) {
                    let want = Want {
                        key: &key.resource,
                        token,
                        policy: &policies[route.index],
                    };
                    self.ask(auth, route, &want, who, (found, head)).await?;
                }
            }
        }
        Ok(())
    }

    /// Asks, unless the fence is as high already.
    async fn ask(
        &self,
        auth: &AuthRequest,
        route: &Route,
        want: &Want<'_>,
        who: Who<'_>,
        (found, head): (&Match<'_>, &Parts),
    ) -> Result<(), Why> {
        let raises = self.shared.gates.would_raise(want).await;
        if !raises.map_err(|denied| Why::from(&denied))? {
            return Ok(());
        }
        let host = self.hosts[auth.upstream.index].as_ref();
        let question = question(auth, want, who, (found, head), host).ok_or(Why::NotAsked)?;
        let asked = self
            .upstreams
            .ask(auth.upstream.index, question, Bytes::new(), ANSWER);
        let trouble = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) if answer.status().is_success() => {
                self.answers(route);
                return Ok(());
            }
            Ok(Ok(answer)) if answer.status().is_client_error() => {
                self.answers(route);
                return Err(Why::Unverified);
            }
            Ok(Ok(answer)) => format!(
                "it answers {}, which is neither yes nor no",
                answer.status()
            ),
            Ok(Err(failed)) => format!("it does not answer: {}", failed.why),
            Err(_) => "it does not answer in time".to_owned(),
        };
        if !self.unanswered[route.index].replace(true) {
            let route = &*route.name;
            tracing::warn!(
                route,
                trouble,
                "auth_request: raises are refused until it answers"
            );
        }
        Err(Why::NotAsked)
    }

    fn answers(&self, route: &Route) {
        if self.unanswered[route.index].replace(false) {
            let route = &*route.name;
            tracing::info!(route, "auth_request: it answers again");
        }
    }
}

/// Whether a client's header goes with the question: not one by which some servers take another path or
/// method, nor one that could be taken for what the gateway says.
fn passes(name: &HeaderName) -> bool {
    let ours = [
        ORIGINAL_METHOD,
        ORIGINAL_URI,
        RESOURCE,
        NAMESPACE,
        TOKEN,
        IDENTITY,
    ];
    let twin = ours.iter().any(|own| twins(own.as_str(), name.as_str()));
    !is_hop_by_hop(name)
        && !OF_THE_BODY.contains(name)
        && !overrides_path(name)
        && !overrides_method(name)
        && !twin
}

/// The client's own headers, so that its credentials are seen, and what it asks for. `None` where that
/// cannot be put into headers.
fn question(
    auth: &AuthRequest,
    want: &Want<'_>,
    who: Who<'_>,
    (found, head): (&Match<'_>, &Parts),
    host: Option<&HeaderValue>,
) -> Option<Parts> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::GET;
    parts.version = Version::HTTP_11;
    parts.uri = Uri::from(auth.target.clone());
    for (name, value) in &head.headers {
        // What proves a client to the gateway is for nobody else.
        let proof = *name == AUTHORIZATION && found.route.upstream.client_keys.is_some();
        if passes(name) && !proof {
            parts.headers.append(name, value.clone());
        }
    }
    headers::join_cookies(&mut parts.headers);
    let (namespace, key) = (want.key.namespace().as_bytes(), want.key.key());
    let plain = |bytes: &[u8]| percent_encode(bytes, ESCAPED).to_string();
    let says = [
        (ORIGINAL_METHOD, found.method.to_string()),
        (ORIGINAL_URI, found.target.to_string()),
        (NAMESPACE, plain(namespace)),
        (RESOURCE, plain(key)),
        (TOKEN, want.policy.rules.format.spell(want.token)),
        (IDENTITY, who.names()),
    ];
    for (name, text) in says {
        parts
            .headers
            .insert(name, HeaderValue::try_from(text).ok()?);
    }
    parts.headers.insert(HOST, host?.clone());
    Some(parts)
}
