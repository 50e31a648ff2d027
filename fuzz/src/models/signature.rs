//! Signature Version 4 for Amazon S3, written from Amazon's description of it: what a request says of its
//! signature, what of the request is signed, and how.
//!
//! Two requests have one signature where their [`Signed`] are equal, compared part by part: so this
//! does not hang on how the parts are written one after another. Where the gateway refuses what Amazon may
//! take, or bears more than Amazon describes, it is said at the spot.

use super::decode;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use ring::hmac;
use sha2::{Digest, Sha256};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const QUARTER: i64 = 15 * 60;
const WEEK: i64 = 7 * 24 * 3600;

/// What whoever checks a signature knows.
pub struct Gate {
    /// Access keys and their secrets.
    pub clients: [(&'static str, &'static str); 2],
    /// Where the store is said to be.
    pub region: &'static str,
    /// The headers that say which token a request has, in lower case.
    pub tokens: &'static [&'static str],
    /// In seconds since 1970.
    pub now: i64,
}

/// A request's own account of its signature.
pub struct Claim {
    /// Whose it is said to be.
    pub key_id: String,
    /// As it is spelt.
    pub signature: String,
    /// What it is of.
    pub signed: Signed,
    /// Why the request is refused even where its signature is right.
    pub fault: Option<&'static str>,
}

/// All that is signed of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// When, as in `20130524T000000Z`.
    pub date: String,
    /// `20130524/us-east-1/s3/aws4_request`
    pub scope: String,
    /// Its method.
    pub method: String,
    /// Its path, decoded.
    pub path: Vec<u8>,
    /// The names and values of its query, decoded, in their order as bytes, less the signature.
    pub query: Vec<(Vec<u8>, Vec<u8>)>,
    /// The signed headers, with one value each.
    pub headers: Vec<(String, String)>,
    /// What it says of its body.
    pub payload: String,
}

/// Where a signature stands, and what is said with it.
struct Said {
    credential: String,
    names: String,
    signature: String,
    date: String,
    /// How many seconds it is good for.
    span: i64,
    in_url: bool,
}

