//! Every refusal and failure, as its sender reads it: status, headers, body, what to do next.
//!
//! One exhaustive match: a new reason does not compile until it has an answer. Bodies are RFC 9457
//! problems, or the errors of an object store; the errors in `Proxy-Status` those of RFC 9209.

mod problem;
mod why;

pub use problem::Dialect;
pub use why::Why;

use crate::record::Decision;
use http::StatusCode;

/// An answer of the gateway's own.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why.
    pub why: Why,
    /// The token, as the route spells it.
    pub token: Option<String>,
    /// The fence, where the route discloses it.
    pub fence: Option<String>,
}

/// What is the same for every refusal of one kind.
struct Answer {
    status: StatusCode,
    decision: Decision,
    kind: &'static str,
    /// RFC 9209 error type.
    error: &'static str,
    title: &'static str,
    detail: String,
    retry_after: Option<u32>,
}

impl From<Why> for Refusal {
    fn from(why: Why) -> Self {
        Self {
            why,
            token: None,
            fence: None,
        }
    }
}

impl Why {
    /// Its word in the metrics and in `Fencing-Status`.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.answer().decision
    }

    #[allow(
        clippy::too_many_lines,
        reason = "the table of the response, in one place"
    )]
    fn answer(&self) -> Answer {
        use Decision as D;
        use StatusCode as S;
        const DENIED: &str = "http_request_denied";
        const BAD: &str = "http_request_error";
        const LATER: u32 = 1;
        let unknown = |sent| if sent { D::OutcomeUnknown } else { D::Unsent };
        let answer = |status, decision, kind, error, title, detail: &str, retry_after| Answer {
            status,
            decision,
            kind,
            error,
            title,
            detail: detail.to_owned(),
            retry_after,
        };
        match self {
            Self::Stale => answer(
                S::PRECONDITION_FAILED,
                D::Stale,
                "stale-token",
                DENIED,
                "The fencing token is stale",
                "A newer holder of the lock has been admitted. Nothing was forwarded. Stop \
                 writing, and take the lock again before you write.",
                None,
            ),
            Self::Superseded { sent: false } => answer(
                S::PRECONDITION_FAILED,
                D::Superseded,
                "superseded",
                DENIED,
                "A newer holder took over",
                "A higher token came before this request was forwarded, so it had no effect. Stop \
                 writing, and take the lock again before you write.",
                None,
            ),
            Self::Superseded { sent: true } => answer(
                S::PRECONDITION_FAILED,
                D::Superseded,
                "superseded",
                DENIED,
                "A newer holder took over",
                "A higher token came while this request was being forwarded, and it was cut off. \
                 Whether it took effect is unknown; the newer holder's write comes after it. Stop \
                 writing, and take the lock again before you write.",
                None,
            ),
            Self::Replayed => answer(
                S::PRECONDITION_FAILED,
                D::Replayed,
                "replayed-token",
                DENIED,
                "The fencing token was used before",
                "This route asks for a higher token with each write, and this one has been used. \
                 Nothing was forwarded. Take a new token.",
                None,
            ),
            Self::Missing => answer(
                S::PRECONDITION_REQUIRED,
                D::Missing,
                "token-required",
                DENIED,
                "A fencing token is required",
                "Writes to this resource need the fencing token that the lock service gave out \
                 with the lock. Nothing was forwarded.",
                None,
            ),
            Self::Malformed(why) => answer(
                S::BAD_REQUEST,
                D::Malformed,
                "malformed",
                BAD,
                "The request can be read in more than one way, or in none",
                &sentence(why),
                None,
            ),
            Self::TooManyHeaders => answer(
                S::REQUEST_HEADER_FIELDS_TOO_LARGE,
                D::Malformed,
                "malformed",
                BAD,
                "The request has too many headers",
                "It has more headers than the gateway takes. Nothing was forwarded.",
                None,
            ),
            Self::Method => answer(
                S::METHOD_NOT_ALLOWED,
                D::Malformed,
                "malformed",
                BAD,
                "The gateway does not serve this method",
                "CONNECT asks for a tunnel, which would go past the fence. Nothing was forwarded.",
                None,
            ),
            Self::TooFar => answer(
                S::FORBIDDEN,
                D::Forbidden,
                "unverified",
                DENIED,
                "The fencing token jumps too far",
                "The token is further above the fence than this route allows. The fence is as it \
                 was, and nothing was forwarded. Check where the token comes from.",
                None,
            ),
            Self::TooManyResources => answer(
                S::FORBIDDEN,
                D::Forbidden,
                "unverified",
                DENIED,
                "The route may not create another resource",
                "This route has created as many resources as max_new_resources allows. Nothing \
                 was forwarded.",
                None,
            ),
            Self::Forbidden(why) => answer(
                S::FORBIDDEN,
                D::Forbidden,
                "unverified",
                DENIED,
                "The route does not allow this request",
                &sentence(why),
                None,
            ),
            Self::Stranger => answer(
                S::FORBIDDEN,
                D::Forbidden,
                "unverified",
                DENIED,
                "The client may not write here",
                "The route names who may write, and the client is none of them: neither a \
                 name in its certificate nor the access key that it signed with. The fence is as it was, and nothing was forwarded.",
                None,
            ),
            Self::Unproven(why) => answer(
                S::FORBIDDEN,
                D::Forbidden,
                "unauthenticated",
                DENIED,
                "Nothing proves who the client is",
                &sentence(why),
                None,
            ),
            Self::Unsigned(why) => answer(
                S::SERVICE_UNAVAILABLE,
                D::Unguarded,
                "signing-unavailable",
                "proxy_internal_error",
                "The gateway cannot sign for its client",
                &sentence(why),
                Some(LATER),
            ),
            Self::Forged { sent } => answer(
                S::FORBIDDEN,
                if *sent {
                    D::OutcomeUnknown
                } else {
                    D::Forbidden
                },
                "forged-body",
                DENIED,
                "The request's body is not what its client signed",
                "It was cut off at the first chunk whose signature does not hold. The store never saw its end.",
                None,
            ),
            Self::Unverified => answer(
                S::FORBIDDEN,
                D::Unverified,
                "unverified",
                DENIED,
                "The raise was not approved",
                "The service that decides who may raise this fence said no. The fence is as it was, \
                 and nothing was forwarded.",
                None,
            ),
            Self::NotAsked => answer(
                S::SERVICE_UNAVAILABLE,
                D::Unverified,
                "auth-unavailable",
                "proxy_internal_error",
                "Nobody can be asked who may raise the fence",
                "The service that decides did not answer as it should. The fence is as it was, and \
                 nothing was forwarded. Try again with the same token.",
                Some(LATER),
            ),
            Self::Unrouted => answer(
                S::NOT_FOUND,
                D::Unrouted,
                "no-route",
                DENIED,
                "No route matches",
                "No route takes a request with its host, path and method. Nothing was forwarded.",
                None,
            ),
            Self::Draining => answer(
                S::SERVICE_UNAVAILABLE,
                D::Draining,
                "draining",
                DENIED,
                "Older writes are still under way",
                "Writes of the holder before were not settled in time, so this one was not \
                 forwarded. The fence is raised: try again with the same token.",
                Some(LATER),
            ),
            Self::Store => answer(
                S::SERVICE_UNAVAILABLE,
                D::Store,
                "store-unavailable",
                "proxy_internal_error",
                "The fence store is not available",
                "The fence could not be read or made durable, so nothing was forwarded. Try again \
                 with the same token.",
                Some(LATER),
            ),
            Self::Busy => answer(
                S::SERVICE_UNAVAILABLE,
                D::Busy,
                "busy",
                DENIED,
                "Too many requests wait already",
                "The request was not forwarded. Try again with the same token.",
                Some(LATER),
            ),
            Self::Conflict => answer(
                S::SERVICE_UNAVAILABLE,
                D::Conflict,
                "guard-conflict",
                DENIED,
                "Somebody wrote past the gateway",
                "The resource was not as the gateway had left it, and refused this write: it had no \
                 effect. Read the resource, or try again with the same token to write over it.",
                Some(LATER),
            ),
            Self::Clash(why) => answer(
                S::CONFLICT,
                D::Conflict,
                "condition-clash",
                DENIED,
                "The request's condition and the route's guard exclude each other",
                &sentence(why),
                None,
            ),
            Self::Unguarded(why) => answer(
                S::SERVICE_UNAVAILABLE,
                D::Unguarded,
                "guard-unavailable",
                "proxy_internal_error",
                "The guard cannot learn the state of the resource",
                &sentence(why),
                Some(LATER),
            ),
            Self::Written => answer(
                S::PRECONDITION_FAILED,
                D::Written,
                "already-written",
                DENIED,
                "An earlier write of this holder has taken effect",
                "The resource refused this write. A write with the same token, whose answer was lost, was of \
                 the size that the resource has now. Read it to be sure; there is nothing to repeat then.",
                None,
            ),
            Self::Unreachable { error } => answer(
                S::BAD_GATEWAY,
                D::Unsent,
                "upstream-unreachable",
                error,
                "The upstream cannot be reached",
                "There was no connection to the upstream, so the request had no effect. Try again \
                 with the same token.",
                None,
            ),
            Self::Broken { sent } => answer(
                S::BAD_GATEWAY,
                unknown(*sent),
                "upstream-broken",
                "connection_terminated",
                "The upstream broke the connection off",
                effect(*sent),
                None,
            ),
            Self::Silent { sent } => answer(
                S::GATEWAY_TIMEOUT,
                unknown(*sent),
                "upstream-silent",
                "http_response_timeout",
                "The upstream did not answer in time",
                effect(*sent),
                None,
            ),
            Self::TooLarge { sent } => answer(
                S::PAYLOAD_TOO_LARGE,
                if *sent {
                    D::OutcomeUnknown
                } else {
                    D::Forbidden
                },
                "body-too-large",
                DENIED,
                "The request's body is too large",
                if *sent {
                    "It was cut off when it became larger than the route allows. Whether it took \
                     effect is unknown, but the upstream never saw its end."
                } else {
                    "The route takes no body of that size. Nothing was forwarded."
                },
                None,
            ),
            Self::Body { sent } => answer(
                S::REQUEST_TIMEOUT,
                unknown(*sent),
                "request-timeout",
                BAD,
                "The request's body stalled or broke off",
                effect(*sent),
                None,
            ),
        }
    }
}

