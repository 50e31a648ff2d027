//! A refusal on the wire: its headers, and a body that the sender's library can show: an RFC 9457 problem, or the
//! error of an object store.

use super::{Answer, Refusal};
use crate::record::{Decision, FENCING_STATUS};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use std::fmt::Write as _;

pub(super) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

#[derive(Serialize)]
struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<&'a str>,
}

/// What the body of a refusal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// A problem (RFC 9457).
    #[default]
    Problem,
    /// An error as S3's, so that its clients show it.
    S3,
}

impl Refusal {
    /// The response. `base`: what problem types begin with.
    #[must_use]
    pub fn response(&self, base: &str, dialect: Dialect) -> Response<Full<Bytes>> {
        let answer = self.why.answer();
        let (kind, body) = match dialect {
            Dialect::Problem => ("application/problem+json", self.problem(base, &answer)),
            Dialect::S3 => ("application/xml", self.xml(base, &answer).into_bytes()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            FENCING_STATUS,
            HeaderValue::from_static(answer.decision.word()),
        );
        if let Ok(value) = HeaderValue::from_str(&format!("fencegate; error={}", answer.error)) {
            headers.insert(PROXY_STATUS, value);
        }
        if answer.decision == Decision::Malformed {
            // What could be read in two ways may have left its second reading on the connection.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = answer.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn problem(&self, base: &str, answer: &Answer) -> Vec<u8> {
        let problem = Problem {
            kind: format!("{base}{}", answer.kind),
            title: answer.title,
            status: answer.status.as_u16(),
            detail: &answer.detail,
            token: self.token.as_deref(),
            fence: self.fence.as_deref(),
        };
        // A struct of strings always has a JSON form.
        serde_json::to_vec(&problem).unwrap_or_default()
    }

    /// The elements that S3's clients read come first.
    fn xml(&self, base: &str, answer: &Answer) -> String {
        let message = format!("{}. {}", answer.title, answer.detail);
        let mut body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}</Code><Message>{}</Message><Type>{}{}</Type>",
            code(answer),
            escape(&message),
            escape(base),
            answer.kind
        );
        for (name, text) in [("Token", &self.token), ("Fence", &self.fence)] {
            if let Some(text) = text {
                let _ = write!(body, "<{name}>{}</{name}>", escape(text));
            }
        }
        body + "</Error>"
    }
}

/// The code that S3 has for such a status: clients tell by it whether to try again.
fn code(answer: &Answer) -> &'static str {
    match answer.status {
        StatusCode::BAD_REQUEST
        | StatusCode::CONFLICT
        | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "InvalidRequest",
        // None of the store's: nothing is said of whether an object is there.
        StatusCode::NOT_FOUND => "NoSuchRoute",
        StatusCode::FORBIDDEN => "AccessDenied",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::REQUEST_TIMEOUT => "RequestTimeout",
        StatusCode::PRECONDITION_FAILED => "PreconditionFailed",
        StatusCode::PAYLOAD_TOO_LARGE => "EntityTooLarge",
        StatusCode::PRECONDITION_REQUIRED => "PreconditionRequired",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalError",
    }
}

/// A text between two tags (XML 1.0). Its letters are those of a token, a URI or our own.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Why;

    #[test]
    fn an_object_store_client_reads_a_code_and_a_message() {
        let refusal = Refusal {
            why: Why::Malformed("a <b> & c".into()),
            token: Some("4".into()),
            fence: None,
        };
        let answer = refusal.why.answer();
        let xml = refusal.xml("https://x/?a=1&b=", &answer);
        assert!(
            xml.contains("<Error><Code>InvalidRequest</Code><Message>"),
            "{xml}"
        );
        assert!(
            xml.contains("A &lt;b&gt; &amp; c. Nothing was forwarded.</Message>"),
            "{xml}"
        );
        assert!(
            xml.contains("<Type>https://x/?a=1&amp;b=malformed</Type><Token>4</Token></Error>"),
            "{xml}"
        );
        let stale = Refusal::from(Why::Stale).response("urn:x:", Dialect::S3);
        assert_eq!(stale.headers()[CONTENT_TYPE], "application/xml");
        assert_eq!(code(&Why::Stale.answer()), "PreconditionFailed");
    }
}
