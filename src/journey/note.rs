//! What the access log is told of a request, stage by stage. Costs nothing where there is no log.

use super::Client;
use super::claims::Claims;
use super::tally::Tally;
use crate::forward::{Download, Failed};
use crate::record::access::{AccessLog, Entry, Fate, short, trace_id};
use crate::route::{Keys, Match};
use http::{HeaderName, Request, Response, StatusCode};
use std::sync::Arc;

const HOLDER: HeaderName = HeaderName::from_static("fencing-holder");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// How long a name may be that a client gives itself.
const LONGEST: usize = 128;

/// A request has come.
pub(super) fn begin<B>(log: &Arc<AccessLog>, client: &Client, request: &Request<B>) -> Box<Entry> {
    let mut entry = Box::new(Entry::begin(
        log,
        client.peer.address(),
        request.uri().path(),
    ));
    let header = |name: HeaderName| request.headers().get(name);
    entry.protocol = format!("{:?}", request.version());
    entry.method = short(request.method().as_str());
    // A name that was proved goes before one that is said.
    entry.holder = client.names().first().cloned().or_else(|| {
        let said = header(HOLDER)?.to_str().ok()?;
        (!said.is_empty() && said.len() <= LONGEST).then(|| said.to_owned())
    });
    entry.trace_id = header(TRACEPARENT).and_then(|value| trace_id(value.as_bytes()));
    entry
}

/// Its route was found.
pub(super) fn routed(tally: &mut Tally<'_>, found: &Match<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.route = Arc::clone(&found.route.name);
        for key in found.keys.iter().flat_map(Keys::iter) {
            entry.resource(key.resource.namespace(), key.resource.key());
        }
    }
}

/// Its token was read.
pub(super) fn claimed(tally: &mut Tally<'_>, claims: &Claims<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.token = claims.own.map(|token| claims.route.format.spell(token));
    }
}

/// Its gates have let it through.
pub(super) fn judged(tally: &mut Tally<'_>) {
    if let Some(entry) = &mut tally.entry {
        entry.judged();
        entry.outcome = Fate::Unknown; // unless it is heard of
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
