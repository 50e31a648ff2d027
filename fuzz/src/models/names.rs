//! Which headers and query parameters some server may take for one another, and what they say.

use super::decode;
use http::HeaderMap;

const OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// Whether some server takes a request's method from this header.
#[must_use]
pub fn overrides_method(name: &str) -> bool {
    OVERRIDES.contains(&header(name).as_str())
}

/// The name of a header as a server reads it that takes an underscore for a hyphen.
#[must_use]
pub fn header(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// The values of all headers that may be taken for one of these, with their own names.
#[must_use]
pub fn headers<'a>(headers: &'a HeaderMap, names: &[&str]) -> Vec<(&'a str, &'a [u8])> {
    headers
        .iter()
        .filter(|(name, _)| names.contains(&header(name.as_str()).as_str()))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect()
}

/// The names that `Connection` takes off.
#[must_use]
pub fn dropped(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all("connection").iter();
    let options = values.flat_map(|value| value.as_bytes().split(|&b| b == b','));
    options
        .map(|option| String::from_utf8_lossy(option).trim().to_ascii_lowercase())
        .collect()
}

/// The parameters of a query, in the reading of a server that splits at `;` too: names decoded, in
/// lower case and without blanks or plus signs around them, values as they stand.
#[must_use]
pub fn parameters(query: &str) -> Vec<(String, &str)> {
    query
        .split(['&', ';'])
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (parameter(name), value)
        })
        .collect()
}

fn parameter(name: &str) -> String {
    let decoded = decode(name.replace('+', " ").as_bytes());
    let name = String::from_utf8_lossy(&decoded).to_ascii_lowercase();
    name.trim_matches(['+', ' ']).to_owned()
}

/// Whether some server takes a parameter's name for the other: with an index (`id[]`), or cut at NUL.
#[must_use]
pub fn is_like(name: &str, wanted: &str) -> bool {
    name.split(['[', '\0']).next() == Some(wanted)
}

/// The bytes of a value.
#[must_use]
pub fn value(text: &str) -> Vec<u8> {
    decode(text.as_bytes())
}

/// All methods that some server may take a request for, in capitals: its own first.
#[must_use]
pub fn methods(own: &str, headers_of: &HeaderMap, query: &str) -> Vec<String> {
    let mut methods = vec![own.to_owned()];
    let capitals = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.trim_matches([' ', '\t', '\n', '\r', '\x0C'])
            .to_ascii_uppercase()
    };
    for (_, value) in headers(headers_of, &OVERRIDES) {
        methods.push(capitals(value));
    }
    for (name, text) in parameters(query) {
        let mut all = OVERRIDES.iter().chain(&["_method"]);
        if all.any(|wanted| is_like(&name, wanted)) {
            methods.push(capitals(&value(text)));
        }
    }
    methods
}
