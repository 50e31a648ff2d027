//! Requests that are nearly a signed one. What the model says of each is what must become of it: some are
//! the same request in other words.

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, Uri};
use std::fmt::Write as _;

/// How many headers and pairs of the query are changed, each by itself.
const MOST: usize = 12;

/// For most requests, one of them is their own.
const METHODS: [Method; 3] = [Method::GET, Method::HEAD, Method::PUT];

/// What nobody signed.
const MORE: [(&str, &str); 4] = [
    ("x-amz-acl", "public-read"),
    ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
    ("fencing-token", "99"),
    ("content-type", "text/plain"),
];

/// The changed requests.
pub fn of(head: &Parts) -> Vec<Parts> {
    let mut all = Vec::new();
    for method in METHODS {
        let mut changed = head.clone();
        changed.method = method;
        all.push(changed);
    }
    for target in targets(head.uri.path(), head.uri.query()) {
        let mut parts = head.uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(target).ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            let mut changed = head.clone();
            changed.uri = uri;
            all.push(changed);
        }
    }
    for (name, value) in MORE {
        let mut changed = head.clone();
        let name = HeaderName::from_static(name);
        let value = HeaderValue::from_static(value);
        changed.headers.append(name, value);
        all.push(changed);
    }
    for name in head.headers.keys().take(MOST) {
        let mut changed = head.clone();
        changed.headers.remove(name);
        all.push(changed);
        for value in values(&head.headers[name]) {
            let mut changed = head.clone();
            changed.headers.insert(name, value);
            all.push(changed);
        }
        let mut changed = head.clone();
        changed.headers.append(name, head.headers[name].clone());
        all.push(changed);
    }
    all
}

/// Other targets, and other spellings of this one.
fn targets(path: &str, query: Option<&str>) -> Vec<String> {
    let with = |path: &str, pairs: &[&str]| format!("{path}?{}", pairs.join("&"));
    let pairs: Vec<&str> = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .collect();
    let mut more = pairs.clone();
    more.push("acl");
    let backwards: Vec<&str> = pairs.iter().rev().copied().collect();
    let spelt: Vec<String> = pairs.iter().map(|pair| spell(pair, '=')).collect();
    let spelt: Vec<&str> = spelt.iter().map(String::as_str).collect();
    let mut all = vec![
        with(&format!("{path}x"), &pairs),
        with(&format!("{path}/"), &pairs),
        with(&path.to_ascii_uppercase(), &pairs),
        with(&spell(path, '/'), &pairs),
        with(path, &more),
        with(path, &backwards),
        with(path, &spelt),
    ];
    for index in 0..pairs.len().min(MOST) {
        let mut fewer = pairs.clone();
        let pair = fewer.remove(index);
        all.push(with(path, &fewer));
        let mut other = pairs.clone();
        let longer = format!("{pair}0");
        other[index] = &longer;
        all.push(with(path, &other));
        let mut twice = pairs.clone();
        twice.push(pair);
        all.push(with(path, &twice));
    }
    all
}

/// The same with each letter and digit escaped.
fn spell(text: &str, kept: char) -> String {
    let mut spelt = String::new();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter == '%' || letter == kept || !letter.is_ascii_alphanumeric() {
            spelt.push(letter);
            // The digits of an escape are none of its letters.
            let digits = if letter == '%' { 2 } else { 0 };
            spelt.extend(rest.by_ref().take(digits));
        } else {
            let _ = write!(spelt, "%{:02x}", u32::from(letter));
        }
    }
    spelt
}

/// Other values of a header, and this one with other blanks.
fn values(value: &HeaderValue) -> Vec<HeaderValue> {
    let bytes = value.as_bytes();
    let blanks = bytes
        .split(|b| *b == b' ')
        .collect::<Vec<_>>()
        .join(&b" \t "[..]);
    [
        [bytes, b"0"].concat(),
        bytes.get(1..).unwrap_or_default().to_vec(),
        [b"\t", &*blanks, b" "].concat(),
        bytes.to_ascii_uppercase(),
    ]
    .into_iter()
    .filter_map(|bytes| HeaderValue::from_bytes(&bytes).ok())
    .collect()
}
