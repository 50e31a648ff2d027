//! The canonical path: one spelling for each path that a plain service could tell apart.
//!
//! What could be read in two ways is refused. Knows nothing of routes or keys; the path that is
//! forwarded is the client's own, not this one.

use std::borrow::Cow;

/// A path in its one spelling.
///
/// Visible ASCII stands for itself, every other byte and `%` as an escape in capitals; no segment is
/// empty, none ends in a dot or a space, and there is no slash at the end (save in `/`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canonical<'a> {
    /// The path.
    pub text: Cow<'a, str>,
    /// Whether the client's path ended in a slash.
    pub trailing_slash: bool,
}

/// The canonical form of a request's path, query excluded. Borrows where there is no escape.
///
/// # Errors
/// Why the path is ambiguous or malformed.
pub fn canonical(raw: &str) -> Result<Canonical<'_>, &'static str> {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err("the path does not begin with a slash");
    }
    let mut last = 0;
    for &byte in bytes {
        match byte {
            b'%' => return escaped(bytes),
            b'/' => end_of_segment(last)?,
            _ => plain(byte)?,
        }
        last = byte;
    }
    let (text, trailing_slash) = match raw.strip_suffix('/') {
        Some("") => (raw, true),
        Some(text) => (text, true),
        None => {
            end_of_segment(last)?;
            (raw, false)
        }
    };
    Ok(Canonical {
        text: Cow::Borrowed(text),
        trailing_slash,
    })
}

/// The same where capitals do not matter: a service that folds case finds one file under both spellings.
///
/// # Errors
/// For bytes beyond ASCII: how those are folded differs from one service to the next.
pub fn folded(canonical: Canonical<'_>) -> Result<Canonical<'_>, &'static str> {
    let bytes = canonical.text.as_bytes();
    let beyond = |at: usize| bytes[at] == b'%' && bytes.get(at + 1).is_some_and(|&b| b >= b'8');
    if (0..bytes.len()).any(beyond) {
        return Err("a byte beyond ASCII in a path whose case does not matter");
    }
    if !bytes.iter().any(u8::is_ascii_uppercase) {
        return Ok(canonical);
    }
    let mut text = String::with_capacity(bytes.len());
    let mut digits = 0; // of an escape, which stay as they are
    for letter in canonical.text.chars() {
        let inside = digits > 0;
        digits = if letter == '%' { 2 } else { digits.max(1) - 1 };
        text.push(if inside {
            letter
        } else {
            letter.to_ascii_lowercase()
        });
    }
    Ok(Canonical {
        text: Cow::Owned(text),
        ..canonical
    })
}

/// Appends the bytes that a part of a canonical path stands for.
pub fn decode(canonical: &str, out: &mut Vec<u8>) {
    if canonical.as_bytes().contains(&b'%') {
        out.extend(percent_encoding::percent_decode_str(canonical));
    } else {
        out.extend_from_slice(canonical.as_bytes());
    }
}

/// The byte that the escape at the start of `text` stands for.
///
/// # Errors
/// Where there is no `%` and two hexadecimal digits.
pub fn escape(text: &[u8]) -> Result<u8, &'static str> {
    let digit = |i: usize| text.get(i).and_then(|&b| char::from(b).to_digit(16));
    match (digit(1), digit(2)) {
        (Some(high), Some(low)) => Ok(u8::try_from(high * 16 + low).unwrap_or_default()),
        _ => Err("a percent sign without two hexadecimal digits"),
    }
}

/// Refuses decoded bytes that a second decoding, or a lenient one, would read as something else.
///
/// # Errors
/// Why they are refused.
pub fn refuse_double_encoding(decoded: &[u8]) -> Result<(), &'static str> {
    for (i, &byte) in decoded.iter().enumerate() {
        let next = |n: usize| decoded.get(i + n).copied().unwrap_or_default();
        match byte {
            b'%' if next(1).is_ascii_hexdigit() && next(2).is_ascii_hexdigit() => {
                return Err("the path is encoded twice");
            }
            b'%' if matches!(next(1), b'u' | b'U') => return Err("the path is encoded twice"),
            0xC0 | 0xC1 => return Err("an overlong encoding"),
            0xE0 if (0x80..0xA0).contains(&next(1)) => return Err("an overlong encoding"),
            0xF0 if (0x80..0x90).contains(&next(1)) => return Err("an overlong encoding"),
            // UTF-8 had up to six bytes once, and some decoders still take them.
            0xF8 if (0x80..0x88).contains(&next(1)) => return Err("an overlong encoding"),
            0xFC if (0x80..0x84).contains(&next(1)) => return Err("an overlong encoding"),
            _ => {}
        }
    }
    Ok(())
}

