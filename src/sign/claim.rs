//! The signature that a request came with: read, and checked (Signature Version 4, in a header or in the query).
//!
//! Strict: what could be read in two ways, and what is left unsigned although it says what is to be done, is refused.
//! Pure but for the time of day, which comes from outside.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use ring::hmac;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
pub(super) const CONTENT_SHA256: &str = "x-amz-content-sha256";
pub(super) const DATE: &str = "x-amz-date";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// How far a client's clock may be off.
const SKEW: Duration = Duration::from_mins(15);
/// How long a URL may be good for, as Amazon has it.
const LONGEST: Duration = Duration::from_hours(7 * 24);
/// All but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A signature, as its request says what it is of.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    /// Whose it is said to be.
    pub(super) key_id: &'a str,
    /// `date/region/s3/aws4_request`
    scope: String,
    /// When it was made, as it spells that.
    date: String,
    at: SystemTime,
    /// How long it is good for; `None`: as long as clocks may be off.
    expires: Option<Duration>,
    signed: Vec<String>,
    signature: Vec<u8>,
    in_query: bool,
}

/// What a client is entitled by, for the chunks of its body.
pub(super) struct Proven {
    /// The key for this day, region and service.
    pub(super) key: hmac::Key,
    pub(super) scope: String,
    pub(super) date: String,
    /// The signature of the head: the first chunk's goes on from it.
    pub(super) seed: String,
}

/// Whether a parameter of the query says who asks by an older kind of signature, which is not known here.
pub(super) fn is_old(name: &str) -> bool {
    matches!(name, "AWSAccessKeyId" | "Signature" | "Expires")
}

/// Names of the query that say who asks, and not what.
pub(super) const QUERY: [&str; 7] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
];

impl<'a> Claim<'a> {
    /// Reads a request's signature, for stores in `region`.
    ///
    /// # Errors
    /// Why there is none that can be checked.
    pub(super) fn of(
        head: &'a Parts,
        region: &str,
        query: &'a [(String, String)],
    ) -> Result<Self, String> {
        let mut headers = head.headers.get_all(AUTHORIZATION).iter();
        let header = headers.next();
        if headers.next().is_some() {
            return Err("two Authorization headers".into());
        }
        let named = |name: &str| {
            let mut all = query.iter().filter(|(n, _)| n == name);
            let first = all.next().map(|(_, value)| value.as_str());
            first.filter(|_| all.next().is_none())
        };
        let in_query = query.iter().any(|(name, _)| name == QUERY[5]);
        let (credential, signed, signature, date, expires) = match header {
            Some(_) if in_query => {
                return Err("a signature in a header and another in the query".into());
            }
            Some(header) => {
                let text = header
                    .to_str()
                    .map_err(|_| "the signature cannot be read")?;
                let parts = text
                    .strip_prefix(ALGORITHM)
                    .ok_or("the request is not signed with AWS4-HMAC-SHA256")?;
                let field = |name: &str| {
                    let mut all = parts
                        .split(',')
                        .filter_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
                    let first = all.next();
                    first.filter(|_| all.next().is_none())
                };
                let date = single(&head.headers, DATE).ok_or("a signature without x-amz-date")?;
                (
                    field("Credential"),
                    field("SignedHeaders"),
                    field("Signature"),
                    date,
                    None,
                )
            }
            None if in_query => {
                if named(QUERY[0]) != Some(ALGORITHM) {
                    return Err("the URL is not signed with AWS4-HMAC-SHA256".into());
                }
                let expires = named(QUERY[3])
                    .and_then(|text| text.parse().ok())
                    .map(Duration::from_secs);
                let expires = expires
                    .filter(|span| *span <= LONGEST)
                    .ok_or("the URL does not say how long it is good for")?;
                let date = named(QUERY[2]).ok_or("the URL does not say when it was signed")?;
                (
                    named(QUERY[1]),
                    named(QUERY[4]),
                    named(QUERY[5]),
                    date,
                    Some(expires),
                )
            }
            None => return Err("the request is not signed".into()),
        };
        let fields = credential.zip(signed).zip(signature);
        let ((credential, signed), signature) = fields.ok_or("the signature lacks a part")?;
        let (key_id, scope) = credential
            .split_once('/')
            .ok_or("the credential has no scope")?;
        let day = date.get(..8).unwrap_or_default();
        let wanted = format!("{day}/{region}/s3/aws4_request");
        if scope != wanted {
            return Err(format!(
                "the signature is for {scope}, and not for {wanted}"
            ));
        }
        let signed: Vec<String> = signed.split(';').map(str::to_owned).collect();
        let sorted = signed.is_sorted_by(|a, b| a < b);
        let lower = signed
            .iter()
            .all(|name| !name.is_empty() && !name.bytes().any(|b| b.is_ascii_uppercase()));
        if !sorted || !lower || !signed.iter().any(|name| name == HOST.as_str()) {
            return Err(
                "the names of the signed headers are not in order, or the host is not among them"
                    .into(),
            );
        }
        Ok(Self {
            key_id,
            scope: wanted,
            date: date.to_owned(),
            at: moment(date).ok_or("the time of the signature cannot be read")?,
            expires,
            signed,
            signature: decoded(signature).ok_or("the signature is no hexadecimal number")?,
            in_query,
        })
    }

