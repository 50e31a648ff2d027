//! The path of an object store: a bucket and a key, byte for byte after one decoding.
//!
//! An object's key is a name, not a path: `a`, `a/` and `//a` are three objects, and so are `a%2Fb`, spelt
//! `a%252Fb`, and `a/b`, spelt `a%2Fb` or `a/b`. What stores are known to read in different ways is refused.
//! Knows nothing of routes or operations; the path that is forwarded is the client's own.

use super::path::escape;
use crate::config::Upstream;

/// A bucket and a key, spelt so that patterns match them: a slash, visible ASCII as it is, and every other
/// byte and `%` as an escape in capitals. Where there is no key, no slash stands at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The text.
    pub text: String,
    /// Why stores could read the path in different ways, where they could.
    fault: Option<&'static str>,
}

impl Exact {
    /// Why the path could be another one's to that store, where it could.
    #[must_use]
    pub fn fault_before(&self, store: &Upstream) -> Option<&'static str> {
        let empty = store.refuses_empty_segments && self.text.contains("//");
        let why = "an empty segment in the key, which this store does not tell apart";
        self.fault.or_else(|| empty.then_some(why))
    }

    /// Whether there is a key: else the request is to a bucket, or to the service.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.text.get(1..).is_some_and(|text| text.contains('/'))
    }
}

/// Reads a request's path, query excluded. `None` where it does not begin with a slash, or has a percent sign
/// without two hexadecimal digits.
#[must_use]
pub fn exact(raw: &str) -> Option<Exact> {
    let mut rest = raw.strip_prefix('/')?.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    let (mut fault, mut key) = (None, false);
    while let Some(&byte) = rest.first() {
        let (mut length, mut plain) = (1, byte);
        let odd = match byte {
            b'%' => {
                plain = escape(rest).ok()?;
                length = 3;
                let split = plain == b'/' && !key;
                split.then_some("an escaped slash in the name of a bucket")
            }
            // Amazon's store takes it for a space, others do not.
            b'+' => Some("a plus sign in the path: write %2B, or %20 for a space"),
            // Some servers cut parameters off.
            b';' => Some("a semicolon in the path: write %3B"),
            b'\\' => Some("a backslash in the path: write %5C"),
            b'!'..=b'~' => None,
            _ => Some("a byte in the path that is not visible ASCII"),
        };
        fault = fault.or(odd);
        key |= plain == b'/';
        decoded.push(plain);
        rest = rest.get(length..).unwrap_or_default();
    }
    let fault = fault.or_else(|| in_key(&decoded));
    if decoded.iter().position(|&b| b == b'/') == decoded.len().checked_sub(1) {
        decoded.pop(); // `/bucket/`: a slash and no key
    }
    let mut text = String::with_capacity(raw.len());
    text.push('/');
    for byte in decoded {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(percent_encoding::percent_encode_byte(byte));
        }
    }
    Some(Exact { text, fault })
}

/// What stores that keep objects as files, or clients on the way, make another name of.
fn in_key(decoded: &[u8]) -> Option<&'static str> {
    let bucket = decoded.split(|&b| b == b'/').next().unwrap_or_default();
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._".contains(b);
    let named = bucket.first().is_some_and(u8::is_ascii_alphanumeric) && bucket.iter().all(plain);
    if !named && !decoded.is_empty() {
        return Some("a bucket whose name has other than letters, digits, dots and hyphens");
    }
    if std::str::from_utf8(decoded).is_err() {
        return Some("a key that is not UTF-8");
    }
    if decoded.iter().any(|b| matches!(b, 0..0x20 | 0x7F)) {
        return Some("a control character in the path");
    }
    let mut segments = decoded.split(|&b| b == b'/');
    let dots = segments.any(|segment| matches!(segment, b"." | b".."));
    dots.then_some("a dot segment in the path")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(raw: &str) -> Result<String, &'static str> {
        let found = exact(raw).ok_or("no path")?;
        match found.fault {
            Some(fault) => Err(fault),
            None => Ok(found.text),
        }
    }

    #[test]
    fn a_key_is_what_one_decoding_gives() {
        for (raw, text) in [
            ("/b/k", "/b/k"),
            ("/b/%6B", "/b/k"),
            ("/b/a%2Fb", "/b/a/b"),
            ("/b/a%252Fb", "/b/a%252Fb"),
            ("/b/a//b", "/b/a//b"),
            ("/b//a", "/b//a"),
            ("/b/a/", "/b/a/"),
            ("/b/a%20b", "/b/a%20b"),
            ("/b/a%2Bb", "/b/a+b"),
            ("/b/a%3Bb", "/b/a;b"),
            ("/b/%C3%BC", "/b/%C3%BC"),
            ("/b/%c3%bc", "/b/%C3%BC"),
            ("/b/a.", "/b/a."),
            ("/b/...", "/b/..."),
            ("/b", "/b"),
            ("/b/", "/b"),
            ("/", "/"),
        ] {
            assert_eq!(key(raw).as_deref(), Ok(text), "{raw}");
        }
        assert!(exact("/b/a").unwrap().has_key() && exact("/b//").unwrap().has_key());
        assert!(!exact("/b/").unwrap().has_key() && !exact("/").unwrap().has_key());
    }

    #[test]
    fn what_stores_read_in_different_ways_is_refused() {
        for raw in [
            "",
            "b",
            "/b/%",
            "/b/%4",
            "/b/%zz",
            "/b/a+b",
            "/b/a;b",
            "/b/a\\b",
            "/b/a b",
            "/b/\u{fc}",
            "//",
            "//b/k",
            "/a:b/k",
            "/-b/k",
            "/%C3%BC/k",
            "/b%2Fa",
            "/b%2fa/c",
            "/b/.",
            "/b/..",
            "/b/../a",
            "/b/a/%2e%2e/c",
            "/./a",
            "/b/%00",
            "/b/a%0A",
            "/b/%7f",
            "/b/%ff",
            "/b/%c0%af",
        ] {
            assert!(key(raw).is_err(), "{raw}: {:?}", key(raw));
        }
    }

    /// One decoding, and nothing else; a bucket alone may have a slash behind it.
    fn decoded(raw: &str) -> Vec<u8> {
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(raw).collect();
        match decoded.strip_suffix(b"/") {
            Some(bucket) if !bucket[1..].contains(&b'/') => bucket.to_vec(),
            _ => decoded,
        }
    }

    fn odd_path() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[ab]", 3 => Just("/".to_owned()), 1 => "[.;+\\\\ %]", 1 => "%(2[05BbeEfF]|5[cC]|6[12]|3[bB]|00|c3%A9)",
            1 => Just("..".to_owned()), 1 => Just("%25".to_owned()),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("/b{}", pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn two_spellings_have_one_key_exactly_where_one_decoding_makes_them_equal(a in odd_path(), b in odd_path()) {
            if let (Ok(x), Ok(y)) = (key(&a), key(&b)) {
                prop_assert_eq!(x == y, decoded(&a) == decoded(&b), "{} {}", a, b);
            }
        }

        #[test]
        fn any_key_has_a_spelling(name in "[a-zA-Z0-9 éü%?#+;/-]{1,12}x") {
            let spelt = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC).to_string();
            let found = key(&format!("/bucket/{spelt}"));
            prop_assert_eq!(found.map(|text| decoded(&text)), Ok(format!("/bucket/{name}").into_bytes()));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = exact(&String::from_utf8_lossy(&bytes));
            let _ = exact(&format!("/{}", String::from_utf8_lossy(&bytes)));
        }
    }
}