fn plain(byte: u8) -> Result<(), &'static str> {
    match byte {
        b'\\' => Err("a backslash in the path"),
        b';' => Err("a semicolon in the path"),
        b'!'..=b'~' => Ok(()),
        _ => Err("a byte in the path that is not visible ASCII"),
    }
}

fn end_of_segment(last: u8) -> Result<(), &'static str> {
    match last {
        b'/' => Err("an empty segment in the path"),
        b'.' => Err("a path segment that ends in a dot"),
        b' ' => Err("a path segment that ends in a space"),
        _ => Ok(()),
    }
}

fn escaped(bytes: &[u8]) -> Result<Canonical<'_>, &'static str> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&byte) = rest.first() {
        let mut length = 1;
        if byte == b'%' {
            length = 3;
            let byte = escape(rest)?;
            match byte {
                b'/' | b'\\' => return Err("an escaped slash or backslash in the path"),
                b';' => return Err("a semicolon in the path"),
                0..0x20 | 0x7F => return Err("an escaped control character in the path"),
                _ => decoded.push(byte),
            }
        } else {
            if byte == b'/' {
                end_of_segment(decoded.last().copied().unwrap_or_default())?;
            } else {
                plain(byte)?;
            }
            decoded.push(byte);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    refuse_double_encoding(&decoded)?;
    let trailing_slash = decoded.last() == Some(&b'/');
    if trailing_slash {
        decoded.pop();
    } else {
        end_of_segment(decoded.last().copied().unwrap_or_default())?;
    }
    let mut text = String::with_capacity(bytes.len());
    for byte in decoded {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(percent_encoding::percent_encode_byte(byte));
        }
    }
    Ok(Canonical {
        text: Cow::Owned(text),
        trailing_slash,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(raw: &str) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        decode(&canonical(raw)?.text, &mut out);
        Ok(out)
    }

    #[test]
    fn where_case_does_not_matter_spellings_that_differ_in_it_are_one() {
        let folded = |raw| folded(canonical(raw)?).map(|c| c.text.into_owned());
        assert_eq!(folded("/Files/ReadMe"), Ok("/files/readme".into()));
        assert_eq!(folded("/FILES/%52eadme/"), Ok("/files/readme".into()));
        // The digits of an escape are no letters.
        assert_eq!(folded("/A%7fb%20C").ok(), None);
        assert_eq!(folded("/A%20C"), Ok("/a%20c".into()));
        assert_eq!(folded("/a%5BB"), folded("/A%5bb"));
        for beyond in ["/stra%C3%9Fe", "/%E2%84%AA", "/A%ff"] {
            assert!(folded(beyond).is_err(), "{beyond}");
        }
    }

    #[test]
    fn ambiguous_spellings_are_refused() {
        for raw in [
            "",
            "a",
            "*",
            "/a//b",
            "//",
            "//a",
            "/a//",
            "/./a",
            "/a/.",
            "/a/..",
            "/a/../b",
            "/..",
            "/a/%2e/b",
            "/a/%2E%2e/b",
            "/a/.%2e",
            "/a%2Fb",
            "/a%2fb",
            "/a%5Cb",
            "/a\\b",
            "/a%00",
            "/a%0A",
            "/a%7f",
            "/a;b",
            "/a%3Bb",
            "/a;",
            "/%2541",
            "/%25%34%31",
            "/%252e%252e/x",
            "/%25u002e",
            "/a.",
            "/a./b",
            "/a%2E",
            "/a%20",
            "/a%20/b",
            "/a%2E/b",
            "/%",
            "/%4",
            "/%zz",
            "/%u002e",
            "/%+1",
            "/a b",
            "/a\tb",
            "/café",
            "/%c0%af",
            "/%C1%81",
            "/%e0%80%af",
            "/%f0%80%80%af",
            "/%f8%80%80%80%af",
            "/%fc%80%80%80%80%af",
            "/.",
            "/ ",
            "/a/ /b",
        ] {
            assert!(canonical(raw).is_err(), "{raw}: {:?}", canonical(raw));
        }
    }

    #[test]
    fn spellings_of_one_path_have_one_key() {
        for (raw, expected) in [
            ("/b/k", "/b/k"),
            ("/b/%6B", "/b/k"),
            ("/b/%6b", "/b/k"),
            ("/%62/k", "/b/k"),
            ("/b/k/", "/b/k"),
            ("/a%20b", "/a b"),
            ("/a%21", "/a!"),
            ("/a!", "/a!"),
            ("/a%25", "/a%"),
            ("/a%25zz", "/a%zz"),
            ("/caf%c3%a9", "/café"),
            ("/%7Efence", "/~fence"),
            ("/...a", "/...a"),
            ("/.a", "/.a"),
            ("/a%3Fb", "/a?b"),
        ] {
            assert_eq!(key(raw).as_deref(), Ok(expected.as_bytes()), "{raw}");
        }
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        let found = canonical("/files/a/b.txt/").unwrap();
        assert!(matches!(found.text, Cow::Borrowed("/files/a/b.txt")) && found.trailing_slash);
        let root = canonical("/").unwrap();
        assert!(root.text == "/" && root.trailing_slash);
        assert!(!canonical("/a%20b").unwrap().trailing_slash);
    }

    /// What a lenient file server makes of a path: decodes, takes either slash, drops path
    /// parameters, dots and spaces at a segment's end, and walks.
    fn file(raw: &str) -> Vec<Vec<u8>> {
        let mut decoded: Vec<u8> = percent_encoding::percent_decode_str(raw).collect();
        if decoded.contains(&b'%') {
            decoded = percent_encoding::percent_decode(&decoded).collect();
        }
        let mut walked: Vec<Vec<u8>> = Vec::new();
        for segment in decoded.split(|b| matches!(b, b'/' | b'\\')) {
            let segment = segment.split(|&b| b == b';').next().unwrap_or_default();
            match segment {
                b"" | b"." => {}
                b".." => {
                    walked.pop();
                }
                name => {
                    let end = name
                        .iter()
                        .rposition(|b| !matches!(b, b'.' | b' '))
                        .map_or(0, |i| i + 1);
                    walked.push(name[..end].to_vec());
                }
            }
        }
        walked
    }

    fn odd_path() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => "[ab]", 3 => Just("/".to_owned()), 1 => "[.;\\\\ %]", 1 => "%(2[05eEfF]|5[cC]|6[12]|3[bB]|00|c3|A9)",
            1 => Just("..".to_owned()), 1 => Just("%25".to_owned()),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn two_spellings_of_one_file_have_one_key_or_are_refused(a in odd_path(), b in odd_path()) {
            if let (Ok(x), Ok(y)) = (key(&a), key(&b)) {
                prop_assert_eq!(x == y, file(&a) == file(&b), "{} {}", a, b);
            }
        }

        #[test]
        fn canonical_is_a_fixed_point(raw in odd_path()) {
            if let Ok(once) = canonical(&raw) {
                let twice = canonical(&once.text).unwrap();
                prop_assert_eq!(&twice.text, &once.text);
                prop_assert_eq!(twice.trailing_slash, once.text == "/");
            }
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = canonical(&String::from_utf8_lossy(&bytes));
            let _ = canonical(&format!("/{}", String::from_utf8_lossy(&bytes)));
        }

        #[test]
        fn any_name_has_a_spelling(name in "[a-zA-Z0-9 éü%?#+-]{1,12}x") {
            let spelt = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC).to_string();
            match key(&format!("/{spelt}")) {
                Ok(found) => prop_assert_eq!(found, format!("/{name}").into_bytes()),
                Err(why) => prop_assert_eq!(why, "the path is encoded twice"),
            }
        }
    }
}
