//! The `path` of a route: which paths it matches, what it captures, and (`meet`) where two of them meet.
//!
//! Works on canonical paths only (no escapes but of bytes that are not visible ASCII, no empty or
//! dot segments, no trailing slash); `route::path` makes them. Knows nothing of requests.

mod meet;

use std::fmt::Write as _;

/// A route's path, such as `/files/{*key}` or `/jobs/{id}/log`.
///
/// A literal stands for itself, `{name}` for one segment or a part of it, and `{*name}`, at the end,
/// for one or more segments.
#[derive(Clone, Debug)]
pub struct PathPattern {
    text: String,
    segments: Vec<Segment>,
    router: matchit::Router<()>,
}

/// The parts of a path that a pattern captured, by name, as they stand in the canonical path.
#[derive(Debug)]
pub struct Captures<'a>(matchit::Params<'a, 'a>);

impl<'a> Captures<'a> {
    /// What the capture of that name matched.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.get(name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Capture {
        prefix: String,
        name: String,
        suffix: String,
    },
    Rest {
        name: String,
        may_be_empty: bool,
    },
}

impl Segment {
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => literal == text,
            Self::Capture { prefix, suffix, .. } => {
                text.len() > prefix.len() + suffix.len()
                    && text.starts_with(prefix.as_str())
                    && text.ends_with(suffix.as_str())
            }
            Self::Rest { .. } => true,
        }
    }
}

