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

/// Whose condition a request goes out with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The gateway's: where it does not hold, somebody wrote past the gateway.
    Ours,
    /// The client's. `pinned`: it says what the gateway believes, so that it holds unless that is wrong.
    Clients { pinned: bool },
    /// Nobody's.
    Nobodys,
}

/// The client's condition and the gateway's cannot both be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clash(pub(super) &'static str);

/// Puts the gateway's condition on a request. `always`: it must hold whatever the client asks, else a strong
/// condition of the client's will do.
///
/// # Errors
/// [`Clash`]; then the headers are as they were.
pub(super) fn put(ours: &Condition, headers: &mut HeaderMap, always: bool) -> Result<Whose, Clash> {
    let matches = Asked::of(headers, &IF_MATCH)?;
    let differs = Asked::of(headers, &IF_NONE_MATCH)?;
    let any = HeaderValue::from_static("*");
    match ours {
        Condition::Create => match (matches, differs) {
            (Asked::Nothing, Asked::Nothing | Asked::Tags(_)) => {
                headers.insert(IF_NONE_MATCH, any);
                Ok(Whose::Ours)
            }
            (Asked::Nothing, Asked::Any) => Ok(Whose::Clients { pinned: true }),
            (Asked::Tags(_), _) if !always => Ok(Whose::Clients { pinned: false }),
            (Asked::Tags(_) | Asked::Any, _) => Err(Clash(
                "If-Match asks for an object that is there, and the route's guard for one that is not",
            )),
        },
        Condition::Match(etag) => match (matches, differs) {
            (_, Asked::Any) => Ok(Whose::Clients { pinned: false }),
            (Asked::Nothing, _) if headers.contains_key(IF_UNMODIFIED_SINCE) => Err(Clash(
                "If-Unmodified-Since means nothing beside the If-Match of the route's guard: send If-Match with the object's ETag in its place",
            )),
            (Asked::Nothing | Asked::Any, _) => {
                headers.insert(IF_MATCH, etag.value().clone());
                Ok(Whose::Ours)
            }
            (Asked::Tags(tags), _) if tags.contains(etag) => {
                headers.insert(IF_MATCH, etag.value().clone());
                Ok(Whose::Clients { pinned: true })
            }
            (Asked::Tags(_), _) => Ok(Whose::Clients { pinned: false }),
        },
    }
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
    fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Self, Clash> {
        const UNREADABLE: Clash = Clash("If-Match or If-None-Match cannot be read");
        let mut found = Self::Nothing;
        for value in headers.get_all(name) {
            let mut rest = value.as_bytes().trim_ascii();
            if rest == b"*" && found == Self::Nothing {
                found = Self::Any;
                continue;
            }
            while !rest.is_empty() {
                let (tag, strong, after) = first_tag(rest).ok_or(UNREADABLE)?;
                let tags = match &mut found {
                    Self::Tags(tags) => tags,
                    Self::Any => return Err(UNREADABLE),
                    Self::Nothing => {
                        found = Self::Tags(Vec::new());
                        continue;
                    }
                };
                tags.extend(ETag::strong(tag).filter(|_| strong));
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

    /// What a request with these headers goes out with, and whose condition it is.
    fn sent(
        ours: &Condition,
        always: bool,
        headers: &[(&'static str, &'static str)],
    ) -> Result<(Whose, Vec<String>), Clash> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let whose = put(ours, &mut map, always)?;
        let mut said: Vec<String> = map
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        said.sort();
        Ok((whose, said))
    }

    fn said(whose: Whose, headers: &[&str]) -> (Whose, Vec<String>) {
        (whose, headers.iter().map(|h| (*h).to_owned()).collect())
    }

    const FREE: Whose = Whose::Clients { pinned: false };
    const PINNED: Whose = Whose::Clients { pinned: true };

    #[test]
    fn a_request_without_a_condition_gets_ours() {
        let at = Condition::Match(etag("\"a\""));
        assert_eq!(
            sent(&at, false, &[]),
            Ok(said(Whose::Ours, &["if-match: \"a\""]))
        );
        assert_eq!(
            sent(&Condition::Create, true, &[]),
            Ok(said(Whose::Ours, &["if-none-match: *"]))
        );
    }

    #[test]
    fn a_strong_condition_of_the_clients_goes_as_it_is() {
        let at = Condition::Match(etag("\"a\""));
        for (headers, whose, out) in [
            (("if-none-match", "*"), FREE, "if-none-match: *"),
            (("if-match", "\"x\""), FREE, "if-match: \"x\""),
            (("if-match", "\"a\""), PINNED, "if-match: \"a\""),
            (("if-match", "W/\"a\""), FREE, "if-match: W/\"a\""),
            (("if-match", "\"x\", \"a\""), PINNED, "if-match: \"a\""),
            // Ours is stronger.
            (("if-match", "*"), Whose::Ours, "if-match: \"a\""),
        ] {
            assert_eq!(
                sent(&at, false, &[headers]),
                Ok(said(whose, &[out])),
                "{headers:?}"
            );
        }
        let create = Condition::Create;
        assert_eq!(
            sent(&create, false, &[("if-match", "\"x\"")]),
            Ok(said(FREE, &["if-match: \"x\""]))
        );
        for always in [false, true] {
            assert_eq!(
                sent(&create, always, &[("if-none-match", "*")]),
                Ok(said(PINNED, &["if-none-match: *"]))
            );
            assert_eq!(
                sent(&create, always, &[("if-none-match", "\"x\"")]),
                Ok(said(Whose::Ours, &["if-none-match: *"]))
            );
        }
    }

    #[test]
    fn other_conditions_are_kept_beside_ours() {
        let at = Condition::Match(etag("\"a\""));
        assert_eq!(
            sent(&at, false, &[("if-none-match", "\"x\"")]),
            Ok(said(
                Whose::Ours,
                &["if-match: \"a\"", "if-none-match: \"x\""]
            ))
        );
        assert_eq!(
            sent(&Condition::Create, true, &[("if-unmodified-since", "x")]),
            Ok(said(
                Whose::Ours,
                &["if-none-match: *", "if-unmodified-since: x"]
            ))
        );
    }

    #[test]
    fn what_cannot_go_together_goes_not_at_all() {
        let at = Condition::Match(etag("\"a\""));
        assert!(sent(&at, false, &[("if-unmodified-since", "x")]).is_err());
        assert!(sent(&Condition::Create, true, &[("if-match", "\"x\"")]).is_err());
        assert!(sent(&Condition::Create, false, &[("if-match", "*")]).is_err());
        for garbage in ["x", "\"a", "\"a\" \"b\"", "*, \"a\"", "\"a\", *"] {
            assert!(
                sent(&at, false, &[("if-match", garbage)]).is_err(),
                "{garbage}"
            );
        }
        assert!(sent(&at, false, &[("if-match", "*"), ("if-match", "\"a\"")]).is_err());
    }
}
