//! A request to an object store: what it may change, by its call, its bucket and its key.

use super::class::{Class, Methods};
use super::exact::Exact;
use super::operation::{COPY_SOURCE, Operation};
use super::target::Split;
use super::{Effect, End, Head, Key, Keys, Match, Reject, Routes, Tree, host};
use crate::config::{Mode, Route};
use crate::fence::ResourceKey;
use http::Method;

impl Routes {
    /// Completes what is known of a request to an object store. `key` makes the key of its path on a route.
    ///
    /// # Errors
    /// [`Reject`], for what must go no further.
    pub(super) fn object<'r>(
        &'r self,
        head: &Head<'_>,
        path: Option<&Exact>,
        found: &mut Match<'r>,
        key: impl FnOnce(&Route) -> Result<ResourceKey, &'static str>,
    ) -> Result<(), Reject<'r>> {
        let route = found.route;
        let malformed = |why| Reject::Malformed {
            why,
            route: Some(route),
        };
        if let Some(why) = path.and_then(|path| path.fault_before(&route.upstream)) {
            return Err(malformed(why));
        }
        if head.methods.overridden() {
            return Err(malformed("a method override, which no object store knows"));
        }
        if head.marks.destination() {
            return Err(malformed("a Destination, which no object store knows"));
        }
        if head
            .parts
            .uri
            .query()
            .is_some_and(|query| query.contains(';'))
        {
            return Err(malformed("a semicolon in the query: write %3B"));
        }
        let has_key = path.is_some_and(Exact::has_key);
        let operation = match Operation::of(head.parts, has_key) {
            Ok(operation) => Some(operation),
            Err(why) if self.enforces(route) => return Err(Reject::Forbidden { why, route }),
            Err(_) => None,
        };
        found.class = operation.map_or(Class::Write, |operation| operation.class);
        found.answered_at_end = operation.is_some_and(|operation| operation.reports_in_body);
        // Who signs for others reads for them too: no more than they may.
        if route.upstream.sign && operation.is_some_and(|operation| operation.copies) {
            self.copied(head, route)?;
        }
        found.effect = operation.map_or(Effect::Unconditional, |operation| operation.effect);
        found.brings_metadata = operation.is_some_and(|operation| operation.brings_metadata);
        if has_key && route.is_guarded() {
            found.object = path.map(|path| path.text.as_str().into());
        }
        if operation.is_some_and(|operation| operation.lists_objects) {
            // Where nothing of the store is fenced, nobody has to know them.
            found.lists_objects = self.fences(route);
            return Ok(());
        }
        let asks = found.class == Class::Write || route.raise_on_read;
        if route.mode == Mode::Off || !asks {
            return Ok(());
        }
        let resource = match key(route) {
            Ok(resource) => resource,
            // A listing raises where the bucket is the resource, and else passes.
            Err(_) if !has_key => return Ok(()),
            Err(why) => return Err(malformed(why)),
        };
        found.keys = Some(Keys::one(Key {
            resource,
            end: End::Request,
            // Where nothing is enforced, that it would be refused is noted.
            tree: if operation.is_some() {
                Tree::No
            } else {
                Tree::Refuse
            },
        }));
        Ok(())
    }

    /// Whether the object that a copy is made of could be read by a request to it.
    fn copied<'r>(&'r self, head: &Head<'_>, own: &'r Route) -> Result<(), Reject<'r>> {
        let malformed = |why| Reject::Malformed {
            why,
            route: Some(own),
        };
        let mut named = head.parts.headers.get_all(COPY_SOURCE).iter();
        let (Some(source), None) = (named.next(), named.next()) else {
            return Err(malformed(
                "a copy whose source is not one x-amz-copy-source",
            ));
        };
        let source = source
            .to_str()
            .map_err(|_| malformed("a copy source that cannot be read"))?;
        let (path, _) = source.split_once('?').unwrap_or((source, ""));
        let path = format!("/{}", path.trim_start_matches('/'));
        let split = Split {
            path: &path,
            token: None,
        };
        // Its bucket stands in it, whatever the host says.
        let named = own.host.as_deref().and_then(|host| host::parse(host).ok());
        let as_read = Head {
            parts: head.parts,
            marks: head.marks,
            methods: Methods::only(Method::GET),
            host: named.or(head.host),
        };
        let readings = self.read(split, as_read.host);
        let (entry, _, reading) = self
            .find(&readings, &as_read)
            .map_err(|reject| reject.on(own))?;
        match reading.exact {
            Some(path) if path.fault_before(&own.upstream).is_none() && path.has_key() => {}
            _ => {
                return Err(malformed(
                    "a copy source that names no object, or in more than one way",
                ));
            }
        }
        if entry.route.upstream.index != own.upstream.index {
            let why = "the source of the copy is in another upstream".into();
            return Err(Reject::Forbidden { why, route: own });
        }
        Ok(())
    }

    /// Whether a request that may change any object of this route's store would go past a fence.
    #[must_use]
    pub fn enforces(&self, own: &Route) -> bool {
        let mut fencing = self.fencing(own);
        fencing.any(|route| route.mode == Mode::Enforce)
    }

    /// Whether any object of the store has a fence, or would have one.
    fn fences(&self, own: &Route) -> bool {
        self.fencing(own).next().is_some()
    }

    fn fencing(&self, own: &Route) -> impl Iterator<Item = &Route> {
        let store = own.upstream.index;
        let fences = self.entries.iter().filter(|entry| entry.fences);
        let routes = fences.map(|entry| &*entry.route);
        routes.filter(move |route| route.upstream.index == store)
    }
}
