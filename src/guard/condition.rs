//! The gateway's condition and the client's own on one request.
//!
//! A client's condition is never weakened. Any strong one is a guard by itself: a write that was sent before the
//! newer holder's can name only states that were there before, or that there is none.
//! Pure: works on headers.

use super::pin::ETag;
use http::header::{IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What the gateway asks of the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// That there is none yet.
    Create,
    /// That it is in this state.
    Match(ETag),
}

/// What of the resource a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Whether there is any (`If-None-Match: *`).
    Create,
    /// Which state it is in (`If-Match`).
    Match,
}

/// Whose condition a request goes out with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The gateway's: where it does not hold, somebody wrote past the gateway. `alone`: no other condition can be
    /// why the resource refuses.
    Ours { alone: bool },
    /// The client's. `pinned`: it says what the gateway believes, so that it holds unless that is wrong.
    Clients { pinned: bool },
}

/// What a request goes out with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) whose: Whose,
    pub(super) test: Test,
    /// What is put on it; `None`: it is there.
    put: Option<(HeaderName, HeaderValue)>,
}

/// What holds for a request, whatever its headers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// The gateway's condition must hold whatever the client asks; else a strong condition of the client's will do.
    pub(super) always: bool,
    /// What the client sent stays as it is: it may have signed it.
    pub(super) exact: bool,
    /// It takes the resource away.
    pub(super) removes: bool,
}

/// The client's condition and the gateway's cannot both be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clash(pub(super) &'static str);

impl Sent {
    /// Puts it on the request.
    pub(super) fn put(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.put {
            headers.insert(name.clone(), value.clone());
        }
    }
}

const REWRITTEN: Clash = Clash(
    "its condition is weaker than that of the route's guard and may be signed: send If-Match with the object's ETag, or If-None-Match: *, or none",
);

/// What a request with these headers is to go out with.
///
/// # Errors
/// [`Clash`]
pub(super) fn plan(ours: &Condition, headers: &HeaderMap, how: How) -> Result<Sent, Clash> {
    let matches = Asked::of(headers, &IF_MATCH, how.exact)?;
    let differs = Asked::of(headers, &IF_NONE_MATCH, how.exact)?;
    let alone = !headers.keys().any(is_another);
    let own = |test, value: HeaderValue| {
        let name = match test {
            Test::Create => IF_NONE_MATCH,
            Test::Match => IF_MATCH,
        };
        Ok(Sent {
            whose: Whose::Ours { alone },
            test,
            put: Some((name, value)),
        })
    };
    let clients = |test, pinned| {
        Ok(Sent {
            whose: Whose::Clients { pinned },
            test,
            put: None,
        })
    };
    match (ours, matches, differs) {
        (Condition::Create, Asked::Nothing, Asked::Any) => clients(Test::Create, true),
        (Condition::Create, Asked::Tags(_), _) if !how.always => clients(Test::Match, false),
        (Condition::Create, Asked::Tags(_) | Asked::Any, _) => Err(Clash(
            "If-Match asks for an object that is there, and the route's guard for one that is not",
        )),
        (Condition::Match(_), _, Asked::Any) if how.removes => Err(Clash(
            "If-None-Match: * asks that there is nothing to take away",
        )),
        (Condition::Match(_), _, Asked::Any) => clients(Test::Create, false),
        (_, Asked::Nothing, Asked::Tags(_)) | (_, Asked::Any, _) if how.exact => Err(REWRITTEN),
        (Condition::Create, Asked::Nothing, _) => own(Test::Create, HeaderValue::from_static("*")),
        (Condition::Match(_), Asked::Nothing, _) if headers.contains_key(IF_UNMODIFIED_SINCE) => {
            Err(Clash(
                "If-Unmodified-Since means nothing beside the If-Match of the route's guard: send If-Match with the object's ETag in its place",
            ))
        }
        (Condition::Match(etag), Asked::Nothing | Asked::Any, _) => {
            own(Test::Match, etag.value().clone())
        }
        (Condition::Match(etag), Asked::Tags(tags), _) => {
            let pinned = tags.contains(etag);
            let narrowed = (pinned && !how.exact).then(|| (IF_MATCH, etag.value().clone()));
            clients(Test::Match, pinned).map(|sent| Sent {
                put: narrowed,
                ..sent
            })
        }
    }
}

