//! What the access log and the traces are told of a request, stage by stage. Costs nothing where there are none.

use super::Client;
use super::claims::Claims;
use super::tally::Tally;
use super::witness::{HOLDER, LONGEST, TRACEPARENT};
use crate::forward::{Download, Failed};
use crate::record::entry::{Entry, Fate, Recorders, short};
use crate::record::trace;
use crate::route::{Keys, Match};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use std::sync::Arc;

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How many resources of a request are recorded.
const RESOURCES: usize = 16;

/// A request has come.
pub(super) fn begin<B>(to: &Recorders, client: &Client, request: &Request<B>) -> Box<Entry> {
    // Two of them are none: nobody knows which trace is meant.
    let mut parents = request.headers().get_all(TRACEPARENT).iter();
    let parent = parents
        .next()
        .filter(|_| parents.next().is_none())
        .and_then(|value| trace::parent(value.as_bytes()));
    let address = client.peer.address();
    let mut entry = Box::new(Entry::begin(to, address, request.uri().path(), parent));
    let header = |name: HeaderName| request.headers().get(name);
    entry.protocol = format!("{:?}", request.version());
    entry.method = short(request.method().as_str());
    // A name that was proved goes before one that is said.
    entry.holder = client.names().first().cloned().or_else(|| {
        let said = header(HOLDER)?.to_str().ok()?;
        (!said.is_empty() && said.len() <= LONGEST).then(|| said.to_owned())
    });
    entry
}

/// Its route was found.
pub(super) fn routed(tally: &mut Tally<'_>, found: &Match<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.route = Arc::clone(&found.route.name);
        let keys = found.keys.iter().flat_map(Keys::iter);
        let first = keys.take(RESOURCES);
        entry
            .resources
            .extend(first.map(|key| key.resource.clone()));
    }
}

/// Its head is being made ready: where spans are recorded, the upstream's come below the one that leads there.
pub(super) fn traced(tally: &Tally<'_>, headers: &mut HeaderMap) {
    let Some(entry) = &tally.entry else { return };
    let Some(header) = entry.trace.and_then(|trace| trace.header()) else {
        return;
    };
    if entry.parent.is_none() {
        headers.remove(TRACESTATE); // it belongs to a trace that could not be read
    }
    headers.insert(TRACEPARENT, header);
}

/// The client has shown who it is.
pub(super) fn identified(tally: &mut Tally<'_>, name: &str) {
    tally.seen.name = Some(name.to_owned());
    if let Some(entry) = &mut tally.entry {
        entry.holder = Some(name.to_owned());
    }
}

/// Its token was read.
pub(super) fn claimed(tally: &mut Tally<'_>, claims: &Claims<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.token = claims.own.map(|token| claims.route.format.spell(token));
    }
}

/// Its gates have let it through.
pub(super) fn judged(tally: &mut Tally<'_>, found: &Match<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.judged(&found.route.upstream.name);
    }
}

/// The head of its response has come, or will not.
pub(super) fn answered(
    tally: &mut Tally<'_>,
    response: &Result<Response<Download>, Failed>,
    unsettled: &[StatusCode],
) {
    if let Some(entry) = &mut tally.entry {
        entry.answered(match response {
            Ok(response) if !unsettled.contains(&response.status()) => Fate::Answered,
            Err(failed) if !failed.sent => Fate::Unsent,
            Ok(_) | Err(_) => Fate::Unknown,
        });
    }
}
