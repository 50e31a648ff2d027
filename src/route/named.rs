//! A request whose body names the objects that it changes: each is routed as a request to delete it would be.

use super::class::Methods;
use super::exact::Exact;
use super::marks::Marks;
use super::target::Split;
use super::{Head, Keys, Match, Reject, Routes, host, key, listing, plain};
use crate::config::Mode;
use http::Method;
use http::request::Parts;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::BTreeSet;

impl Routes {
    /// Completes what is known of a request to a bucket, by its body: it is on the route of the objects, and has
    /// the key of each. They are all of one route, so that one set of rules and one token hold for all.
    ///
    /// # Errors
    /// [`Reject`]: the body is no list, an object is ambiguous, or they are those of several routes,
    /// or only created.
    pub fn named<'r>(
        &'r self,
        bucket: &mut Match<'r>,
        parts: &Parts,
        body: &[u8],
    ) -> Result<(), Reject<'r>> {
        let own = bucket.route;
        let malformed = |why| Reject::Malformed {
            why,
            route: Some(own),
        };
        let head = Head {
            parts,
            marks: Marks::of(&parts.headers),
            methods: Methods::only(Method::DELETE),
            host: host::of(parts).map_err(malformed)?,
        };
        // As it came: a host may name the bucket.
        let name = parts.uri.path().trim_end_matches('/');
        let mut on = None;
        let (mut resources, mut others) = (BTreeSet::new(), Vec::new());
        for object in listing::keys(body).map_err(malformed)? {
            let path = format!("{name}/{}", utf8_percent_encode(&object, NON_ALPHANUMERIC));
            let split = Split {
                path: &path,
                token: None,
            };
            let readings = self.read(split, head.host);
            let found = self.find(&readings, &head);
            let (entry, captures, reading) = found.map_err(|reject| reject.on(own))?;
            let route = &*entry.route;
            let another = on.is_some_and(|other| other != route.index);
            if another || route.upstream.index != own.upstream.index {
                let why = "the objects in the list are those of several routes".into();
                return Err(Reject::Forbidden { why, route: own });
            }
            on = Some(route.index);
            let fault = |path: &Exact| path.fault_before(&route.upstream);
            if let Some(why) = reading.exact.and_then(fault) {
                return Err(malformed(why));
            }
            if route.is_guarded()
                && let Some(path) = reading.exact
            {
                others.push(path.text.as_str().into());
            }
            if route.mode != Mode::Off {
                let facts = head.facts(reading.text);
                resources.insert(key::of(route, &captures, facts).map_err(malformed)?);
            }
        }
        let on = on.and_then(|index| self.entries.get(index));
        bucket.route = on.map_or(own, |entry| &*entry.route);
        bucket.keys = Keys::many(resources);
        bucket.others = others;
        plain::conditional(bucket)?;
        Ok(())
    }
}