/// The first thing that is wrong.
#[derive(Default)]
struct Fault(Option<&'static str>);

impl Fault {
    fn unless(&mut self, fits: bool, why: &'static str) {
        if !fits {
            self.0.get_or_insert(why);
        }
    }

    /// The first, which should be the only one.
    fn only<T>(&mut self, mut all: impl Iterator<Item = T>) -> Option<T> {
        let first = all.next();
        let fits = first.is_some() && all.next().is_none();
        self.unless(fits, "a part is missing, or there twice");
        first
    }

    /// What is not in visible ASCII is refused: nobody says how it would be signed.
    fn text(&mut self, value: &HeaderValue) -> String {
        let visible = |b: &u8| matches!(b, b'\t' | b' '..=b'~');
        self.unless(
            value.as_bytes().iter().all(visible),
            "a header that is no text",
        );
        String::from_utf8_lossy(value.as_bytes()).into_owned()
    }

    /// A header that stands once.
    fn one(&mut self, headers: &HeaderMap, name: &str) -> Option<String> {
        let only = self.only(headers.get_all(name).iter())?;
        Some(self.text(only))
    }

    /// All values of a header, as Amazon has it: without blanks around, one where there were several, between
    /// commas.
    fn all(&mut self, headers: &HeaderMap, name: &str) -> String {
        self.unless(
            headers.contains_key(name),
            "a header that is signed and not there",
        );
        let values = headers.get_all(name).iter().map(|value| {
            let text = self.text(value);
            let words = text.split([' ', '\t']).filter(|word| !word.is_empty());
            words.collect::<Vec<_>>().join(" ")
        });
        values.collect::<Vec<_>>().join(",")
    }
}

/// Reads a request's signature, as far as there is one. `host`: what the request names as its host.
#[must_use]
pub fn claim(gate: &Gate, head: &Parts, host: &str) -> Option<Claim> {
    let mut fault = Fault::default();
    let mut query = pairs(head.uri.query().unwrap_or_default());
    let utf8 = |text: &Vec<u8>| std::str::from_utf8(text).is_ok();
    let texts = query.iter().all(|(name, value)| utf8(name) && utf8(value));
    fault.unless(texts, "Amazon's names and values are UTF-8");
    let said = said(&mut fault, head, &query)?;
    if said.in_url {
        query.retain(|(name, _)| name != b"X-Amz-Signature");
    }
    query.sort();
    let at = seconds(&said.date);
    let timely = at.is_some_and(|at| at - gate.now <= QUARTER && gate.now - at <= said.span);
    fault.unless(timely, "not of this time, or of no time at all");
    let (key_id, scope) = said.credential.split_once('/')?;
    let day = said.date.get(..8).unwrap_or_default();
    let ours = scope
        .split('/')
        .eq([day, gate.region, "s3", "aws4_request"]);
    fault.unless(ours, "for another day, region or service");
    let names: Vec<&str> = said.names.split(';').collect();
    let in_order = names.windows(2).all(|two| two[0] < two[1]);
    let small = names.iter().all(|name| **name == name.to_ascii_lowercase());
    // So Amazon wants them.
    fault.unless(in_order && small, "names out of order, or in capitals");
    fault.unless(names.contains(&"host"), "no host among the names");
    for name in head.headers.keys().map(http::HeaderName::as_str) {
        // Amazon wants the first. The second is the gateway's own: a URL is in others' hands.
        let must = name.starts_with("x-amz-") || said.in_url && gate.tokens.contains(&name);
        fault.unless(
            !must || names.contains(&name),
            "a header that has to be signed",
        );
    }
    let mut headers = Vec::new();
    for name in names {
        let value = match name {
            "host" => host.to_owned(),
            name => fault.all(&head.headers, name),
        };
        headers.push((name.to_owned(), value));
    }
    let of_body = "x-amz-content-sha256";
    let payload = if said.in_url && head.headers.get_all(of_body).iter().count() != 1 {
        // One that is there twice is as none: whoever signed both says nothing of the body.
        "UNSIGNED-PAYLOAD".to_owned()
    } else {
        fault.one(&head.headers, of_body).unwrap_or_default()
    };
    Some(Claim {
        key_id: key_id.to_owned(),
        signature: said.signature,
        fault: fault.0,
        signed: Signed {
            date: said.date,
            scope: scope.to_owned(),
            method: head.method.to_string(),
            path: decode(head.uri.path().as_bytes()),
            query,
            headers,
            payload,
        },
    })
}

fn said(fault: &mut Fault, head: &Parts, query: &[(Vec<u8>, Vec<u8>)]) -> Option<Said> {
    let in_url = query.iter().any(|(name, _)| name == b"X-Amz-Signature");
    if head.headers.contains_key("authorization") {
        fault.unless(!in_url, "two signatures");
        in_header(fault, &head.headers)
    } else if in_url {
        in_query(fault, query)
    } else {
        None
    }
}

/// `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`; other fields, and other blanks, are borne.
fn in_header(fault: &mut Fault, headers: &HeaderMap) -> Option<Said> {
    let text = fault.one(headers, "authorization")?;
    let rest = text.strip_prefix(ALGORITHM);
    fault.unless(rest.is_some(), "another algorithm");
    let fields = rest.unwrap_or(&text).split(',');
    let fields: Vec<(&str, &str)> = fields
        .filter_map(|field| field.trim_matches([' ', '\t']).split_once('='))
        .collect();
    let mut get = |wanted: &str| {
        let all = fields.iter().filter(|(name, _)| *name == wanted);
        fault.only(all).map(|(_, value)| (*value).to_owned())
    };
    Some(Said {
        credential: get("Credential")?,
        names: get("SignedHeaders")?,
        signature: get("Signature")?,
        date: fault.one(headers, "x-amz-date")?,
        span: QUARTER,
        in_url: false,
    })
}

fn in_query(fault: &mut Fault, query: &[(Vec<u8>, Vec<u8>)]) -> Option<Said> {
    let mut get = |wanted: &str| {
        let all = query.iter().filter(|(name, _)| name == wanted.as_bytes());
        let (_, value) = fault.only(all)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let (algorithm, span) = (get("X-Amz-Algorithm"), get("X-Amz-Expires")?);
    let mut said = Said {
        credential: get("X-Amz-Credential")?,
        names: get("X-Amz-SignedHeaders")?,
        signature: get("X-Amz-Signature")?,
        date: get("X-Amz-Date")?,
        span: 0,
        in_url: true,
    };
    fault.unless(algorithm.as_deref() == Some(ALGORITHM), "another algorithm");
    // A sign before it is borne, and zeros.
    let digits = span.strip_prefix('+').unwrap_or(&span);
    let number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    fault.unless(number, "no span of time");
    let digits = digits.trim_start_matches('0').bytes().take(9);
    said.span = digits.fold(0, |n, b| 10 * n + i64::from(b) - i64::from(b'0'));
    fault.unless(said.span <= WEEK, "longer than a week");
    Some(said)
}

impl Signed {
    /// What is signed with a secret, in hexadecimal digits.
    #[must_use]
    pub fn signature(&self, secret: &str) -> String {
        let request = hex(Sha256::digest(self.canonical_request()).as_slice());
        let text = [ALGORITHM, &self.date, &self.scope, &request].join("\n");
        self.mac(secret, &text)
    }

    /// Signs a text with the key of the day, the region and the service.
    #[must_use]
    pub fn mac(&self, secret: &str, text: &str) -> String {
        let mac = |key: &[u8], text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        };
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in self.scope.split('/') {
            key = mac(&key, part);
        }
        hex(&mac(&key, text))
    }

    fn canonical_request(&self) -> String {
        let mut query: Vec<_> = self
            .query
            .iter()
            .map(|(n, v)| (escape(n), escape(v)))
            .collect();
        query.sort();
        let query: Vec<String> = query.into_iter().map(|(n, v)| n + "=" + &v).collect();
        let segments = self.path.split(|b| *b == b'/');
        let path: Vec<String> = segments.map(escape).collect();
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(n, v)| format!("{n}:{v}\n"))
            .collect();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        [
            &*self.method,
            &path.join("/"),
            &query.join("&"),
            &headers.concat(),
            &names.join(";"),
            &self.payload,
        ]
        .join("\n")
    }
}

