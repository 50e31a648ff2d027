//! The token that a request shows: exactly one, in the place that its route names.
//!
//! Knows nothing of fences: whether the token is good enough is not decided here.

use crate::config::{Route, TokenPlace};
use crate::fence::{Token, token};
use crate::route::header::{self, Ambiguous};
use crate::route::{DESTINATION_TOKEN, Marks};
use http::{HeaderMap, HeaderName};

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
/// stood in the path or the query; `marks` are those of the headers.
///
/// # Errors
/// [`Malformed`] for anything but one well-formed token.
pub fn claim(
    route: &Route,
    headers: &HeaderMap,
    marks: Marks,
    in_target: Option<&str>,
) -> Result<Option<Token>, Malformed> {
    match &route.token {
        TokenPlace::Header(names) => in_header(route, headers, marks, names),
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
pub fn destination_claim(
    route: &Route,
    headers: &HeaderMap,
    marks: Marks,
) -> Result<Option<Token>, Malformed> {
    in_header(route, headers, marks, &[DESTINATION_TOKEN])
}

fn in_header(
    route: &Route,
    headers: &HeaderMap,
    marks: Marks,
    names: &[HeaderName],
) -> Result<Option<Token>, Malformed> {
    let value = header::only(headers, names, marks)?;
    Ok(value
        .map(|value| route.format.parse(value.as_bytes()))
        .transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;
    use http::HeaderValue;
    use std::sync::Arc;

    fn route(token: &str) -> Arc<Route> {
        let text = format!(
            "[store]\npath = \"data\"\n[upstreams.u]\nurl = \"http://a\"\nsettle = \"1s\"\n[[routes]]\nname = \"r\"\n\
             path = \"/{{*key}}\"\nupstream = \"u\"\nresource = \"{{key}}\"\ntoken = {token}\n"
        );
        load(&text)
            .unwrap_or_else(|faults| panic!("{faults:#?}"))
            .settings
            .routes[0]
            .clone()
    }

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn shown(list: &[(&str, &str)]) -> Result<Option<Token>, Malformed> {
        let route = route("{ header = \"Fencing-Token\", aliases = [\"X-Lock\"] }");
        let list = headers(list);
        claim(&route, &list, Marks::of(&list), None)
    }

    #[test]
    fn one_value_under_one_name() {
        assert_eq!(
            shown(&[("Fencing-Token", " 42 ")]),
            Ok(Some(Token::new(0, 42)))
        );
        assert_eq!(shown(&[("x-lock", "42")]), Ok(Some(Token::new(0, 42))));
        assert_eq!(shown(&[("X-Other", "42")]), Ok(None));
    }

    #[test]
    fn a_token_twice_or_joined_is_malformed() {
        let twice = Err(Malformed::Place(Ambiguous::Twice));
        assert_eq!(
            shown(&[("Fencing-Token", "5"), ("Fencing-Token", "5")]),
            twice
        );
        assert_eq!(
            shown(&[("Fencing-Token", "5"), ("fencing-token", "6")]),
            twice
        );
        assert_eq!(shown(&[("Fencing-Token", "5"), ("X-Lock", "5")]), twice);
        for text in ["5, 99", "5,5", "", "abc", "0", "111111111111111111111"] {
            assert!(
                matches!(shown(&[("Fencing-Token", text)]), Err(Malformed::Text(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn an_underscore_is_malformed_beside_the_real_one_and_instead() {
        let odd = Err(Malformed::Place(Ambiguous::Underscore));
        assert_eq!(shown(&[("Fencing_Token", "5")]), odd);
        assert_eq!(
            shown(&[("Fencing-Token", "5"), ("Fencing_Token", "6")]),
            odd
        );
        assert_eq!(shown(&[("X_Lock", "5")]), odd);
    }

    #[test]
    fn a_token_that_connection_names_is_malformed() {
        let odd = Err(Malformed::Place(Ambiguous::Connection));
        assert_eq!(
            shown(&[
                ("Fencing-Token", "5"),
                ("Connection", "close,  Fencing-token")
            ]),
            odd
        );
        assert_eq!(
            shown(&[
                ("X-Lock", "5"),
                ("Connection", "close"),
                ("Connection", "x-lock")
            ]),
            odd
        );
        assert!(shown(&[("Fencing-Token", "5"), ("Connection", "close")]).is_ok());
    }

    #[test]
    fn a_token_in_the_target_is_read_in_the_routes_format() {
        let query = route("{ query = \"fence\", format = \"pair\" }");
        assert_eq!(
            claim(&query, &HeaderMap::new(), Marks::default(), Some("2:10")),
            Ok(Some(Token::new(2, 10)))
        );
        assert!(claim(&query, &HeaderMap::new(), Marks::default(), Some("")).is_err());
        assert_eq!(
            claim(
                &query,
                &headers(&[("Fencing-Token", "5")]),
                Marks::default(),
                None
            ),
            Ok(None)
        );
        let prefix = route("{ path_prefix = true, format = \"hex\" }");
        assert_eq!(
            claim(&prefix, &HeaderMap::new(), Marks::default(), Some("0x1a")),
            Ok(Some(Token::new(0, 26)))
        );
    }

    #[test]
    fn a_destination_has_its_own_header() {
        let route = route("{ header = \"X\" }");
        let shown = |list: &HeaderMap| destination_claim(&route, list, Marks::of(list));
        let list = headers(&[("X", "5"), ("Fencing-Token-Destination", "7")]);
        assert_eq!(shown(&list), Ok(Some(Token::new(0, 7))));
        assert_eq!(shown(&headers(&[("X", "5")])), Ok(None));
        assert!(shown(&headers(&[("Fencing_Token_Destination", "7")])).is_err());
    }
}
