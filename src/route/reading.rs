//! A path, read by the rules of each kind of service that it could be for.

use super::exact::Exact;
use super::path::Canonical;
use crate::config::{Kind, Route};

/// A path, read in the ways that the routes ask for.
pub(super) struct Readings<'a> {
    /// As a file server reads it, or why that could be done in more than one way.
    pub(super) plain: Result<Canonical<'a>, &'static str>,
    /// As an object store does. `None` where no route leads to one, or it is no path.
    pub(super) exact: Option<Exact>,
    /// As an object store does that takes the host for a bucket's. `None` where no route leads to such a one.
    pub(super) of_bucket: Option<OfBucket<'a>>,
}

/// The path of a request whose host names a bucket: with that before it.
pub(super) struct OfBucket<'a> {
    /// The host of the store itself.
    pub(super) store: &'a str,
    /// The bucket.
    pub(super) bucket: String,
    /// The path.
    pub(super) exact: Exact,
}

/// A path as patterns and templates see it.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// A slash stood at its end that is not part of it.
    pub(super) trailing_slash: bool,
    /// The path of an object store.
    pub(super) exact: Option<&'a Exact>,
    /// The bucket that the host names.
    pub(super) bucket: Option<&'a str>,
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
                exact: None,
                bucket: None,
            })),
            (Kind::Http, Err(why)) => Err(why),
            (Kind::S3, _) => Ok(self.exact.as_ref().map(Reading::exact)),
        }
    }

    /// As the store of a route reads it, where the host names a bucket of that store.
    pub(super) fn in_bucket(&self, route: &Route) -> Option<Reading<'_>> {
        let found = self.of_bucket.as_ref()?;
        let own = route.upstream.virtual_hosts && route.host.as_deref() == Some(found.store);
        own.then(|| Reading {
            bucket: Some(&found.bucket),
            ..Reading::exact(&found.exact)
        })
    }
}

impl<'a> Reading<'a> {
    fn exact(path: &'a Exact) -> Self {
        Self {
            text: &path.text,
            trailing_slash: false,
            exact: Some(path),
            bucket: None,
        }
    }
}
