//! Another spelling of a path, made by edits that the fuzzer chooses.
//!
//! Some keep the file that a server finds under it, some do not: that is for the models to say.

use std::ops::Range;

/// How many edits make a spelling.
const EDITS: usize = 12;

/// The path with some edits done. Each is two bytes: what is done, and at which byte of the path (`0` is
/// the first; beyond the end it begins anew).
pub fn anew(path: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut text = path.to_vec();
    for edit in edits.chunks_exact(2).take(EDITS) {
        let at = usize::from(edit[1].wrapping_sub(b'0')) % (text.len() + 1);
        if let Some((range, new)) = edit_of(&text, edit[0], at) {
            text.splice(range, new);
        }
    }
    text
}

/// What an edit takes out, and what it puts there.
fn edit_of(text: &[u8], what: u8, at: usize) -> Option<(Range<usize>, Vec<u8>)> {
    let one = |new: &dyn Fn(u8) -> String| {
        let &byte = text.get(at)?;
        Some((at..at + 1, new(byte).into_bytes()))
    };
    let put = |new: &str| Some((at..at, new.as_bytes().to_vec()));
    let slash = |new: &str| {
        let at = next(text, at, b'/')?;
        Some((at..at + 1, new.as_bytes().to_vec()))
    };
    match what {
        // A byte is escaped: in small or capital digits, twice, wide, overlong.
        b'e' => one(&|b| format!("%{b:02x}")),
        b'E' => one(&|b| format!("%{b:02X}")),
        b'2' => one(&|b| format!("%25{b:02x}")),
        b'3' => one(&|b| {
            let digits = format!("{b:02x}");
            format!("%25{}", digits.bytes().map(escaped).collect::<String>())
        }),
        b'u' => one(&|b| format!("%u00{b:02x}")),
        b'U' => one(&|b| format!("%25u00{b:02x}")),
        b'4' => one(&|b| overlong(b, 2)),
        b'5' => one(&|b| overlong(b, 3)),
        b'6' => one(&|b| overlong(b, 4)),
        b'7' => one(&|b| overlong(b, 5)),
        b'8' => one(&|b| overlong(b, 6)),
        // An escape becomes its byte, or its digits change their case.
        b'D' => {
            let at = next(text, at, b'%')?;
            let digits = std::str::from_utf8(text.get(at + 1..at + 3)?).ok()?;
            let byte = u8::from_str_radix(digits, 16).ok()?;
            Some((at..at + 3, vec![byte]))
        }
        b'c' => {
            let at = next(text, at, b'%')?;
            let digits = text.get(at + 1..at + 3)?;
            let flipped = digits.iter().map(|b| match b {
                b'a'..=b'f' => b.to_ascii_uppercase(),
                _ => b.to_ascii_lowercase(),
            });
            Some((at + 1..at + 3, flipped.collect()))
        }
        // A letter changes its case.
        b'C' => {
            let &byte = text.get(at)?;
            Some((
                at..at + 1,
                vec![byte ^ (u8::from(byte.is_ascii_alphabetic()) << 5)],
            ))
        }
        // What means nothing to some server comes in between.
        b'/' => put("/"),
        b'.' => put("./"),
        b'd' => put("x/../"),
        b'h' => put("%2e/"),
        b'H' => put("x/%2E./"),
        b';' => put(";x=1"),
        b't' => put("."),
        b'T' => put("%2e"),
        b's' => put("%20"),
        b'0' => put("%00"),
        b'?' => put("?x"),
        b'#' => put("#x"),
        b'z' => Some((text.len()..text.len(), b"/".to_vec())),
        // A slash is spelt in another way.
        b'b' => slash("\\"),
        b'B' => slash("%5c"),
        b'f' => slash("%2f"),
        b'F' => slash("%2F"),
        _ => None,
    }
}

/// Where the byte comes next, at this place or after it.
fn next(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    let found = text.iter().skip(at).position(|&b| b == byte);
    found.map(|i| at + i)
}

fn escaped(byte: u8) -> String {
    format!("%{byte:02x}")
}

/// The byte in UTF-8 of more bytes than it needs, escaped.
fn overlong(byte: u8, length: usize) -> String {
    let mut bytes = vec![0x80; length];
    bytes[0] = [0xC0, 0xE0, 0xF0, 0xF8, 0xFC][length - 2];
    bytes[length - 2] |= byte >> 6;
    bytes[length - 1] |= byte & 0x3F;
    bytes.into_iter().map(escaped).collect()
}
