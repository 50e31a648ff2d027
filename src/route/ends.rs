//! The other end of a request: what its `Destination` leads to.

use super::{
    DESTINATION_TOKEN, Destination, End, Head, Key, Match, Reject, Routes, destination, key, plain,
    target, tree,
};
use crate::config::Mode;
use http::uri::PathAndQuery;

impl Routes {
    /// Routes the `Destination` of a write as a request to it would be. Gives its key, where the
    /// route makes keys.
    pub(super) fn other_end<'a>(
        &'a self,
        head: &Head<'_>,
        found: &mut Match<'a>,
    ) -> Result<Option<Key>, Reject<'a>> {
        let own = found.route;
        let malformed = |why| Reject::Malformed {
            why,
            route: Some(own),
        };
        let forbidden = |why: &'static str| Reject::Forbidden {
            why: why.into(),
            route: own,
        };
        let headers = &head.parts.headers;
        let raw = match destination::of(headers, head.marks, head.host, self.path_tokens) {
            Ok(Some(raw)) => raw,
            Ok(None) if head.methods.needs_destination() && own.mode != Mode::Off => {
                return Err(malformed("a MOVE or COPY without a Destination"));
            }
            Ok(None) => return Ok(None),
            Err(destination::Bad::Malformed(why)) => return Err(malformed(why)),
            Err(destination::Bad::Elsewhere) => {
                return Err(forbidden("the Destination is on another host"));
            }
        };
        let readings = self.read(raw, head.host);
        let (entry, captures, path) = self
            .find(&readings, head)
            .map_err(|reject| reject.on(own))?;
        let route = &*entry.route;
        if route.upstream.index != own.upstream.index {
            return Err(forbidden("the Destination is in another upstream"));
        }
        if route.mode != own.mode {
            return Err(forbidden("the Destination is on a route of another mode"));
        }
        if raw.token.is_some() && (raw.token != found.token.as_deref() || route.token != own.token)
        {
            return Err(malformed("the Destination has another token than the path"));
        }
        if route.mode != Mode::Off && route.format != own.format {
            return Err(forbidden(
                "the Destination's route spells tokens in another way",
            ));
        }
        let own_token = headers.contains_key(DESTINATION_TOKEN);
        if route.mode != Mode::Off && route.namespace != own.namespace && !own_token {
            return Err(forbidden(
                "the Destination is in another namespace and has no token of its own",
            ));
        }
        let target = PathAndQuery::try_from(target::strip(raw.path, entry.strip));
        let target = target.map_err(|_| malformed("the Destination is malformed"))?;
        let facts = head.facts(path.text);
        let resource = if route.mode == Mode::Off {
            None
        } else {
            Some(key::of(route, &captures, facts).map_err(malformed)?)
        };
        let place = tree::Place {
            entry,
            facts,
            trailing_slash: path.trailing_slash,
            key: resource.as_ref(),
            end: End::Destination,
        };
        let tree = self.below(&place)?;
        plain::two_ends(head, target::strip(path.text, entry.strip), route, found);
        found.destination = Some(Destination {
            route,
            target,
            own_token,
        });
        Ok(resource.map(|resource| Key {
            resource,
            end: End::Destination,
            tree,
        }))
    }
}