/// The secret of a request that bears one, in the place of a signature.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    let mut fault = Fault::default();
    let text = fault.one(headers, "authorization")?;
    let (scheme, secret) = text.split_once(' ')?;
    let is_one = fault.0.is_none() && scheme.eq_ignore_ascii_case("bearer");
    is_one.then(|| secret.trim_matches([' ', '\t']).to_owned())
}

/// Names and values, decoded; empty pairs are none.
fn pairs(query: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    for pair in query.as_bytes().split(|&b| b == b'&') {
        let mut parts = pair.splitn(2, |&b| b == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        if !pair.is_empty() {
            pairs.push((decode(name), decode(value.unwrap_or_default())));
        }
    }
    pairs
}

/// Seconds since 1970 of a time such as `20130524T000000Z`; a leap second is the one before it.
fn seconds(date: &str) -> Option<i64> {
    let (day_of, time) = date.strip_suffix('Z')?.split_once('T')?;
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if day_of.len() != 8 || time.len() != 6 || !digits(day_of) || !digits(time) {
        return None;
    }
    let number = |text: &str| text.parse::<i64>().ok();
    let year = number(&day_of[..4])?;
    let (month, day) = (number(&day_of[4..6])?, number(&day_of[6..])?);
    let hour = number(&time[..2])?;
    let (minute, second) = (number(&time[2..4])?, number(&time[4..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = |month: i64| match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let a_day = (1..=12).contains(&month) && (1..=length(month)).contains(&day);
    if !a_day || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let leaps = |years: i64| years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
    let years = 365 * (year - 1970) + leaps(year - 1) - leaps(1969);
    let days = years + (1..month).map(length).sum::<i64>() + day - 1;
    Some(((24 * days + hour) * 60 + minute) * 60 + second.min(59))
}

/// Amazon's `UriEncode`: all but letters, digits, `-`, `.`, `_` and `~`.
fn escape(bytes: &[u8]) -> String {
    let one = |b: &u8| match b {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(*b).to_string()
        }
        b => format!("%{b:02X}"),
    };
    bytes.iter().map(one).collect()
}

/// Hexadecimal digits, in small letters.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digit = |b: u8| char::from(b"0123456789abcdef"[usize::from(b)]);
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}
