//! The token that a request shows: exactly one, in the place that its route names.
//!
//! Knows nothing of fences: whether the token is good enough is not decided here.

use crate::config::{Route, TokenPlace};
use crate::fence::{Token, token};
use crate::route::DESTINATION_TOKEN;
use crate::route::header::{self, Ambiguous};
use http::{HeaderMap, HeaderName};

/// Names the client in records.
const HOLDER: HeaderName = HeaderName::from_static("fencing-holder");

/// The longest label that is recorded.
const MAX_HOLDER: usize = 128;

/// Why a request shows no single token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The text is no token.
    #[error("{0}")]
    Text(#[from] token::Malformed),
    /// It is there twice, in two spellings, or would be dropped on the way.
    #[error("{0}")]
    Place(#[from] Ambiguous),
}

/// The token of a request on this route; `None` where it has none. `in_target` is the text that
/// stood in the path or the query.
///
/// # Errors
/// [`Malformed`] for anything but one well-formed token.
pub fn claim(
    route: &Route,
    headers: &HeaderMap,
    in_target: Option<&str>,
) -> Result<Option<Token>, Malformed> {
    match &route.token {
        TokenPlace::Header(names) => in_header(route, headers, names),
        TokenPlace::Query(_) | TokenPlace::PathPrefix => Ok(in_target
            .map(|text| route.format.parse(text.as_bytes()))
            .transpose()?),
    }
}

/// The token of a request's `Destination`, in that end's own header; `route` is the one that covers
/// the destination.
///
/// # Errors
/// As [`claim`].
pub fn destination_claim(route: &Route, headers: &HeaderMap) -> Result<Option<Token>, Malformed> {
    in_header(route, headers, &[DESTINATION_TOKEN])
}

/// The label by which the client calls itself; `None` where it is not 1 to 128 printable ASCII
/// characters, once.
#[must_use]
pub fn holder(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(HOLDER).iter();
    let (first, None) = (values.next()?, values.next()) else {
        return None;
    };
    let label = first.to_str().ok()?.trim();
    let printable = label.bytes().all(|b| matches!(b, b' '..=b'~'));
    (printable && (1..=MAX_HOLDER).contains(&label.len())).then_some(label)
}

fn in_header(
    route: &Route,
    headers: &HeaderMap,
    names: &[HeaderName],
) -> Result<Option<Token>, Malformed> {
    let value = header::only(headers, names)?;
    Ok(value
        .map(|value| route.format.parse(value.as_bytes()))
        .transpose()?)
}
