//! The token of a request: one, in the place that the route names, read alike by everybody.

use crate::config::TokenPlace;
use crate::extract;
use crate::fence::{Format, Token};
use crate::models::{names, token as model};
use crate::route::Match;
use http::HeaderMap;
use http::request::Parts;

/// What the request shows; `Err` where it is refused for it.
pub fn check(parts: &Parts, found: &Match<'_>) -> Result<Option<Token>, ()> {
    let route = found.route;
    let shown = extract::claim(route, &parts.headers, found.marks, found.token.as_deref());
    let expected = match &route.token {
        TokenPlace::Header(names) => {
            let names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
            in_headers(&parts.headers, &names, route.format)
        }
        TokenPlace::Query(name) => {
            let query = parts.uri.query().unwrap_or_default();
            let values = parameters(query, name);
            assert!(values.len() <= 1, "a token twice: {query}");
            let value = values.first().map(|value| names::value(value));
            assert_eq!(value.as_deref(), found.token.as_deref().map(str::as_bytes));
            let left = found.target.query().unwrap_or_default();
            let left = parameters(left, name);
            assert!(left.is_empty(), "a token goes upstream: {}", found.target);
            in_target(route.format, value)
        }
        TokenPlace::PathPrefix => {
            let path = parts.uri.path();
            if let Some(token) = &found.token {
                assert!(path.starts_with(&format!("/~fence/{token}")), "{path}");
            }
            in_target(route.format, found.token.clone().map(String::into_bytes))
        }
    };
    assert_eq!(
        shown.ok().map(|token| token.map(worth)),
        expected,
        "the token on route {}",
        route.name
    );
    shown.map_err(|_| ())
}

/// The same for the header of a `Destination`'s own token.
pub fn check_destination(headers: &HeaderMap, found: &Match<'_>) -> Result<Option<Token>, ()> {
    let Some(end) = &found.destination else {
        return Ok(None);
    };
    let shown = extract::destination_claim(end.route, headers, found.marks);
    let expected = in_headers(headers, &["fencing-token-destination"], end.route.format);
    assert_eq!(
        shown.ok().map(|token| token.map(worth)),
        expected,
        "the Destination's token"
    );
    if end.own_token {
        shown.map_err(|_| ())
    } else {
        Ok(None)
    }
}

type Worth = (model::Number, model::Number);

fn worth(token: Token) -> Worth {
    let number = |n: u64| model::Number::of(n.to_string().as_bytes());
    (number(token.epoch()), number(token.sequence()))
}

/// `None` where it is malformed.
#[expect(clippy::option_option, reason = "refused, absent, or there")]
fn in_headers(headers: &HeaderMap, wanted: &[&str], format: Format) -> Option<Option<Worth>> {
    let likes = names::headers(headers, wanted);
    match &likes[..] {
        [] => Some(None),
        [(name, value)] => {
            let dropped = names::dropped(headers);
            let clear =
                wanted.contains(name) && !dropped.iter().any(|d| wanted.contains(&d.as_str()));
            let token = read(format, value)?;
            clear.then_some(Some(token))
        }
        _ => None,
    }
}

#[expect(clippy::option_option, reason = "refused, absent, or there")]
fn in_target(format: Format, text: Option<Vec<u8>>) -> Option<Option<Worth>> {
    match text {
        None => Some(None),
        Some(text) => Some(Some(read(format, &text)?)),
    }
}

/// The model keeps hexadecimal digits as they are: here both are numbers in decimal.
fn read(format: Format, text: &[u8]) -> Option<Worth> {
    let (epoch, sequence) = model::read(format, text)?;
    if format != Format::Hex {
        return Some((epoch, sequence));
    }
    let digits = std::str::from_utf8(sequence.digits()).unwrap();
    let sequence = u64::from_str_radix(digits, 16).unwrap();
    Some((epoch, model::Number::of(sequence.to_string().as_bytes())))
}

fn parameters<'a>(query: &'a str, wanted: &str) -> Vec<&'a str> {
    names::parameters(query)
        .into_iter()
        .filter(|(name, _)| names::is_like(name, wanted))
        .map(|(_, value)| value)
        .collect()
}
