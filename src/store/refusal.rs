//! Why a store does not open, in words that tell an operator what to do next.
//!
//! Knows nothing of the engine's own errors beyond their text.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// A path with the folder that a relative one stands below.
fn absolute(path: &Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.into())
        .display()
        .to_string()
}

/// Why a store was not opened or not made. Unless it says otherwise, nothing was changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no store.
    #[error(
        "there is no fence store at {}. If there ever was one, start where it is, or mount or restore it: an \
         empty store forgets every fence. Only if there never was one, make it with `fencegate init`. If it is lost: \
         restore a backup; or, where the gateway signs for an object store, `fencegate init`, and `fencegate rebuild` \
         before the first `serve`",
        absolute(path)
    )]
    Missing {
        /// Where.
        path: PathBuf,
    },
    /// Another process has it open, or another store value in this process.
    #[error(
        "the fence store at {} is in use by another process. Stop that one, or give this gateway a store of its own",
        path.display()
    )]
    InUse {
        /// Where.
        path: PathBuf,
    },
    /// A file is lost or damaged, or the store holds less than it must.
    #[error(
        "the fence store at {} is damaged: {what}: {why}. Restore it from a backup; do not start over with \
         an empty one: a fence that is forgotten lets a zombie write",
        path.display()
    )]
    Damaged {
        /// Where.
        path: PathBuf,
        /// Which part.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The folder or a file in it cannot be written.
    #[error(
        "the fence store at {} cannot be written: {why}. Give this user the right to write there, on a file \
         system that is mounted for writing",
        path.display()
    )]
    NotWritable {
        /// Where.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The folder holds something else.
    #[error(
        "{} is not a fence store, and not empty: it holds {found:?}. Choose a folder that is empty or does not exist",
        path.display()
    )]
    Foreign {
        /// Where.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// Anything else, such as a full disk.
    #[error(
        "the fence store at {} cannot be used: {doing}: {why}. See to the cause, then try again",
        path.display()
    )]
    Other {
        /// Where.
        path: PathBuf,
        /// What was tried.
        doing: String,
        /// What the system said.
        why: String,
    },
}

impl OpenError {
    pub(super) fn damaged(path: &Path, what: impl Display, why: impl Display) -> Self {
        Self::Damaged {
            path: path.into(),
            what: what.to_string(),
            why: why.to_string(),
        }
    }

    pub(super) fn io(path: &Path, doing: impl Display, error: &io::Error) -> Self {
        let why = error.to_string();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable {
                    path: path.into(),
                    why: format!("{doing}: {why}"),
                }
            }
            _ => Self::Other {
                path: path.into(),
                doing: doing.to_string(),
                why,
            },
        }
    }

    /// Sorts an error of the engine at opening or at reading all.
    pub(super) fn engine(path: &Path, error: rocksdb::Error) -> Self {
        use rocksdb::ErrorKind::{Corruption, InvalidArgument, NotFound, NotSupported};
        let kind = error.kind();
        let why = error.into_string();
        let says = |texts: &[&str]| texts.iter().any(|text| why.contains(text));
        let lost = matches!(kind, Corruption | InvalidArgument | NotFound | NotSupported);
        if lost || says(&["No such file or directory"]) {
            return Self::damaged(path, "its database", why);
        }
        if says(&[
            "Permission denied",
            "Read-only file system",
            "Operation not permitted",
        ]) {
            return Self::NotWritable {
                path: path.into(),
                why,
            };
        }
        Self::Other {
            path: path.into(),
            doing: "opening its database".into(),
            why,
        }
    }
}
