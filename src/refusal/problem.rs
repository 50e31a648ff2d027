//! A refusal on the wire: an RFC 9457 problem with the headers.

use super::Refusal;
use crate::record::{Decision, FENCING_STATUS};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response};
use http_body_util::Full;
use serde::Serialize;

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

impl Refusal {
    /// The response. `base`: what problem types begin with.
    #[must_use]
    pub fn response(&self, base: &str) -> Response<Full<Bytes>> {
        let answer = self.why.answer();
        let problem = Problem {
            kind: format!("{base}{}", answer.kind),
            title: answer.title,
            status: answer.status.as_u16(),
            detail: &answer.detail,
            token: self.token.as_deref(),
            fence: self.fence.as_deref(),
        };
        // A struct of strings always has a JSON form.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
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
}