/// A reason as the beginning of a text.
fn sentence(why: &str) -> String {
    let mut letters = why.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    format!("{first}{}. Nothing was forwarded.", letters.as_str())
}

const fn effect(sent: bool) -> &'static str {
    if sent {
        "Whether the request took effect is unknown. Read the resource, or try again with the same \
         token if the write may be repeated."
    } else {
        "Nothing of the request was sent, so it had no effect. Try again with the same token."
    }
}

#[cfg(test)]
mod tests {
    use super::problem::PROXY_STATUS;
    use super::*;
    use crate::record::FENCING_STATUS;
    use http::header::RETRY_AFTER;

    #[test]
    fn each_refusal_names_its_kind_and_what_to_do() {
        let all = [
            (Why::Stale, 412, "stale", "stale-token"),
            (
                Why::Superseded { sent: true },
                412,
                "superseded",
                "superseded",
            ),
            (
                Why::Superseded { sent: false },
                412,
                "superseded",
                "superseded",
            ),
            (Why::Replayed, 412, "replayed", "replayed-token"),
            (Why::Missing, 428, "missing", "token-required"),
            (Why::Malformed("x".into()), 400, "malformed", "malformed"),
            (Why::TooManyHeaders, 431, "malformed", "malformed"),
            (Why::Method, 405, "malformed", "malformed"),
            (Why::TooFar, 403, "forbidden", "unverified"),
            (Why::TooManyResources, 403, "forbidden", "unverified"),
            (Why::Forbidden("x".into()), 403, "forbidden", "unverified"),
            (
                Why::TooLarge { sent: false },
                413,
                "forbidden",
                "body-too-large",
            ),
            (
                Why::TooLarge { sent: true },
                413,
                "outcome-unknown",
                "body-too-large",
            ),
            (Why::Stranger, 403, "forbidden", "unverified"),
            (Why::Unverified, 403, "unverified", "unverified"),
            (Why::NotAsked, 503, "unverified", "auth-unavailable"),
            (Why::Unrouted, 404, "unrouted", "no-route"),
            (Why::Draining, 503, "draining", "draining"),
            (Why::Store, 503, "store", "store-unavailable"),
            (Why::Busy, 503, "busy", "busy"),
            (
                Why::Unreachable {
                    error: "connection_refused",
                },
                502,
                "unsent",
                "upstream-unreachable",
            ),
            (
                Why::Broken { sent: true },
                502,
                "outcome-unknown",
                "upstream-broken",
            ),
            (
                Why::Broken { sent: false },
                502,
                "unsent",
                "upstream-broken",
            ),
            (
                Why::Silent { sent: true },
                504,
                "outcome-unknown",
                "upstream-silent",
            ),
            (
                Why::Body { sent: true },
                408,
                "outcome-unknown",
                "request-timeout",
            ),
        ];
        for (why, status, word, kind) in all {
            let response =
                Refusal::from(why.clone()).response("urn:fencegate:problem:", Dialect::Problem);
            assert_eq!(response.status(), status, "{why:?}");
            assert_eq!(response.headers()[FENCING_STATUS], word, "{why:?}");
            let marked = response.headers()[PROXY_STATUS].to_str().unwrap();
            assert!(marked.starts_with("fencegate; error="), "{why:?}");
            assert_eq!(why.answer().kind, kind);
            assert_eq!(
                response.headers().contains_key(RETRY_AFTER),
                status == 503,
                "{why:?}"
            );
        }
    }
}