    /// Checks it with the secret of whose it is said to be. `host`: what the request names as its host.
    ///
    /// # Errors
    /// Why it does not hold.
    pub(super) fn check(
        self,
        head: &Parts,
        host: &str,
        query: &[(String, String)],
        tokens: &[&str],
        secret: &str,
        now: SystemTime,
    ) -> Result<Proven, String> {
        self.is_timely(now)?;
        let is_signed = |name: &str| self.signed.iter().any(|signed| signed == name);
        // A URL that was signed beforehand is in others' hands: who made it says with which token it is used.
        let says = |name: &&str| {
            let says = name.starts_with("x-amz-") || self.in_query && tokens.contains(name);
            says && !is_signed(name)
        };
        let mut names = head.headers.keys().map(http::HeaderName::as_str);
        if let Some(name) = names.find(says) {
            return Err(format!("{name} is not signed"));
        }
        let payload = match single(&head.headers, CONTENT_SHA256) {
            Some(payload) => payload,
            None if self.in_query => UNSIGNED,
            None => return Err("a signature without x-amz-content-sha256".into()),
        };
        let canonical = self.canonical(head, host, query, payload)?;
        let digest = hex(&Sha256::digest(&canonical));
        let text = format!("{ALGORITHM}\n{}\n{}\n{digest}", self.date, self.scope);
        let key = key(secret, &self.scope);
        hmac::verify(&key, text.as_bytes(), &self.signature)
            .map_err(|_| "the signature is not that of the request".to_owned())?;
        Ok(Proven {
            key,
            scope: self.scope,
            date: self.date,
            seed: hex(&self.signature),
        })
    }

    fn is_timely(&self, now: SystemTime) -> Result<(), String> {
        let late = now.duration_since(self.at).unwrap_or_default();
        let early = self.at.duration_since(now).unwrap_or_default();
        if early > SKEW || late > self.expires.unwrap_or(SKEW) {
            return Err(
                "the signature is not of this time: it has expired, or a clock is wrong".into(),
            );
        }
        Ok(())
    }

    fn canonical(
        &self,
        head: &Parts,
        host: &str,
        query: &[(String, String)],
        payload: &str,
    ) -> Result<String, String> {
        let path: Vec<u8> = percent_decode_str(head.uri.path()).collect();
        let path: Vec<String> = path.split(|b| *b == b'/').map(encode).collect();
        let mut pairs: Vec<(String, String)> = query
            .iter()
            .filter(|(name, _)| !(self.in_query && name == QUERY[5]))
            .map(|(name, value)| (encode(name.as_bytes()), encode(value.as_bytes())))
            .collect();
        pairs.sort();
        let pairs: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut text = format!("{}\n{}\n{}\n", head.method, path.join("/"), pairs.join("&"));
        for name in &self.signed {
            let value = if name == HOST.as_str() {
                host.to_owned()
            } else {
                value(&head.headers, name)?
            };
            let _ = writeln!(text, "{name}:{value}");
        }
        let _ = write!(text, "\n{}\n{payload}", self.signed.join(";"));
        Ok(text)
    }
}

/// The names and values of a query, decoded once.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, String> {
    let text = |part: &str| {
        let decoded = percent_decode_str(part).decode_utf8();
        decoded
            .map(String::from)
            .map_err(|_| "the query is not UTF-8".to_owned())
    };
    let all = query.split('&').filter(|pair| !pair.is_empty());
    all.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((text(name)?, text(value)?))
    })
    .collect()
}