/// Whether a header is a condition beside the two of the object itself.
fn is_another(name: &HeaderName) -> bool {
    let name = name.as_str();
    matches!(name, "if" | "if-none-match" | "if-unmodified-since")
        || name.starts_with("x-amz-copy-source-if-")
        || name.starts_with("x-amz-if-match-")
}

/// What a client's condition names.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// `*`
    Any,
    /// These, the strong ones of them.
    Tags(Vec<ETag>),
}

impl Asked {
    /// `bare`: one without quotes is a validator as well, as object stores have it.
    fn of(headers: &HeaderMap, name: &HeaderName, bare: bool) -> Result<Self, Clash> {
        const UNREADABLE: Clash = Clash("If-Match or If-None-Match cannot be read");
        let mut found = Self::Nothing;
        for value in headers.get_all(name) {
            let mut rest = value.as_bytes().trim_ascii();
            if rest == b"*" && found == Self::Nothing {
                found = Self::Any;
                continue;
            }
            while !rest.is_empty() {
                let unquoted = || {
                    let whole = [b"\"", rest, b"\""].concat();
                    ETag::strong(&whole).filter(|_| bare && rest != b"*")
                };
                let (tag, after) = match first_tag(rest) {
                    Some((tag, strong, after)) => (ETag::strong(tag).filter(|_| strong), after),
                    None => (Some(unquoted().ok_or(UNREADABLE)?), &b""[..]),
                };
                match &mut found {
                    Self::Tags(tags) => tags.extend(tag),
                    Self::Any => return Err(UNREADABLE),
                    Self::Nothing => found = Self::Tags(tag.into_iter().collect()),
                }
                rest = after;
            }
        }
        Ok(found)
    }
}

