//! Before an object store for which the gateway signs: who a client is, and the request made the gateway's own.

use super::claims::Claims;
use super::guarded::Unbegun;
use super::permit::Permit;
use super::tally::Tally;
use super::{Client, Journey, note};
use crate::clock;
use crate::config::Route;
use crate::forward::Outgoing;
use crate::refusal::{Refusal, Why};
use crate::route::Match;
use crate::sign::{self, Chunks, stamp};
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
/// They speak of trailers that do not go on.
const OF_TRAILERS: [HeaderName; 2] = [
    HeaderName::from_static("x-amz-trailer"),
    HeaderName::from_static("x-amz-sdk-checksum-algorithm"),
];

/// Who asks: by a certificate, and by the key of an object store's client.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    client: &'a Client,
    key: Option<&'a String>,
}

impl<'a> Who<'a> {
    pub(super) const fn of(client: &'a Client, key: Option<&'a String>) -> Self {
        Self { client, key }
    }

    /// Whether the route lets it write.
    pub(super) fn may(self, route: &Route) -> bool {
        let key = self.key.map(std::slice::from_ref);
        route.allows(self.client.names()) || key.is_some_and(|key| route.allows(key))
    }

    /// All of its names.
    pub(super) fn names(self) -> String {
        let names = self.client.names().iter().chain(self.key);
        names.map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl Journey {
    /// Who a client is, where the gateway signs for it and knows its clients: for reads and on routes that are off
    /// too. A body in chunks that it signed is checked as it comes, from here on.
    ///
    /// # Errors
    /// It is nobody, or the request has what cannot be signed anew.
    pub(super) fn identify(
        &self,
        route: &Route,
        request: &mut Outgoing,
        tally: &mut Tally<'_>,
    ) -> Result<Option<String>, Refusal> {
        let Some(signing) = &self.shared.signing[route.upstream.index] else {
            return Ok(None);
        };
        let head = &request.head;
        let malformed = |why: String| Refusal::from(Why::Malformed(why));
        if let Some(name) = hop_by_hop(&head.headers) {
            // It would be taken off after the signature was checked.
            return Err(malformed(format!("Connection names {name}")));
        }
        sign::check_query(head.uri.query().unwrap_or_default()).map_err(malformed)?;
        let mut identity = None;
        if let Some(clients) = &signing.clients {
            let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
            let target = || head.uri.authority().map(http::uri::Authority::as_str);
            let host = named.or_else(target).unwrap_or_default();
            let tokens: Vec<&str> = self.token_headers[route.index]
                .iter()
                .map(HeaderName::as_str)
                .collect();
            let now = clock::time_of_day();
            let proven = clients.prove(head, host, &tokens, &signing.region, now);
            identity = Some(proven.map_err(|why| Refusal::from(Why::Unproven(why)))?);
        }
        let chunks = identity
            .as_mut()
            .and_then(|identity| identity.chunks.take());
        unchunk(chunks, request).map_err(|why| malformed(why.into()))?;
        let name = identity.map(|identity| identity.name);
        if let Some(name) = &name {
            note::identified(tally, name);
        }
        Ok(name)
    }

    /// Whether the body that says what a request changes is the one that its client signed.
    ///
    /// # Errors
    /// It is another.
    pub(super) fn is_own(&self, route: &Route, head: &Parts, body: &[u8]) -> Result<(), Why> {
        let signs = self.shared.signing[route.upstream.index].is_some();
        let digest = head
            .headers
            .get(CONTENT_SHA256)
            .and_then(|value| value.to_str().ok());
        match digest {
            Some(digest) if signs && digest.len() == 64 && digest != sign::digest(body) => {
                Err(Why::Forged { sent: false })
            }
            _ => Ok(()),
        }
    }

    /// Makes a request the gateway's own, where it signs: with its signature, and with the stamp of the write.
    ///
    /// # Errors
    /// Why it does not go out. Nothing of it has then.
    pub(super) async fn sign(
        &self,
        found: &Match<'_>,
        claims: &Claims<'_>,
        permit: Permit,
        request: &mut Outgoing,
    ) -> Result<Permit, Refusal> {
        let Some(signing) = &self.shared.signing[found.route.upstream.index] else {
            return Ok(permit);
        };
        stamped(found, claims, &mut request.head.headers);
        let entitled = async {
            // Rare and large: kept out of the others' future.
            let done = Box::pin(signing.entitle(&mut request.head)).await;
            done.map_err(Why::Unsigned)
        };
        let permit = match permit {
            Permit::Write(pass) => {
                let done = Unbegun::of(pass).during(entitled).await;
                done.map(|(pass, ())| Permit::Write(pass))
            }
            exempt @ Permit::Exempt(_) => entitled.await.map(|()| exempt),
        };
        permit.map_err(|why| claims.refusal(why))
    }
}

/// A header that `Connection` takes off, other than those of the connection itself.
fn hop_by_hop(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(CONNECTION).iter();
    let lists = values.filter_map(|value| value.to_str().ok());
    let mut names = lists
        .flat_map(|list| list.split(','))
        .map(|name| name.trim().to_ascii_lowercase());
    names.find(|name| {
        !matches!(
            name.as_str(),
            "" | "close" | "keep-alive" | "te" | "upgrade"
        )
    })
}

/// Takes the chunks off a body that their client signed. They go on as one body, whose content nobody signs.
fn unchunk(chunks: Option<Chunks>, request: &mut Outgoing) -> Result<(), &'static str> {
    let headers = &mut request.head.headers;
    let signed = |value: &HeaderValue| value.as_bytes().starts_with(b"STREAMING-AWS4-");
    let Some(chunks) = chunks else {
        if headers.get(CONTENT_SHA256).is_some_and(signed) {
            return Err(
                "a body in signed chunks, from a client that is not known by its signature",
            );
        }
        return Ok(());
    };
    let length = headers.get(&DECODED_LENGTH);
    let length = length.and_then(|value| value.to_str().ok());
    let length: Option<u64> = length.and_then(|text| text.parse().ok());
    let length = length.ok_or("a body in chunks without x-amz-decoded-content-length")?;
    headers.remove(DECODED_LENGTH);
    for name in OF_TRAILERS {
        headers.remove(name);
    }
    headers.insert(CONTENT_SHA256, HeaderValue::from_static("UNSIGNED-PAYLOAD"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    plain_encoding(headers);
    request.unchunk(chunks, length);
    Ok(())
}

/// Takes `aws-chunked` off `Content-Encoding`.
fn plain_encoding(headers: &mut HeaderMap) {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let lists = values.filter_map(|value| value.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).map(str::trim);
    let rest: Vec<&str> = names
        .filter(|name| !name.is_empty() && *name != "aws-chunked")
        .collect();
    let rest = (!rest.is_empty()).then(|| HeaderValue::from_str(&rest.join(", ")));
    headers.remove(CONTENT_ENCODING);
    if let Some(Ok(rest)) = rest {
        headers.insert(CONTENT_ENCODING, rest);
    }
}

/// The metadata say which write it is. What a client says there of that is taken off.
fn stamped(found: &Match<'_>, claims: &Claims<'_>, headers: &mut HeaderMap) {
    stamp::take_off(headers);
    let keys = found.keys.as_ref().filter(|_| found.brings_metadata);
    if let Some((keys, token)) = keys.zip(claims.own) {
        let token = found.route.format.spell(token);
        stamp::put(headers, &keys.first.resource, &token);
    }
}