impl PathPattern {
    /// Reads a pattern. A slash at its end is dropped, as it is from the paths that it matches.
    ///
    /// # Errors
    /// What is wrong with it and what to write instead, for the config's author.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(inner) = text.strip_prefix('/') else {
            return Err(format!(
                "\"{text}\" does not begin with a slash: write \"/{text}\""
            ));
        };
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut segments: Vec<Segment> = Vec::new();
        if !inner.is_empty() {
            for piece in inner.split('/') {
                if matches!(segments.last(), Some(Segment::Rest { .. })) {
                    return Err("a catch-all such as {*key} can only be the last segment".into());
                }
                segments.push(segment(piece)?);
            }
        }
        Self::build(segments)
    }

    /// The same pattern, whose catch-all also matches nothing: `/{*rest}` then matches `/` too.
    ///
    /// # Errors
    /// As [`PathPattern::parse`].
    pub fn with_empty_rest(mut self) -> Result<Self, String> {
        if let Some(Segment::Rest { may_be_empty, .. }) = self.segments.last_mut() {
            *may_be_empty = true;
        }
        Self::build(self.segments)
    }

    /// The same pattern; where it is a bucket and all keys in it, it also matches the bucket alone.
    #[must_use]
    pub fn with_buckets(self) -> Self {
        let all_keys = matches!(self.segments.as_slice(), [_, Segment::Rest { .. }]);
        if !all_keys {
            return self;
        }
        let same = self.clone();
        self.with_empty_rest().unwrap_or(same)
    }

    /// Whether all that it matches are objects in buckets, as an object store names them, or buckets.
    #[must_use]
    pub fn names_objects(&self) -> bool {
        self.segments.len() > 1 && !matches!(self.segments.first(), Some(Segment::Rest { .. }))
    }

    fn build(segments: Vec<Segment>) -> Result<Self, String> {
        let mut names: Vec<&str> = segments.iter().filter_map(name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find_map(|pair| match pair {
            [a, b] if a == b => Some(a),
            _ => None,
        }) {
            return Err(format!(
                "{{{twice}}} is captured twice: give each its own name"
            ));
        }
        let text = spell(&segments);
        let mut router = matchit::Router::new();
        router
            .insert(text.clone(), ())
            .map_err(|e| format!("\"{text}\" is not a path pattern: {e}"))?;
        if let Some(Segment::Rest {
            may_be_empty: true, ..
        }) = segments.last()
        {
            let parent = spell(&segments[..segments.len() - 1]);
            router
                .insert(parent, ())
                .map_err(|e| format!("\"{text}\" is not a path pattern: {e}"))?;
        }
        Ok(Self {
            text,
            segments,
            router,
        })
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of the captures, in order.
    pub fn captures(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.segments.iter().filter_map(name)
    }

    /// Matches a canonical path. Does not allocate for up to three captures.
    #[must_use]
    pub fn matches<'a>(&'a self, path: &'a str) -> Option<Captures<'a>> {
        self.router
            .at(path)
            .ok()
            .map(|found| Captures(found.params))
    }

    /// How many segments `prefix` has, where all that this pattern matches lies at or below it.
    #[must_use]
    pub fn segments_of_prefix(&self, prefix: &str) -> Option<usize> {
        let prefix = Self::parse(prefix).ok()?;
        let literal = prefix
            .segments
            .iter()
            .all(|s| matches!(s, Segment::Literal(_)));
        (literal && self.segments.starts_with(&prefix.segments)).then_some(prefix.segments.len())
    }
}

fn name(segment: &Segment) -> Option<&str> {
    match segment {
        Segment::Literal(_) => None,
        Segment::Capture { name, .. } | Segment::Rest { name, .. } => Some(name),
    }
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

fn spell(segments: &[Segment]) -> String {
    let mut text = String::new();
    for segment in segments {
        // Writing to a string cannot fail.
        let _ = match segment {
            Segment::Literal(literal) => write!(text, "/{literal}"),
            Segment::Capture {
                prefix,
                name,
                suffix,
            } => {
                write!(text, "/{prefix}{{{name}}}{suffix}")
            }
            Segment::Rest { name, .. } => write!(text, "/{{*{name}}}"),
        };
    }
    if text.is_empty() { "/".into() } else { text }
}

fn segment(piece: &str) -> Result<Segment, String> {
    if piece.is_empty() {
        return Err("a path pattern has no empty segments: write one slash between two".into());
    }
    let Some((prefix, rest)) = piece.split_once('{') else {
        return literal(piece, true).map(Segment::Literal);
    };
    let Some((name, suffix)) = rest.split_once('}') else {
        return Err(format!("\"{piece}\" opens a brace and does not close it"));
    };
    if suffix.contains('{') {
        return Err(format!(
            "\"{piece}\" has two captures: one segment can have one"
        ));
    }
    let (all, name) = name
        .strip_prefix('*')
        .map_or((false, name), |name| (true, name));
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || !name.bytes().all(word) {
        return Err(format!(
            "\"{{{name}}}\" is no capture: its name has letters, digits and \"_\" only"
        ));
    }
    if all && !(prefix.is_empty() && suffix.is_empty()) {
        return Err(format!("\"{piece}\": a catch-all is a segment of its own"));
    }
    if all {
        return Ok(Segment::Rest {
            name: name.into(),
            may_be_empty: false,
        });
    }
    let (prefix, suffix) = (literal(prefix, false)?, literal(suffix, true)?);
    Ok(Segment::Capture {
        prefix,
        name: name.into(),
        suffix,
    })
}

/// The canonical spelling of a literal; refuses what no canonical path has.
fn literal(text: &str, ends_segment: bool) -> Result<String, String> {
    if let Some(odd) = text
        .chars()
        .find(|c| "%\\;?#{}".contains(*c) || c.is_control())
    {
        return Err(format!(
            "{odd:?} cannot stand in a path pattern: write characters as they are, not as escapes"
        ));
    }
    if ends_segment && text.ends_with(['.', ' ']) {
        return Err(format!(
            "\"{text}\": a segment cannot end in a dot or a space"
        ));
    }
    let mut canonical = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() {
            canonical.push(char::from(byte));
        } else {
            let _ = write!(canonical, "%{byte:02X}");
        }
    }
    Ok(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap()
    }

    #[test]
    fn captures_by_name() {
        let route = pattern("/a/{id}/img-{n}.png");
        let found = route.matches("/a/7/img-3.png").unwrap();
        assert_eq!(
            (found.get("id"), found.get("n"), found.get("x")),
            (Some("7"), Some("3"), None)
        );
        assert!(route.matches("/a/7/img-3.jpg").is_none());
        assert_eq!(
            pattern("/f/{*key}").matches("/f/a/b").unwrap().get("key"),
            Some("a/b")
        );
        assert!(pattern("/f/{*key}").matches("/f").is_none());
        assert!(pattern("/").matches("/").is_some());
    }

    #[test]
    fn a_trailing_slash_is_not_part_of_it() {
        assert_eq!(pattern("/files/").as_str(), "/files");
        assert!(pattern("/files/").matches("/files").is_some());
    }

    #[test]
    fn literals_are_matched_in_canonical_spelling() {
        assert!(
            pattern("/café au lait/{x}")
                .matches("/caf%C3%A9%20au%20lait/1")
                .is_some()
        );
    }

    #[test]
    fn an_empty_rest_can_be_allowed() {
        let all = pattern("/{*rest}").with_empty_rest().unwrap();
        assert!(all.matches("/").is_some() && all.matches("/a/b").is_some());
        let below = pattern("/x/{*rest}").with_empty_rest().unwrap();
        assert!(below.matches("/x").is_some() && below.matches("/xx").is_none());
        assert!(below.overlaps(&pattern("/x")) && !pattern("/x/{*rest}").overlaps(&pattern("/x")));
    }

    #[test]
    fn refuses_what_is_no_pattern() {
        for text in [
            "", "files", "/a//b", "/{*a}/b", "/x{*a}", "/{a}{b}", "/{a", "/{}", "/{a-b}", "/a}",
            "/{a}/{a}", "/a%20b", "/a;b", "/a?b", "/./a", "/a./b", "/{{a}}", "/a\\b", "/{a}.",
        ] {
            let made = PathPattern::parse(text);
            assert!(made.is_err(), "{text}: {made:?}");
        }
    }

    #[test]
    fn covers_what_it_takes_whole() {
        for (a, b, expected) in [
            ("/{*rest}", "/files/{*key}", true),
            ("/files/{*key}", "/files/{*other}", true),
            ("/files/{*key}", "/files/{a}/{b}", true),
            ("/files/{a}", "/files/b", true),
            ("/files/{a}", "/files/{*key}", false),
            ("/files/{a}/{*b}", "/files/{*key}", false),
            ("/~{user}/{*path}", "/{dir}/{*path}", false),
            ("/{dir}/{*path}", "/~{user}/{*path}", true),
            ("/a{x}", "/ab{x}", true),
            ("/ab{x}", "/a{x}", false),
            ("/files/a", "/files/{b}", false),
            ("/files/{*key}", "/files", false),
        ] {
            assert_eq!(pattern(a).covers(&pattern(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn overlaps_where_a_path_matches_both() {
        let cases = [
            ("/files/{*key}", "/files/a", true),
            ("/files/{*key}", "/files", false),
            ("/files/{*key}", "/{*rest}", true),
            ("/a/{id}/b", "/a/x/{*rest}", true),
            ("/a/{id}/b", "/a/x/c", false),
            ("/a/{id}", "/a/{id}/b", false),
            ("/img-{n}", "/{x}.png", true),
            ("/img-{n}", "/pic-{n}", false),
            ("/img-{n}", "/img-", false),
            ("/", "/{*rest}", false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(pattern(a).overlaps(&pattern(b)), expected, "{a} {b}");
            assert_eq!(pattern(b).overlaps(&pattern(a)), expected, "{b} {a}");
        }
    }

    #[test]
    fn finds_a_path_below() {
        let below = |p: &str, path: &str| pattern(p).path_below(0, path);
        assert_eq!(
            below("/files/{*key}", "/files").as_deref(),
            Some("/files/~0~")
        );
        assert_eq!(
            below("/files/{*key}", "/files/a/b").as_deref(),
            Some("/files/a/b/~0~")
        );
        assert_eq!(below("/a/{id}/b", "/a/5").as_deref(), Some("/a/5/b"));
        assert_eq!(below("/a/{id}/b", "/").as_deref(), Some("/a/~1~/b"));
        assert_eq!(below("/a/{id}", "/a/5"), None);
        assert_eq!(below("/a/{id}/b", "/c"), None);
        let stripped = pattern("/api/{*rest}").path_below(1, "/x");
        assert_eq!(stripped.as_deref(), Some("/api/x/~0~"));
    }

    #[test]
    fn a_prefix_is_of_whole_literal_segments() {
        let route = pattern("/api/v1/{*rest}");
        assert_eq!(route.segments_of_prefix("/api"), Some(1));
        assert_eq!(route.segments_of_prefix("/api/v1/"), Some(2));
        assert_eq!(route.segments_of_prefix("/ap"), None);
        assert_eq!(route.segments_of_prefix("/api/v1/{*rest}"), None);
    }

    fn any_pattern() -> impl Strategy<Value = String> {
        let piece = prop_oneof!["[ab]", Just("{X}".to_owned()), "[ab]\\{X\\}", "\\{X\\}[ab]"];
        (prop::collection::vec(piece, 0..4), any::<bool>()).prop_map(|(pieces, rest)| {
            let mut text = String::new();
            for (i, piece) in pieces.iter().enumerate() {
                text.push('/');
                text.push_str(&piece.replace('X', &format!("c{i}")));
            }
            if rest || text.is_empty() {
                text.push_str("/{*rest}");
            }
            text
        })
    }

    proptest! {
        #[test]
        fn meetings_match_both(a in any_pattern(), b in any_pattern()) {
            let (a, b) = (pattern(&a), pattern(&b));
            for path in a.meetings(0, &b, 0) {
                prop_assert!(a.matches(&path).is_some() && b.matches(&path).is_some(), "{}", path);
            }
        }

        #[test]
        fn what_covers_another_matches_all_its_paths(
            a in any_pattern(), b in any_pattern(), path in "(/[ab]{1,3}){1,5}",
        ) {
            let (a, b) = (pattern(&a), pattern(&b));
            if a.covers(&b) {
                prop_assert!(b.matches(&path).is_none() || a.matches(&path).is_some(), "{}", path);
                prop_assert!(a.overlaps(&b) || b.meetings(0, &b, 0).is_empty());
            }
        }

        #[test]
        fn a_path_that_matches_both_is_an_overlap(
            a in any_pattern(), b in any_pattern(), path in "(/[ab]{1,3}){1,4}",
        ) {
            let (a, b) = (pattern(&a), pattern(&b));
            if a.matches(&path).is_some() && b.matches(&path).is_some() {
                prop_assert!(a.overlaps(&b));
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = PathPattern::parse(&text);
        }
    }
}
