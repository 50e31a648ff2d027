//! A server that decodes the path once, as far as it can be, joins it to its folder and asks the system
//! for the `realpath`: Python's `http.server`, and what people write themselves.

use super::{AboveRoot, File, decode, walk};

/// See [`super::Server`].
#[must_use]
pub fn file(path: &[u8]) -> Option<File> {
    let decoded = decode(path);
    if decoded.contains(&0) {
        return None; // no system call takes it
    }
    walk(&decoded, AboveRoot::Ignored)
}
