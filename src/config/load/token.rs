//! `token` of a route: where the token stands in a request, and how it is spelt.
//!
//! Knows nothing of the rest of the route.

use crate::config::settings::TokenPlace;
use crate::config::value::Value;
use crate::fence::Format;
use http::HeaderName;

/// A token in `Fencing-Token`, in decimal.
pub fn default() -> (TokenPlace, Format) {
    (
        TokenPlace::Header(vec![HeaderName::from_static("fencing-token")]),
        Format::U64,
    )
}

/// Reads the place and the format.
pub fn read(value: &Value<'_, '_>) -> Option<(TokenPlace, Format)> {
    let mut table = value.table()?;
    let formats = [
        ("u64", Format::U64),
        ("hex", Format::Hex),
        ("pair", Format::Pair),
    ];
    let format = table.read_or("format", Format::U64, |v| v.choice(&formats));
    let (header, query) = (table.get("header"), table.get("query"));
    let prefix = table.read("path_prefix", |v| {
        let on = v.flag()?;
        if !on {
            v.fault("is false: remove it");
        }
        on.then_some(())
    });
    let aliases = table.get("aliases");
    table.finish();
    if usize::from(header.is_some()) + usize::from(query.is_some()) + usize::from(prefix.is_some())
        > 1
    {
        value.fault("names more than one place: write header, query or path_prefix");
        return None;
    }
    if let (Some(aliases), true) = (&aliases, query.is_some() || prefix.is_some()) {
        aliases.fault("are names of a header: remove them");
    }
    if let Some(query) = query {
        return query_name(&query).map(|name| (TokenPlace::Query(name), format));
    }
    if prefix.is_some() {
        return Some((TokenPlace::PathPrefix, format));
    }
    let first = match header {
        Some(header) => header_name(&header)?,
        None => HeaderName::from_static("fencing-token"),
    };
    let mut names = vec![first];
    if let Some(aliases) = aliases {
        for name in aliases.list(header_name)? {
            if names.contains(&name) {
                aliases.fault(format!("{name} is named twice: name it once"));
            }
            names.push(name);
        }
    }
    Some((TokenPlace::Header(names), format))
}

fn query_name(value: &Value<'_, '_>) -> Option<String> {
    let name = value.text()?;
    let word = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if name.is_empty() || !name.bytes().all(word) {
        value.fault(format!(
            "\"{name}\" is no parameter name: use letters, digits and \"-._~\" only"
        ));
        return None;
    }
    Some(name.into())
}

fn header_name(value: &Value<'_, '_>) -> Option<HeaderName> {
    use http::header as h;
    let text = value.text()?;
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("\"{text}\" is no header name"));
    let name = value.check(name)?;
    let taken = [
        h::CONNECTION,
        h::CONTENT_LENGTH,
        h::HOST,
        h::TE,
        h::TRAILER,
        h::TRANSFER_ENCODING,
        h::UPGRADE,
    ];
    if taken.contains(&name)
        || matches!(
            name.as_str(),
            "keep-alive" | "destination" | "fencing-holder" | "fencing-token-destination"
        )
    {
        value.fault(format!(
            "{name} has another meaning: write a name such as \"Fencing-Token\""
        ));
        return None;
    }
    Some(name)
}
