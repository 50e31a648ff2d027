//! How others read what the gateway reads: written apart from the product, as simply as can be, and
//! never with its help.
//!
//! `nginx`, `httpd`, `plain` and `lenient` say which file a path names, `token` what a token is worth,
//! `names` which headers and parameters a server may take for one another, `signature` and `chunks` what
//! of a request and of its body is signed.

pub mod chunks;
pub mod httpd;
pub mod lenient;
pub mod names;
pub mod nginx;
pub mod plain;
pub mod signature;
pub mod token;

/// A file, as the names on the way to it from the root. A folder and a file of one name are one.
pub type File = Vec<Vec<u8>>;

/// Which file a server finds under a path; `None` where it refuses the path. The path is the request's
/// own, without a query.
pub type Server = fn(&[u8]) -> Option<File>;

/// The servers, by their names.
pub const SERVERS: [(&str, Server); 4] = [
    ("nginx", nginx::file),
    ("Apache httpd", httpd::file),
    ("a plain server", plain::file),
    ("a lenient server", lenient::file),
];

/// What becomes of `..` at the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AboveRoot {
    Refused,
    Ignored,
}

/// Walks a decoded path: empty segments and `.` are nothing, `..` is one up.
fn walk(decoded: &[u8], above: AboveRoot) -> Option<File> {
    let mut file = File::new();
    for name in decoded.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                if file.pop().is_none() && above == AboveRoot::Refused {
                    return None;
                }
            }
            name => file.push(name.to_vec()),
        }
    }
    Some(file)
}

/// The byte of the escape that the text begins with; `None` where it begins with none.
fn escape(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else {
        return None;
    };
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    };
    Some(digit(*high)? << 4 | digit(*low)?)
}

/// Decodes each escape once. `None` where a `%` begins no escape.
fn decode_strictly(text: &[u8]) -> Option<Vec<u8>> {
    let decoded = decode(text);
    let escapes = text.iter().filter(|&&b| b == b'%').count();
    // Each escape that was one is shorter by two bytes.
    (text.len() - decoded.len() == 2 * escapes).then_some(decoded)
}

/// Decodes each escape once, and leaves alone what is none.
#[must_use]
pub fn decode(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        match escape(text) {
            Some(byte) => {
                out.push(byte);
                text = &text[3..];
            }
            None => {
                out.push(first);
                text = rest;
            }
        }
    }
    out
}
