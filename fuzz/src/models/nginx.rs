//! nginx, with `merge_slashes` on, as it is by default (`ngx_http_parse_complex_uri`).
//!
//! It decodes once, before it looks at slashes and dots: an escaped slash is a slash there.

use super::{AboveRoot, File, decode_strictly, walk};

/// See [`super::Server`].
#[must_use]
pub fn file(path: &[u8]) -> Option<File> {
    let odd = |b: &u8| *b < 0x20 || *b == 0x7F || *b == b' ';
    if path.first() != Some(&b'/') || path.iter().any(odd) {
        return None;
    }
    let decoded = decode_strictly(path)?;
    if decoded.contains(&0) {
        return None;
    }
    walk(&decoded, AboveRoot::Refused)
}
