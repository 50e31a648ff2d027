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
use crate::sign::{Chunks, Identity, stamp};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HOST};
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
    pub(super) fn of(client: &'a Client, identity: Option<&'a Identity>) -> Self {
        let key = identity.map(|identity| &identity.name);
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
    /// too.
    ///
    /// # Errors
    /// It is nobody.
    pub(super) fn identify(
        &self,
        route: &Route,
        head: &Parts,
        tally: &mut Tally<'_>,
    ) -> Result<Option<Identity>, Refusal> {
        let Some(signing) = &self.shared.signing[route.upstream.index] else {
            return Ok(None);
        };
        let Some(clients) = &signing.clients else {
            return Ok(None);
        };
        let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let target = || head.uri.authority().map(http::uri::Authority::as_str);
        let host = named.or_else(target).unwrap_or_default();
        let proven = clients.prove(head, host, &signing.region, clock::time_of_day());
        let identity = proven.map_err(|why| Refusal::from(Why::Unproven(why)))?;
        note::identified(tally, &identity.name);
        Ok(Some(identity))
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
        identity: Option<Identity>,
        request: &mut Outgoing,
    ) -> Result<Permit, Refusal> {
        let Some(signing) = &self.shared.signing[found.route.upstream.index] else {
            return Ok(permit);
        };
        let (unbegun, permit) = match permit {
            Permit::Write(pass) => (Unbegun::of(pass), None),
            other @ Permit::Exempt(_) => (Unbegun::none(), Some(other)),
        };
        let refused = |why| claims.refusal(why);
        let chunks = identity.and_then(|identity| identity.chunks);
        unchunk(chunks, request).map_err(|why| refused(Why::Malformed(why.into())))?;
        stamped(found, claims, &mut request.head.headers);
        // Rare and large: kept out of the others' future.
        let signed = Box::pin(signing.entitle(&mut request.head)).await;
        signed.map_err(|why| refused(Why::Unsigned(why)))?;
        match permit.or_else(|| unbegun.into_pass().map(Permit::Write)) {
            Some(permit) => Ok(permit),
            None => Err(refused(Why::Busy)),
        }
    }
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

/// The metadata say which write it is.
fn stamped(found: &Match<'_>, claims: &Claims<'_>, headers: &mut HeaderMap) {
    let Some(keys) = found.keys.as_ref().filter(|_| found.brings_metadata) else {
        return;
    };
    let token = claims.own.map(|token| found.route.format.spell(token));
    stamp::put(headers, &keys.first.resource, token);
}
