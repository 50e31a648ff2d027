//! Query parameters: found only where every server would find the same one.
//!
//! Knows nothing of what the parameters are for.

use super::path::{escape, refuse_double_encoding};
use std::borrow::Cow;

/// The raw value of the parameter of that name; `None` where it is not there.
///
/// # Errors
/// Where it is there twice, or under another spelling that some server takes for the same.
pub fn lookup<'a>(query: Option<&'a str>, name: &str) -> Result<Option<&'a str>, &'static str> {
    let mut found = None;
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if key == name {
            if found.replace(value).is_some() {
                return Err("a query parameter is given twice");
            }
            if value.contains(';') {
                return Err("a semicolon in a query parameter that decides");
            }
        } else if pair.split(';').any(|part| resembles(part, name)) {
            return Err("a query parameter is spelt in another way");
        }
    }
    Ok(found)
}

/// The query without the parameter; `None` where nothing is left. All else stays as it is.
#[must_use]
pub fn without(query: &str, name: &str) -> Option<String> {
    let is_it = |pair: &&str| pair.split_once('=').map_or(*pair, |(key, _)| key) == name;
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// The raw values of all parameters that some server could take for one of these names.
pub fn all_like<'a>(query: &'a str, names: &[&str]) -> impl Iterator<Item = &'a str> {
    query.split(['&', ';']).filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = loose(key);
        names
            .iter()
            .any(|name| is_like(&key, name))
            .then_some(value)
    })
}

/// The bytes that a value stands for.
///
/// # Errors
/// Where the value is empty, or could be read in more than one way.
pub fn value(raw: &str) -> Result<Vec<u8>, &'static str> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let Some(&byte) = rest.first() {
        let mut length = 1;
        let mut plain = byte;
        match byte {
            b'%' => {
                plain = escape(rest)?;
                length = 3;
            }
            b'+' => return Err("a plus sign in a query parameter that decides: write %20 or %2B"),
            b'!'..=b'~' => {}
            _ => return Err("a byte in a query parameter that is not visible ASCII"),
        }
        if plain < 0x20 || matches!(plain, 0x7F | b'\\') {
            return Err("a control character or backslash in a query parameter that decides");
        }
        decoded.push(plain);
        rest = rest.get(length..).unwrap_or_default();
    }
    if decoded.is_empty() {
        return Err("a query parameter that decides is empty");
    }
    refuse_double_encoding(&decoded)?;
    let mut segments = decoded.split(|&b| b == b'/').enumerate();
    if segments.any(|(i, s)| matches!(s, b"." | b"..") || (s.is_empty() && i > 0)) {
        return Err("a dot segment or an empty one in a query parameter that decides");
    }
    Ok(decoded)
}

/// Whether some server could take the name of this pair for `name`.
fn resembles(pair: &str, name: &str) -> bool {
    let key = pair.split_once('=').map_or(pair, |(key, _)| key);
    key.len() >= name.len() && is_like(&loose(key), name)
}

/// The same for a name as [`loose`] gives it: in any case, with an index, or cut at NUL.
fn is_like(key: &str, name: &str) -> bool {
    let head = key.get(..name.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(name))
        && matches!(key.as_bytes().get(name.len()), None | Some(b'[' | 0))
}

/// The name as a lenient server reads it.
fn loose(key: &str) -> Cow<'_, str> {
    if !key.bytes().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(key);
    }
    let decoded = percent_encoding::percent_decode_str(key).decode_utf8_lossy();
    Cow::Owned(decoded.trim_matches(['+', ' ']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_one_value() {
        assert_eq!(lookup(Some("a=1&fence=5&b"), "fence"), Ok(Some("5")));
        assert_eq!(lookup(Some("a=1&fences=5"), "fence"), Ok(None));
        assert_eq!(lookup(Some("fence"), "fence"), Ok(Some("")));
        assert_eq!(lookup(None, "fence"), Ok(None));
    }

    #[test]
    fn a_parameter_twice_or_in_another_spelling_is_refused() {
        for query in [
            "fence=5&fence=6",
            "fence=5&fence",
            "f%65nce=5",
            "fence=5&%66ence=6",
            "FENCE=5",
            "a=1;fence=5",
            "fence=5;fence=6",
            "fence[]=5",
            "fence%5B0%5D=5",
            "+fence=5",
            "fence+=5",
            "fence%00=5",
        ] {
            assert!(lookup(Some(query), "fence").is_err(), "{query}");
        }
    }

    #[test]
    fn strips_only_the_parameter() {
        assert_eq!(without("fence=5", "fence"), None);
        assert_eq!(
            without("a=%2F&fence=5&b", "fence").as_deref(),
            Some("a=%2F&b")
        );
        assert_eq!(without("fences=5", "fence").as_deref(), Some("fences=5"));
    }

    #[test]
    fn values_that_can_be_read_in_two_ways_are_refused() {
        for raw in [
            "",
            "a+b",
            "%",
            "%2",
            "%00",
            "a%5Cb",
            "%2541",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "caf\u{e9}",
            "a%0Ab",
        ] {
            assert!(value(raw).is_err(), "{raw}");
        }
        assert_eq!(value("a%20b/%63").as_deref(), Ok(b"a b/c".as_slice()));
        assert_eq!(value("2%3A10").as_deref(), Ok(b"2:10".as_slice()));
    }

    proptest! {
        #[test]
        fn no_query_panics(query: String, name in "[a-z]{1,6}") {
            let _ = lookup(Some(&query), &name);
            let _ = value(&query);
            let _ = without(&query, &name);
            let _ = all_like(&query, &[&name]).count();
        }
    }
}
