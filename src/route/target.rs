//! What is forwarded: the client's own path and query, less the token and the route's prefix.
//!
//! Never re-spells anything: what was matched is what goes out.

use super::query;
use crate::config::{Route, TokenPlace};
use http::uri::PathAndQuery;
use std::borrow::Cow;

/// A raw path with its `/~fence/<token>` taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split<'a> {
    /// The rest of the path; begins with a slash.
    pub path: &'a str,
    /// The token's text, where there was such a prefix. May be empty.
    pub token: Option<&'a str>,
}

/// The segment that a token in a path stands behind.
const MARK: &str = "/~fence";

/// Takes a token's prefix off a raw path.
#[must_use]
pub fn split_token(raw: &str) -> Split<'_> {
    let Some(rest) = raw
        .strip_prefix(MARK)
        .and_then(|rest| rest.strip_prefix('/'))
    else {
        return Split {
            path: raw,
            token: None,
        };
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (token, path) = rest.split_at(end);
    Split {
        path: if path.is_empty() { "/" } else { path },
        token: Some(token),
    }
}

/// Whether a canonical path still has the mark of a token: twice, or spelt with escapes.
#[must_use]
pub fn has_mark(canonical: &str) -> bool {
    canonical
        .strip_prefix(MARK)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A raw path without its first segments.
#[must_use]
pub fn strip(path: &str, segments: usize) -> &str {
    let mut rest = path;
    for _ in 0..segments {
        let inner = rest.strip_prefix('/').unwrap_or(rest);
        rest = inner.find('/').and_then(|i| inner.get(i..)).unwrap_or("/");
    }
    rest
}

/// Joins a path and a query. Does not copy where they are those of `whole`.
///
/// # Errors
/// Where they make no target.
pub fn join(
    whole: &PathAndQuery,
    path: &str,
    query: Option<&str>,
) -> Result<PathAndQuery, &'static str> {
    if whole.path() == path && whole.query() == query && whole.as_str().starts_with('/') {
        return Ok(whole.clone());
    }
    let joined = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    PathAndQuery::try_from(joined).map_err(|_| "the target is malformed")
}

/// The path of an object whose bucket the host named.
///
/// # Errors
/// It is no target.
pub(super) fn in_bucket(
    bucket: &str,
    path: &str,
    query: Option<&str>,
) -> Result<PathAndQuery, &'static str> {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let target = PathAndQuery::try_from(format!("/{bucket}{path}{query}"));
    target.map_err(|_| "the target is malformed")
}

/// The token's text where it stands in the target, and the query without it.
pub(super) fn token_of<'a>(
    route: &Route,
    raw: Split<'_>,
    query: Option<&'a str>,
) -> Result<(Option<String>, Option<Cow<'a, str>>), &'static str> {
    let whole = query.map(Cow::Borrowed);
    match (&route.token, raw.token) {
        (TokenPlace::PathPrefix, token) => Ok((token.map(str::to_owned), whole)),
        (_, Some(_)) => Err("a token in the path, where this route does not read it"),
        (TokenPlace::Query(name), None) => match query::lookup(query, name)? {
            None => Ok((None, whole)),
            Some("") => Err("the token is empty"),
            Some(value) => {
                let value = query::value(value)?;
                let text = String::from_utf8(value).map_err(|_| "the token is no number")?;
                let rest = query.and_then(|query| query::without(query, name));
                Ok((Some(text), rest.map(Cow::Owned)))
            }
        },
        (TokenPlace::Header(_), None) => Ok((None, whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_token_off() {
        let split = |raw| {
            let split = split_token(raw);
            (split.path, split.token)
        };
        assert_eq!(split("/~fence/5/files/a"), ("/files/a", Some("5")));
        assert_eq!(split("/~fence/5"), ("/", Some("5")));
        assert_eq!(split("/~fence/5/"), ("/", Some("5")));
        assert_eq!(split("/~fence//a"), ("/a", Some("")));
        assert_eq!(split("/~fences/5/a"), ("/~fences/5/a", None));
        assert!(has_mark("/~fence/6/a") && has_mark("/~fence") && !has_mark("/~fencex"));
    }

    #[test]
    fn strips_whole_segments_in_any_spelling() {
        assert_eq!(strip("/files/a/b", 1), "/a/b");
        assert_eq!(strip("/%66iles/a%20b/", 1), "/a%20b/");
        assert_eq!(strip("/a/b", 2), "/");
        assert_eq!(strip("/a/b/", 2), "/");
        assert_eq!(strip("/a", 0), "/a");
    }

    #[test]
    fn an_unchanged_target_keeps_every_byte() {
        for text in ["/a%20b?x=1&y=%2F", "/a?", "/a"] {
            let whole = PathAndQuery::try_from(text).unwrap();
            assert_eq!(
                join(&whole, whole.path(), whole.query()).unwrap().as_str(),
                text
            );
        }
    }
}
