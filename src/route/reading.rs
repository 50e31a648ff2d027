//! A path, read by the rules of each kind of service that it could be for.

use super::exact::Exact;
use super::path::Canonical;
use crate::config::Kind;

/// A path, read in the ways that the routes ask for.
pub(super) struct Readings<'a> {
    /// As a file server reads it, or why that could be done in more than one way.
    pub(super) plain: Result<Canonical<'a>, &'static str>,
    /// As an object store does. `None` where no route leads to one, or it is no path.
    pub(super) exact: Option<Exact>,
}

/// A path as patterns and templates see it.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// A slash stood at its end that is not part of it.
    pub(super) trailing_slash: bool,
}

impl Readings<'_> {
    /// As a service of this kind reads it. `None` where it is no path there.
    ///
    /// # Errors
    /// Why it could be read in more than one way. Of an object store's path that is said once its route is known.
    pub(super) fn of(&self, kind: Kind) -> Result<Option<Reading<'_>>, &'static str> {
        match (kind, &self.plain) {
            (Kind::Http, Ok(path)) => Ok(Some(Reading {
                text: &path.text,
                trailing_slash: path.trailing_slash,
            })),
            (Kind::Http, Err(why)) => Err(why),
            (Kind::S3, _) => Ok(self.exact.as_ref().map(|path| Reading {
                text: &path.text,
                trailing_slash: false,
            })),
        }
    }
}
