//! Headers that decide: exactly one value, that every server would read alike.
//!
//! Knows nothing of what they decide.

use super::marks::Marks;
use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Why a header cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ambiguous {
    /// It is there twice, or under two of its names.
    #[error("a header that decides is given more than once")]
    Twice,
    /// Its name is there with an underscore for a hyphen: many servers take the two for one.
    #[error("a header that decides is spelt with an underscore")]
    Underscore,
    /// `Connection` names it, so that it would be dropped on the way.
    #[error("a header that decides is named in Connection")]
    Connection,
}

/// The only value that the request has under any of these names. `marks`: those of the same headers.
///
/// # Errors
/// [`Ambiguous`]
pub fn only<'a>(
    headers: &'a HeaderMap,
    names: &[HeaderName],
    marks: Marks,
) -> Result<Option<&'a HeaderValue>, Ambiguous> {
    let mut found = None;
    for (name, value) in headers {
        let text = name.as_str();
        // Both a name and its twin are as long as it: most headers are done with here.
        for wanted in names {
            let wanted = wanted.as_str();
            if wanted.len() != text.len() {
                continue;
            }
            if wanted == text {
                if found.replace(value).is_some() {
                    return Err(Ambiguous::Twice);
                }
            } else if twins(wanted, text) && !names.contains(name) {
                return Err(Ambiguous::Underscore);
            }
        }
    }
    if found.is_some()
        && marks.connection()
        && headers
            .get_all(CONNECTION)
            .iter()
            .any(|value| is_named(value, names))
    {
        return Err(Ambiguous::Connection);
    }
    Ok(found)
}

/// Whether both names are one to a server that takes an underscore for a hyphen.
#[must_use]
pub fn twins(a: &str, b: &str) -> bool {
    let hyphen = |b: u8| if b == b'_' { b'-' } else { b };
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .all(|(a, b)| hyphen(a) == hyphen(b))
}

fn is_named(connection: &HeaderValue, names: &[HeaderName]) -> bool {
    connection.as_bytes().split(|&b| b == b',').any(|option| {
        let option = option.trim_ascii();
        names
            .iter()
            .any(|name| option.eq_ignore_ascii_case(name.as_str().as_bytes()))
    })
}
