//! Apache httpd with `AllowEncodedSlashes Off` and `MergeSlashes On`, as they are by default.
//!
//! An escaped slash or NUL is 404 there. Newer versions refuse `..` at the root, older ones ignore it:
//! here it is ignored, so that more paths name a file.

use super::{AboveRoot, File, decode_strictly, escape, walk};

/// See [`super::Server`].
#[must_use]
pub fn file(path: &[u8]) -> Option<File> {
    let refused = |at: usize| matches!(escape(&path[at..]), Some(b'/' | 0));
    if path.first() != Some(&b'/') || (0..path.len()).any(refused) {
        return None;
    }
    walk(&decode_strictly(path)?, AboveRoot::Ignored)
}