/// The first of a list of validators, whether it is strong, and what comes after it.
fn first_tag(list: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let (text, strong) = match list.strip_prefix(b"W/") {
        Some(text) => (text, false),
        None => (list, true),
    };
    let end = text.strip_prefix(b"\"")?.iter().position(|b| *b == b'"')? + 2;
    let (tag, after) = text.split_at_checked(end)?;
    let after = after.trim_ascii_start();
    match after.split_first() {
        None => Some((tag, strong, after)),
        Some((b',', after)) => Some((tag, strong, after.trim_ascii_start())),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etag(text: &str) -> ETag {
        ETag::strong(text.as_bytes()).unwrap()
    }

    /// Whose condition a request with these headers goes out with, and which.
    fn sent(
        ours: &Condition,
        how: How,
        headers: &[(&'static str, &'static str)],
    ) -> Result<(Whose, Vec<String>), Clash> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let sent = plan(ours, &map, how)?;
        sent.put(&mut map);
        let mut said: Vec<String> = map
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        said.sort();
        Ok((sent.whose, said))
    }

    fn said(whose: Whose, headers: &[&str]) -> (Whose, Vec<String>) {
        (whose, headers.iter().map(|h| (*h).to_owned()).collect())
    }

    const OURS: Whose = Whose::Ours { alone: true };
    const BESIDE: Whose = Whose::Ours { alone: false };
    const FREE: Whose = Whose::Clients { pinned: false };
    const PINNED: Whose = Whose::Clients { pinned: true };

    const PLAIN: How = How {
        always: false,
        exact: false,
        removes: false,
    };
    const ALWAYS: How = How {
        always: true,
        ..PLAIN
    };
    const EXACT: How = How {
        exact: true,
        ..PLAIN
    };
    const REMOVES: How = How {
        removes: true,
        ..PLAIN
    };

    fn at() -> Condition {
        Condition::Match(etag("\"a\""))
    }

    #[test]
    fn a_request_without_a_condition_gets_ours() {
        for how in [PLAIN, ALWAYS, EXACT, REMOVES] {
            assert_eq!(sent(&at(), how, &[]), Ok(said(OURS, &["if-match: \"a\""])));
        }
        let create = sent(&Condition::Create, ALWAYS, &[]);
        assert_eq!(create, Ok(said(OURS, &["if-none-match: *"])));
    }

    #[test]
    fn a_strong_condition_of_the_clients_goes_as_it_is() {
        for (headers, whose, out) in [
            (("if-none-match", "*"), FREE, "if-none-match: *"),
            (("if-match", "\"x\""), FREE, "if-match: \"x\""),
            (("if-match", "\"a\""), PINNED, "if-match: \"a\""),
            (("if-match", "W/\"a\""), FREE, "if-match: W/\"a\""),
            (("if-match", "\"x\", \"a\""), PINNED, "if-match: \"a\""),
            // Ours is stronger.
            (("if-match", "*"), OURS, "if-match: \"a\""),
        ] {
            let found = sent(&at(), PLAIN, &[headers]);
            assert_eq!(found, Ok(said(whose, &[out])), "{headers:?}");
        }
        let create = Condition::Create;
        let found = sent(&create, PLAIN, &[("if-match", "\"x\"")]);
        assert_eq!(found, Ok(said(FREE, &["if-match: \"x\""])));
        for how in [PLAIN, ALWAYS] {
            let found = sent(&create, how, &[("if-none-match", "*")]);
            assert_eq!(found, Ok(said(PINNED, &["if-none-match: *"])));
            let found = sent(&create, how, &[("if-none-match", "\"x\"")]);
            assert_eq!(found, Ok(said(BESIDE, &["if-none-match: *"])));
        }
    }

    #[test]
    fn what_may_be_signed_is_not_changed() {
        for (value, whose) in [
            ("\"x\", \"a\"", PINNED),
            ("a", PINNED),
            ("x", FREE),
            ("\"x\"", FREE),
        ] {
            let found = sent(&at(), EXACT, &[("if-match", value)]);
            let out = format!("if-match: {value}");
            assert_eq!(found, Ok(said(whose, &[&out])), "{value}");
        }
        for headers in [("if-match", "*"), ("if-none-match", "\"x\"")] {
            assert!(sent(&at(), EXACT, &[headers]).is_err(), "{headers:?}");
        }
    }

    #[test]
    fn other_conditions_are_kept_beside_ours() {
        for (ours, other, out) in [
            (at(), ("if-none-match", "\"x\""), "if-match: \"a\""),
            (at(), ("if", "(<a>)"), "if-match: \"a\""),
            (at(), ("x-amz-copy-source-if-match", "x"), "if-match: \"a\""),
            (
                Condition::Create,
                ("if-unmodified-since", "x"),
                "if-none-match: *",
            ),
        ] {
            let (whose, said) = sent(&ours, PLAIN, &[other]).unwrap();
            assert_eq!(whose, BESIDE, "{other:?}");
            let kept = format!("{}: {}", other.0, other.1);
            assert!(
                said.contains(&out.to_owned()) && said.contains(&kept),
                "{said:?}"
            );
        }
    }

    #[test]
    fn what_cannot_go_together_goes_not_at_all() {
        assert!(sent(&at(), PLAIN, &[("if-unmodified-since", "x")]).is_err());
        assert!(sent(&at(), REMOVES, &[("if-none-match", "*")]).is_err());
        assert!(sent(&Condition::Create, ALWAYS, &[("if-match", "\"x\"")]).is_err());
        assert!(sent(&Condition::Create, PLAIN, &[("if-match", "*")]).is_err());
        for garbage in ["x", "\"a", "\"a\" \"b\"", "*, \"a\"", "\"a\", *"] {
            assert!(
                sent(&at(), PLAIN, &[("if-match", garbage)]).is_err(),
                "{garbage}"
            );
        }
        for how in [PLAIN, EXACT] {
            let both = [("if-match", "*"), ("if-match", "\"a\"")];
            assert!(sent(&at(), how, &both).is_err());
        }
    }
}
