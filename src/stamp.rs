//! Whether a file has changed since it was last looked at.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// What tells one state of a file from another: when it was last changed, its length and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(Option<(SystemTime, u64, u64)>);

impl Stamp {
    /// The file's present state; all files that cannot be looked at have the same.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let stamp =
            |found: std::fs::Metadata| Some((found.modified().ok()?, found.len(), found.ino()));
        Self(path.metadata().ok().and_then(stamp))
    }
}
