//! What a request asks of an object store, as far as its fence must know: which calls change the object that
//! their path names, and nothing else.
//!
//! The names are those of Amazon's S3 API. A call that is not known here is refused: it might change another
//! object than the one that is fenced.

use super::class::Class;
use super::dialect;
use super::found::Effect;
use http::request::Parts;
use http::{HeaderMap, Method};
use std::borrow::Cow;

pub const COPY_SOURCE: &str = "x-amz-copy-source";

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Read or write.
    pub class: Class,
    /// Its result stands in the body of a response whose head is sent before: it is answered at its end.
    pub reports_in_body: bool,
    /// Its body names the objects that it changes (`DeleteObjects`).
    pub lists_objects: bool,
    /// What it does to the object in its path.
    pub effect: Effect,
    /// The metadata of the object come with it.
    pub brings_metadata: bool,
    /// It reads another object.
    pub copies: bool,
}

const READ: Operation = Operation {
    class: Class::Read,
    reports_in_body: false,
    lists_objects: false,
    effect: Effect::Beside,
    brings_metadata: false,
    copies: false,
};
const WRITE: Operation = Operation {
    class: Class::Write,
    reports_in_body: false,
    lists_objects: false,
    effect: Effect::Beside,
    brings_metadata: false,
    copies: false,
};

impl Operation {
    /// What a request asks. `key`: its path names an object, not a bucket or the service.
    ///
    /// # Errors
    /// Why it is not let through: it changes more than one object, or is not known.
    pub fn of(parts: &Parts, key: bool) -> Result<Self, Cow<'static, str>> {
        let query = parts.uri.query().unwrap_or_default();
        let names: Vec<Cow<'_, str>> = names(query).collect();
        if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
            return Ok(READ);
        }
        if !matches!(parts.method, Method::PUT | Method::POST | Method::DELETE) {
            return Err("not a method of an object store".into());
        }
        if let Some(name) = dialect::unknown(&parts.headers, &names) {
            let name: String = name.chars().take(100).collect();
            return Err(format!("some store takes {name} for more than this object").into());
        }
        let mut asked: Vec<&str> = names
            .iter()
            .map(|name| &**name)
            .filter(|name| !signs(name))
            .collect();
        asked.sort_unstable();
        if !key && parts.method == Method::POST && asked == ["delete"] {
            return Ok(Self {
                reports_in_body: true,
                lists_objects: true,
                effect: Effect::Unconditional,
                ..WRITE
            });
        }
        if !key {
            return Err("the request is to a bucket, and may change every object in it".into());
        }
        let copies = copies(&parts.headers, &names);
        let reports_in_body = match (parts.method.as_str(), asked.as_slice()) {
            ("PUT", [] | ["partNumber", "uploadId"]) => copies,
            ("POST", ["uploadId"]) => true,
            (
                "PUT",
                ["acl" | "legal-hold" | "retention" | "tagging"]
                | ["acl" | "legal-hold" | "retention" | "tagging", "versionId"],
            )
            | ("POST", ["uploads" | "restore"] | ["restore", "versionId"])
            | ("DELETE", [] | ["tagging" | "uploadId" | "versionId"] | ["tagging", "versionId"])
                if !copies =>
            {
                false
            }
            _ => return Err("a call to the object store that the gateway does not know".into()),
        };
        let effect = match (parts.method.as_str(), asked.as_slice()) {
            ("PUT", []) | ("POST", ["uploadId"]) => Effect::Replaces,
            ("DELETE", []) => Effect::Removes,
            // The version before it may be what is seen then.
            ("DELETE", ["versionId"]) => Effect::Unconditional,
            _ => Effect::Beside,
        };
        let brings_metadata = (!copies || replaces_metadata(&parts.headers))
            && matches!(
                (parts.method.as_str(), asked.as_slice()),
                ("PUT", []) | ("POST", ["uploads"])
            );
        Ok(Self {
            reports_in_body,
            effect,
            brings_metadata,
            copies,
            ..WRITE
        })
    }
}

/// The names of the parameters of a query, decoded once.
fn names(query: &str) -> impl Iterator<Item = Cow<'_, str>> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            percent_encoding::percent_decode_str(name).decode_utf8_lossy()
        })
}

/// Whether a parameter says who asks and how, not what: a signature, or a header that was moved into the query
/// of a URL that was signed beforehand.
fn signs(name: &str) -> bool {
    let amazon = name
        .get(..6)
        .is_some_and(|head| head.eq_ignore_ascii_case("x-amz-"));
    amazon || matches!(name, "x-id" | "AWSAccessKeyId" | "Signature" | "Expires")
}

/// Whether a copy has metadata of its own.
fn replaces_metadata(headers: &HeaderMap) -> bool {
    let directive = headers.get("x-amz-metadata-directive");
    directive.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"REPLACE"))
}

