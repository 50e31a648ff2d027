//! Read or write: what a method does, and what it does when something overrides it.
//!
//! Knows nothing of paths or resources.

use super::marks::Marks;
use super::{header, query};
use crate::config::{Route, is_safe};
use http::request::Parts;
use http::{HeaderName, Method};

/// What a request may do to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing.
    Read,
    /// May change a resource.
    Write,
}

impl Class {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Headers by which some servers take another path than the request's: they are stripped. Also in
/// spellings with an underscore: see [`overrides_path`].
pub const PATH_OVERRIDES: [&str; 3] = ["x-original-url", "x-rewrite-url", "x-original-uri"];

/// Whether a header is one of [`PATH_OVERRIDES`], in any spelling.
#[must_use]
pub fn overrides_path(name: &HeaderName) -> bool {
    PATH_OVERRIDES
        .iter()
        .any(|known| header::twins(known, name.as_str()))
}

/// Whether some servers take a request's method from this header, in any spelling.
#[must_use]
pub fn overrides_method(name: &HeaderName) -> bool {
    METHOD_OVERRIDES
        .iter()
        .any(|known| header::twins(known, name.as_str()))
}

const METHOD_OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// The methods of a request: its own, and what overrides it.
#[derive(Clone, Debug)]
pub struct Methods {
    own: Method,
    over: Option<Method>,
}

impl Methods {
    /// Reads them.
    ///
    /// # Errors
    /// Where two overrides differ, or one is no method.
    pub fn of(parts: &Parts, marks: Marks) -> Result<Self, &'static str> {
        let mut over = None;
        if marks.overrides_method() {
            for (_, value) in parts
                .headers
                .iter()
                .filter(|(name, _)| overrides_method(name))
            {
                merge(&mut over, value.as_bytes())?;
            }
        }
        if let Some(query) = parts.uri.query() {
            let names = [
                "_method",
                METHOD_OVERRIDES[0],
                METHOD_OVERRIDES[1],
                METHOD_OVERRIDES[2],
            ];
            for value in query::all_like(query, &names) {
                let value: Vec<u8> = percent_encoding::percent_decode_str(value).collect();
                merge(&mut over, &value)?;
            }
        }
        Ok(Self {
            own: parts.method.clone(),
            over,
        })
    }

    /// One that nothing overrides.
    #[must_use]
    pub const fn only(own: Method) -> Self {
        Self { own, over: None }
    }

    /// The method that the request is judged by: an override counts, unless it would make a read of
    /// a write: an upstream that does not know overrides would write.
    #[must_use]
    pub fn judged(&self) -> &Method {
        match &self.over {
            Some(over) if is_safe(&self.own) || !is_safe(over) => over,
            _ => &self.own,
        }
    }

    /// Whether any of them is CONNECT.
    #[must_use]
    pub fn connects(&self) -> bool {
        self.all()
            .any(|method| method.as_str().eq_ignore_ascii_case("CONNECT"))
    }

    /// A write where the route takes any of them for one.
    #[must_use]
    pub fn class(&self, route: &Route) -> Class {
        if self.all().any(|method| route.is_write(method)) {
            Class::Write
        } else {
            Class::Read
        }
    }

    /// Whether the request may do something to all that lies below its path.
    #[must_use]
    pub fn reaches_below(&self) -> bool {
        let known = ["DELETE", "MOVE", "COPY", "LOCK"];
        self.all().any(|method| {
            let text = method.as_str();
            let is_it = |k: &&str| text.eq_ignore_ascii_case(k);
            *method != Method::PUT && known.iter().any(is_it) // most writes are a PUT
        })
    }

    /// Whether something overrides the request's own.
    #[must_use]
    pub const fn overridden(&self) -> bool {
        self.over.is_some()
    }

    /// Whether the request only copies. An override to COPY may be ignored: that is a MOVE.
    #[must_use]
    pub fn only_copies(&self) -> bool {
        self.all().all(|method| method == "COPY")
    }

    /// Whether the request has two ends, and so needs a `Destination`.
    #[must_use]
    pub fn needs_destination(&self) -> bool {
        matches!(self.judged().as_str(), "MOVE" | "COPY")
    }

    fn all(&self) -> impl Iterator<Item = &Method> {
        std::iter::once(&self.own).chain(&self.over)
    }
}

fn merge(over: &mut Option<Method>, text: &[u8]) -> Result<(), &'static str> {
    let method = Method::from_bytes(&text.trim_ascii().to_ascii_uppercase())
        .map_err(|_| "a method override that is no method")?;
    match over {
        Some(other) if *other != method => Err("two method overrides that differ"),
        _ => {
            *over = Some(method);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn methods(method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Methods, &'static str> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Methods::of(&parts, Marks::of(&parts.headers))
    }

    fn judged(method: &str, uri: &str, headers: &[(&str, &str)]) -> String {
        methods(method, uri, headers).unwrap().judged().to_string()
    }

    #[test]
    fn an_override_makes_a_read_a_write() {
        for name in [
            "X-HTTP-Method-Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X_HTTP_Method_Override",
        ] {
            assert_eq!(judged("GET", "/a", &[(name, "delete")]), "DELETE", "{name}");
        }
        for query in [
            "_method=DELETE",
            "%5Fmethod=delete",
            "a=1&_METHOD=DELETE",
            "a;_method=DELETE",
            "_method=%44ELETE",
            "_method%00=DELETE",
            "_method[]=DELETE",
        ] {
            assert_eq!(
                judged("GET", &format!("/a?{query}"), &[]),
                "DELETE",
                "{query}"
            );
        }
    }

    #[test]
    fn an_override_does_not_make_a_write_a_read() {
        let override_to_get = [("X-HTTP-Method-Override", "GET")];
        assert_eq!(judged("POST", "/a", &override_to_get), "POST");
        assert_eq!(
            judged("POST", "/a", &[("X-HTTP-Method-Override", "MOVE")]),
            "MOVE"
        );
    }

    #[test]
    fn overrides_that_differ_are_refused() {
        let two = [
            ("X-HTTP-Method-Override", "PUT"),
            ("X-HTTP-Method", "DELETE"),
        ];
        assert!(methods("POST", "/a", &two).is_err());
        assert!(methods("POST", "/a?_method=PUT", &two[1..]).is_err());
        assert!(methods("POST", "/a?_method=PUT&_method=DELETE", &[]).is_err());
        assert!(methods("POST", "/a?_method=PUT", &two[..1]).is_ok());
        assert!(methods("POST", "/a", &[("X-HTTP-Method", "PUT, GET")]).is_err());
        assert!(methods("POST", "/a", &[("X-HTTP-Method", "")]).is_err());
    }

    #[test]
    fn connect_cannot_hide() {
        assert!(
            methods("GET", "/a", &[("X-HTTP-Method", "connect")])
                .unwrap()
                .connects()
        );
    }

    #[test]
    fn only_a_plain_copy_copies() {
        assert!(methods("COPY", "/a", &[]).unwrap().only_copies());
        assert!(
            !methods("POST", "/a", &[("X-HTTP-Method", "COPY")])
                .unwrap()
                .only_copies()
        );
        assert!(!methods("PUT", "/a", &[]).unwrap().only_copies());
    }

    #[test]
    fn path_overrides_are_known_in_any_spelling() {
        for name in PATH_OVERRIDES {
            assert!(overrides_path(&HeaderName::from_static(name)), "{name}");
        }
        assert!(overrides_path(&HeaderName::from_static("x_rewrite_url")));
        assert!(!overrides_path(&HeaderName::from_static("x-forwarded-for")));
    }
}
