//! The `resource` of a route: how a request's parts make a resource key.
//!
//! Knows which parts it needs, not how to get them: whoever renders brings their values.

use super::pattern::PathPattern;
use http::HeaderName;
use std::fmt;

/// How many segments a prefix may have.
const MOST_SEGMENTS: usize = 64;

/// A resource template, such as `files/{key}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    covers_prefix: bool,
}

/// One part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text that stands for itself.
    Literal(String),
    /// `{name}`: a capture of the route's path.
    Capture(String),
    /// `{name:prefix(N)}`: the first segments of a capture, at most so many: one fence for all below.
    Prefix(String, usize),
    /// `{host}`: the request's host, lower case, without the port.
    Host,
    /// `{path}`: the whole path, from its first slash on.
    Path,
    /// `{header:Name}`
    Header(HeaderName),
    /// `{query:name}`
    Query(String),
}

impl Template {
    /// Reads a template whose captures are those of `pattern`.
    ///
    /// # Errors
    /// What is wrong with it and what to write instead, for the config's author.
    pub fn parse(text: &str, pattern: &PathPattern) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty: name what one lock protects, such as \"files/{key}\"".into());
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (literal, after) = rest
                .split_once('{')
                .map_or((rest, None), |(l, a)| (l, Some(a)));
            if literal.contains('}') || literal.chars().any(char::is_control) {
                return Err(format!(
                    "\"{text}\" has a stray \"}}\" or a control character"
                ));
            }
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.into()));
            }
            rest = match after {
                None => "",
                Some(after) => {
                    let Some((name, after)) = after.split_once('}') else {
                        return Err(format!("\"{text}\" opens a brace and does not close it"));
                    };
                    parts.push(placeholder(name, pattern)?);
                    after
                }
            };
        }
        let last = pattern.captures().next_back();
        let covers_prefix = !parts.iter().any(|part| match part {
            Part::Path => true,
            // Of a path that is shorter than the prefix, what lies below has another key.
            Part::Capture(name) | Part::Prefix(name, _) => Some(name.as_str()) == last,
            _ => false,
        });
        Ok(Self {
            text: text.into(),
            parts,
            covers_prefix,
        })
    }

    /// The template as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts, in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether a path has the same key as all that the route matches below it: the template uses
    /// neither the last capture of the path nor `{path}`.
    #[must_use]
    pub fn covers_prefix(&self) -> bool {
        self.covers_prefix
    }

    /// Whether no two paths of `pattern` have one key: every capture is there, whole, and a slash lies between any
    /// two of them.
    #[must_use]
    pub fn names_one(&self, pattern: &PathPattern) -> bool {
        let mut apart = true;
        for part in &self.parts {
            match part {
                Part::Path => return true,
                Part::Literal(text) => apart |= text.contains('/'),
                Part::Capture(_) if !apart => return false,
                // What else there is makes more keys of one path, not fewer.
                _ => apart = false,
            }
        }
        let named = |capture: &str| {
            let is_it = |part: &Part| matches!(part, Part::Capture(name) if name == capture);
            self.parts.iter().any(is_it)
        };
        pattern.captures().all(named)
    }

    /// Appends the key to `key`. `value` appends what a placeholder stands for.
    ///
    /// # Errors
    /// The first one that `value` gives.
    pub fn render<E>(
        &self,
        key: &mut Vec<u8>,
        mut value: impl FnMut(&Part, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in &self.parts {
            match part {
                Part::Literal(literal) => key.extend_from_slice(literal.as_bytes()),
                placeholder => value(placeholder, key)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(literal) => f.write_str(literal),
            Self::Capture(name) => write!(f, "{{{name}}}"),
            Self::Prefix(name, most) => write!(f, "{{{name}:prefix({most})}}"),
            Self::Host => f.write_str("{host}"),
            Self::Path => f.write_str("{path}"),
            Self::Header(name) => write!(f, "{{header:{name}}}"),
            Self::Query(name) => write!(f, "{{query:{name}}}"),
        }
    }
}

fn placeholder(name: &str, pattern: &PathPattern) -> Result<Part, String> {
    if pattern.captures().any(|capture| capture == name) {
        return Ok(Part::Capture(name.into()));
    }
    if let Some((capture, function)) = name.split_once(':')
        && pattern.captures().any(|known| known == capture)
    {
        let most = function
            .strip_prefix("prefix(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|digits| digits.parse::<usize>().ok())
            .filter(|most| (1..=MOST_SEGMENTS).contains(most));
        return most
            .map(|most| Part::Prefix(capture.into(), most))
            .ok_or_else(|| {
                format!("{{{name}}}: write {{{capture}:prefix(N)}}, with N from 1 to {MOST_SEGMENTS}, for its first N segments")
            });
    }
    if let Some(header) = name.strip_prefix("header:") {
        let header = HeaderName::from_bytes(header.as_bytes());
        return header
            .map(Part::Header)
            .map_err(|_| format!("\"{{{name}}}\" names no header"));
    }
    if let Some(query) = name.strip_prefix("query:") {
        let word = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if query.is_empty() || !query.bytes().all(word) {
            return Err(format!(
                "\"{{{name}}}\": a query parameter's name has letters, digits and \"-._~\" only"
            ));
        }
        return Ok(Part::Query(query.into()));
    }
    match name {
        "host" => Ok(Part::Host),
        "path" => Ok(Part::Path),
        _ => {
            let mut known: Vec<String> = pattern.captures().map(|c| format!("{{{c}}}")).collect();
            known.extend(["{host}", "{path}", "{header:Name}", "{query:name}"].map(String::from));
            Err(format!(
                "{{{name}}} is no capture of the path: there are {}",
                known.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str, path: &str) -> Result<Template, String> {
        Template::parse(text, &PathPattern::parse(path).unwrap())
    }

    #[test]
    fn reads_every_placeholder() {
        let text = "a/{id}/{host}{path}-{header:x-tenant}.{query:q}/{id:prefix(2)}";
        let made = template(text, "/x/{*id}").unwrap();
        assert_eq!(made.parts().len(), 11);
        let again: String = made.parts().iter().map(ToString::to_string).collect();
        assert_eq!(again, text);
    }

    #[test]
    fn refuses_what_it_cannot_fill() {
        for text in [
            "",
            "a/{key",
            "a}",
            "{}",
            "{header:}",
            "{header:a b}",
            "{query:}",
            "{query:a b}",
            "{id:prefix(0)}",
            "{id:prefix(65)}",
            "{id:prefix(x)}",
            "{id:suffix(1)}",
            "{key:prefix(1)}",
        ] {
            assert!(template(text, "/x/{id}").is_err(), "{text}");
        }
        let fault = template("a/{key}", "/x/{id}").unwrap_err();
        assert!(fault.contains("{key}") && fault.contains("{id}"), "{fault}");
    }

    #[test]
    fn covers_the_prefix_where_the_end_of_the_path_does_not_matter() {
        for (text, path, covers) in [
            ("job", "/job/{*rest}", true),
            ("job/{id}", "/job/{id}/{*rest}", true),
            ("job/{rest}", "/job/{id}/{*rest}", false),
            ("files/{key}", "/files/{*key}", false),
            ("files/{key:prefix(2)}", "/files/{*key}", false),
            ("s{path}", "/files/{*key}", false),
            ("one", "/one", true),
        ] {
            assert_eq!(
                template(text, path).unwrap().covers_prefix(),
                covers,
                "{text} {path}"
            );
        }
    }

    #[test]
    fn names_one_object_where_every_capture_is_there() {
        for (text, path, one) in [
            ("{bucket}/{key}", "/{bucket}/{*key}", true),
            ("s3/{key}/{bucket}", "/{bucket}/{*key}", true),
            ("{bucket}{key}", "/{bucket}/{*key}", false),
            ("{bucket}-{key}", "/{bucket}/{*key}", false),
            ("{bucket}", "/{bucket}/{*key}", false),
            ("{bucket}/{key:prefix(2)}", "/{bucket}/{*key}", false),
            ("{host}{key}", "/files/{*key}", false),
            ("{host}/{key}", "/files/{*key}", true),
            ("x{path}", "/files/{*key}", true),
            ("state", "/state", true),
            ("state", "/state/{*key}", false),
        ] {
            let pattern = PathPattern::parse(path).unwrap();
            let made = Template::parse(text, &pattern).unwrap();
            assert_eq!(made.names_one(&pattern), one, "{text} {path}");
        }
    }

    #[test]
    fn renders_its_parts_in_order() {
        let made = template("f/{key}/{host}", "/f/{*key}").unwrap();
        let mut key = b"head:".to_vec();
        let done: Result<(), ()> = made.render(&mut key, |part, out| {
            out.extend_from_slice(if *part == Part::Host { b"h" } else { b"k" });
            Ok(())
        });
        assert_eq!((done, key.as_slice()), (Ok(()), b"head:f/k/h".as_slice()));
        assert_eq!(
            made.render(&mut key, |_, _| Err("no value")),
            Err("no value")
        );
    }
}