fn copies(headers: &HeaderMap, names: &[Cow<'_, str>]) -> bool {
    let is_it = |name: &Cow<'_, str>| name.eq_ignore_ascii_case(COPY_SOURCE);
    headers.contains_key(COPY_SOURCE) || names.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn asks(
        method: &str,
        target: &str,
        header: Option<&str>,
    ) -> Result<Operation, Cow<'static, str>> {
        let mut request = Request::builder().method(method).uri(target);
        if let Some(name) = header {
            request = request.header(name, "other/key");
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Operation::of(&parts, target.starts_with("/b/k"))
    }

    #[test]
    fn calls_that_change_their_own_object_are_writes() {
        for (method, target, header, in_body) in [
            ("PUT", "/b/k", None, false),
            ("PUT", "/b/k?x-id=PutObject", None, false),
            ("PUT", "/b/k", Some("x-amz-copy-source"), true),
            ("PUT", "/b/k?partNumber=1&uploadId=u", None, false),
            (
                "PUT",
                "/b/k?uploadId=u&partNumber=1&x-id=UploadPart",
                None,
                false,
            ),
            (
                "PUT",
                "/b/k?partNumber=1&uploadId=u",
                Some("x-amz-copy-source"),
                true,
            ),
            (
                "PUT",
                "/b/k?X-Amz-Copy-Source=a%2Fb&X-Amz-Signature=s",
                None,
                true,
            ),
            (
                "PUT",
                "/b/k?X-Amz-Signature=s&X-Amz-Expires=60",
                None,
                false,
            ),
            (
                "PUT",
                "/b/k?AWSAccessKeyId=a&Signature=s&Expires=1",
                None,
                false,
            ),
            ("PUT", "/b/k?tagging", None, false),
            ("PUT", "/b/k?acl&versionId=v", None, false),
            ("POST", "/b/k?uploads", None, false),
            ("POST", "/b/k?uploads=", None, false),
            ("POST", "/b/k?uploadId=u", None, true),
            ("POST", "/b/k?restore", None, false),
            ("DELETE", "/b/k", None, false),
            ("DELETE", "/b/k?versionId=v", None, false),
            ("DELETE", "/b/k?uploadId=u", None, false),
        ] {
            let found = asks(method, target, header);
            let found =
                found.map(|found| (found.class, found.reports_in_body, found.lists_objects));
            assert_eq!(
                found,
                Ok((Class::Write, in_body, false)),
                "{method} {target} {header:?}"
            );
        }
    }

    #[test]
    fn calls_that_change_others_or_are_not_known_are_refused() {
        for (method, target, header) in [
            ("POST", "/b", None),
            ("POST", "/b?delete&delete", None),
            ("POST", "/b?delete&uploads", None),
            ("PUT", "/b?delete", None),
            ("PUT", "/b", None),
            ("PUT", "/b?versioning", None),
            ("DELETE", "/b", None),
            ("POST", "/b/k", None),
            ("POST", "/b/k?delete", None),
            ("POST", "/b/k?uploadId=u&delete", None),
            ("PUT", "/b/k?renameObject", None),
            ("PUT", "/b/k", Some("x-amz-rename-source")),
            ("DELETE", "/b/k", Some("x-minio-force-delete")),
            ("PUT", "/b/k", Some("x-amz-meta-snowball-auto-extract")),
            ("PUT", "/b/k?X-Amz-Rename-Source=a", None),
            ("PUT", "/b/k?partNumber=1", None),
            ("PUT", "/b/k?acl&acl", None),
            ("PUT", "/b/k?ACL", None),
            ("PUT", "/b/k?append&position=0", None),
            ("PUT", "/b/k?tagging", Some("x-amz-copy-source")),
            ("DELETE", "/b/k?anything", None),
            ("MOVE", "/b/k", None),
            ("PATCH", "/b/k", None),
            ("FOO", "/b/k", None),
        ] {
            assert!(
                asks(method, target, header).is_err(),
                "{method} {target} {header:?}"
            );
        }
    }

    #[test]
    fn what_takes_a_condition_is_told_apart() {
        for (method, target, effect) in [
            ("PUT", "/b/k", Effect::Replaces),
            (
                "PUT",
                "/b/k?x-id=PutObject&X-Amz-Signature=s",
                Effect::Replaces,
            ),
            ("POST", "/b/k?uploadId=u", Effect::Replaces),
            ("DELETE", "/b/k", Effect::Removes),
            ("DELETE", "/b/k?versionId=v", Effect::Unconditional),
            ("POST", "/b?delete", Effect::Unconditional),
            ("PUT", "/b/k?partNumber=1&uploadId=u", Effect::Beside),
            ("POST", "/b/k?uploads", Effect::Beside),
            ("DELETE", "/b/k?uploadId=u", Effect::Beside),
            ("PUT", "/b/k?tagging", Effect::Beside),
            ("DELETE", "/b/k?tagging", Effect::Beside),
        ] {
            assert_eq!(
                asks(method, target, None).unwrap().effect,
                effect,
                "{method} {target}"
            );
        }
        let copies = asks("PUT", "/b/k", Some("x-amz-copy-source"));
        assert_eq!(copies.unwrap().effect, Effect::Replaces);
    }

    #[test]
    fn the_objects_to_delete_are_named_in_the_body() {
        for target in ["/b?delete", "/b/?delete=", "/b?delete&x-id=DeleteObjects"] {
            assert!(
                asks("POST", target, None).unwrap().lists_objects,
                "{target}"
            );
        }
        assert!(!asks("DELETE", "/b/k", None).unwrap().lists_objects);
    }

    #[test]
    fn what_only_looks_is_a_read() {
        for (method, target) in [
            ("GET", "/b/k?versionId=v"),
            ("HEAD", "/b/k"),
            ("GET", "/b?list-type=2&prefix=a"),
            ("GET", "/"),
            ("OPTIONS", "/b/k"),
        ] {
            assert_eq!(asks(method, target, None), Ok(READ), "{method} {target}");
        }
    }
}
