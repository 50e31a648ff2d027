//! The headers and parameters of S3 calls: which are known to change no other object than the one in the path.
//!
//! Stores have extensions that do: one deletes all below a key, one unpacks an archive into many objects, one
//! renames. So what is not known here is not let through with a write.

use http::HeaderMap;
use std::borrow::Cow;

/// What begins with `x-amz-` and is known, less that.
const KNOWN: [&str; 33] = [
    "acl",
    "algorithm",
    "bypass-governance-retention",
    "content-sha256",
    "copy-source",
    "copy-source-range",
    "credential",
    "date",
    "decoded-content-length",
    "expected-bucket-owner",
    "expires",
    "if-match-last-modified-time",
    "if-match-size",
    "metadata-directive",
    "mfa",
    "mp-object-size",
    "request-payer",
    "s3session-token",
    "sdk-checksum-algorithm",
    "security-token",
    "signature",
    "signedheaders",
    "source-expected-bucket-owner",
    "storage-class",
    "tagging",
    "tagging-directive",
    "te",
    "trailer",
    "user-agent",
    "website-redirect-location",
    "write-offset-bytes",
    "server-side-encryption",
    "checksum-algorithm",
];

/// The same for families of names.
const FAMILIES: [&str; 7] = [
    "checksum-",
    "copy-source-if-",
    "copy-source-server-side-encryption-",
    "grant-",
    "meta-",
    "object-lock-",
    "server-side-encryption-",
];

/// Metadata that some stores act on.
const ACTIVE: [&str; 3] = ["meta-snowball-", "meta-minio-", "meta-rustfs-"];

/// What other stores' own headers begin with.
const VENDORS: [&str; 12] = [
    "x-minio-",
    "x-rustfs-",
    "x-oss-",
    "x-cos-",
    "x-obs-",
    "x-rgw-",
    "x-ceph-",
    "x-emc-",
    "x-goog-",
    "x-bz-",
    "x-ibm-",
    "x-swift-",
];

/// A header or parameter of a write that is not known, where there is one.
pub(super) fn unknown<'a>(
    headers: &'a HeaderMap,
    parameters: &'a [Cow<'_, str>],
) -> Option<&'a str> {
    let headers = headers.keys().map(http::HeaderName::as_str);
    let parameters = parameters.iter().map(|name| &**name);
    headers.chain(parameters).find(|name| !is_harmless(name))
}

/// Some servers take an underscore in a name for a hyphen.
fn is_harmless(name: &str) -> bool {
    if !name.starts_with(['x', 'X']) {
        return true; // most are
    }
    let spelt = name.to_ascii_lowercase();
    let name = spelt.replace('_', "-");
    let Some(amazons) = name.strip_prefix("x-amz-") else {
        return !VENDORS.iter().any(|vendor| name.starts_with(vendor));
    };
    let begins = |with: &&str| amazons.starts_with(*with);
    let family = || FAMILIES.iter().any(begins) && !ACTIVE.iter().any(begins);
    spelt == name && (KNOWN.contains(&amazons) || family())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn with(name: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("a"));
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.insert(name, HeaderValue::from_static("a"));
        unknown(&headers, &[]).is_none()
    }

    #[test]
    fn what_changes_the_object_alone_passes() {
        for name in [
            "x-amz-acl",
            "X-Amz-Content-SHA256",
            "x-amz-meta-owner",
            "x-amz-meta-owner_of",
            "x-amz-checksum-crc32c",
            "x-amz-server-side-encryption-customer-key-md5",
            "x-amz-object-lock-retain-until-date",
            "x-amz-copy-source-if-none-match",
            "x-forwarded-for",
            "x-request-id",
            "x-amzn-trace-id",
            "fencing-token",
        ] {
            assert_eq!(with(name), name != "x-amz-meta-owner_of", "{name}");
        }
        assert!(
            unknown(
                &HeaderMap::new(),
                &["X-Amz-Signature".into(), "partNumber".into()]
            )
            .is_none()
        );
    }

    #[test]
    fn what_stores_add_of_their_own_does_not() {
        for name in [
            "x-amz-rename-source",
            "x_amz_rename_source",
            "x_amz_copy_source",
            "x-minio-force-delete",
            "X-Minio-Extract",
            "x_minio_force_delete",
            "x-amz-meta-snowball-auto-extract",
            "x-amz-meta-minio-snowball-prefix",
            "x-amz-anything",
            "x-oss-callback",
            "x-goog-copy-source",
        ] {
            assert!(!with(name), "{name}");
            assert!(
                unknown(&HeaderMap::new(), &[name.into()]).is_some(),
                "{name}"
            );
        }
    }
}