/// The key for a day, a region and a service.
pub(super) fn key(secret: &str, scope: &str) -> hmac::Key {
    let secret = format!("AWS4{secret}");
    let first = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    scope.split('/').fold(first, |key, part| {
        let tag = hmac::sign(&key, part.as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
    })
}

/// All values of a header, as they are signed.
fn value(headers: &HeaderMap, name: &str) -> Result<String, String> {
    let mut values = Vec::new();
    for value in headers.get_all(name) {
        let text = value
            .to_str()
            .map_err(|_| format!("{name} cannot be read"))?;
        values.push(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
    }
    if values.is_empty() {
        return Err(format!("{name} is signed and is not there"));
    }
    Ok(values.join(","))
}

/// The value of a header that is there once.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?;
    let alone = all.next().is_none();
    first.to_str().ok().filter(|_| alone)
}

/// A time as `20130524T000000Z`, and in no other spelling.
fn moment(date: &str) -> Option<SystemTime> {
    let fits = |(at, byte): (usize, u8)| match at {
        8 => byte == b'T',
        15 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    if date.len() != 16 || !date.bytes().enumerate().all(fits) {
        return None;
    }
    let date = DateTime::strptime("%Y%m%dT%H%M%SZ", date).ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().into())
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    percent_encode(bytes.as_ref(), ENCODED).to_string()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits
        .collect::<Option<Vec<u8>>>()
        .filter(|bytes| bytes.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    /// The examples of Amazon's page on signing requests to S3.
    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const HOST_NAME: &str = "examplebucket.s3.amazonaws.com";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header("host", HOST_NAME);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn authorization(signed: &str, signature: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential={ID}/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},Signature={signature}"
        )
    }

    fn checked(head: &Parts, minutes_later: u64) -> Result<Proven, String> {
        let query = pairs(head.uri.query().unwrap_or_default())?;
        let claim = Claim::of(head, "us-east-1", &query)?;
        assert_eq!(claim.key_id, ID);
        let now = moment("20130524T000000Z").unwrap() + Duration::from_secs(60 * minutes_later);
        claim.check(head, HOST_NAME, &query, &["fencing-token"], SECRET, now)
    }

    fn get(range: &str) -> Parts {
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        let said = authorization("host;range;x-amz-content-sha256;x-amz-date", signature);
        let headers = [
            ("range", range),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
            ("authorization", &said),
        ];
        request("GET", "/test.txt", &headers)
    }

    #[test]
    fn amazons_examples_hold() {
        checked(&get("bytes=0-9"), 0).unwrap();
        checked(&get(" bytes=0-9 "), 14).unwrap();
        let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        let said = authorization(
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            signature,
        );
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            (
                "x-amz-content-sha256",
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
            ),
            ("authorization", &said),
        ];
        for target in ["/test%24file.text", "/test$file.text"] {
            checked(&request("PUT", target, &headers), 0).unwrap();
        }
        let target = format!(
            "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ID}%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        checked(&request("GET", &target, &[]), 60 * 24).unwrap();
        assert!(
            checked(&request("GET", &target, &[]), 60 * 24 + 1).is_err(),
            "expired"
        );
    }

    #[test]
    fn a_url_is_used_with_the_token_of_its_maker() {
        let target = format!(
            "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ID}%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
        );
        let head = request("GET", &target, &[("fencing-token", "99")]);
        assert!(checked(&head, 0).is_err());
        let mut head = get("bytes=0-9");
        let token = http::HeaderValue::from_static("99");
        head.headers.insert("fencing-token", token);
        assert!(
            checked(&head, 0).is_ok(),
            "who has the secret may leave it unsigned"
        );
    }

    #[test]
    fn what_is_not_what_was_signed_does_not_hold() {
        let fails = |change: &dyn Fn(&mut Parts)| {
            let mut head = get("bytes=0-9");
            change(&mut head);
            assert!(checked(&head, 0).is_err());
        };
        let insert = |head: &mut Parts, name: &'static str, value: &'static str| {
            head.headers
                .insert(name, http::HeaderValue::from_static(value));
        };
        fails(&|head| head.method = http::Method::PUT);
        fails(&|head| head.uri = "/test.txu".parse().unwrap());
        fails(&|head| head.uri = "/test.txt?acl".parse().unwrap());
        fails(&|head| insert(head, "range", "bytes=0-8"));
        fails(&|head| insert(head, "x-amz-content-sha256", "UNSIGNED-PAYLOAD"));
        fails(&|head| insert(head, "x-amz-acl", "public-read"));
        fails(&|head| insert(head, "x-amz-date", "20130524T000001Z"));
        fails(&|head| drop(head.headers.remove("range")));
        fails(&|head| {
            let other = http::HeaderValue::from_static("x");
            head.headers.append("authorization", other);
        });
        assert!(checked(&get("bytes=0-9"), 16).is_err(), "too old");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let signature = "f".repeat(64);
        for said in [
            "Basic eA==".to_owned(),
            "AWS4-HMAC-SHA256".to_owned(),
            authorization("host", "f"),
            authorization("host", &"x".repeat(64)),
            authorization("x-amz-date;host", &signature),
            authorization("Host", &signature),
            authorization("x-amz-date", &signature),
            authorization("host", &signature).replace("us-east-1", "eu-west-3"),
            authorization("host", &signature).replace("s3", "sts"),
            authorization("host", &signature) + ",Signature=" + &signature,
        ] {
            let headers = [
                ("x-amz-date", "20130524T000000Z"),
                ("authorization", &*said),
            ];
            let head = request("GET", "/", &headers);
            assert!(Claim::of(&head, "us-east-1", &[]).is_err(), "{said}");
        }
        let head = request("GET", "/", &[]);
        assert!(
            Claim::of(&head, "us-east-1", &[]).is_err(),
            "nothing at all"
        );
    }
}
