//! Tries which conditions an upstream honours, with objects of its own.
//!
//! Each condition is tried where it does not hold: an upstream that then does what is asked ignores it. Whoever
//! calls sends the requests.

use super::condition::Test;
use super::honours::{Call, Known};
use super::question;
use crate::config::{Kind, Upstream};
use crate::sign::Signer;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use roxmltree::Document;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A validator that no object of the probe has.
const WRONG: &str = "\"00000000000000000000000000000000\"";
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const ANY: (HeaderName, &str) = (IF_NONE_MATCH, "*");
const OTHER: (HeaderName, &str) = (IF_MATCH, WRONG);

/// Why an upstream could not be tried, for its operator.
#[derive(Debug, thiserror::Error)]
pub enum Untried {
    /// There is nothing to sign with.
    #[error("{0}")]
    Credentials(String),
    /// It did not answer.
    #[error("{what} was not answered: {why}")]
    Silent {
        /// What was asked.
        what: String,
        /// Why there was no answer.
        why: String,
    },
    /// It refused what is no condition's matter.
    #[error("{what} was answered {status}{}, which says nothing of conditions{}", said(code.as_ref()), hint(*status))]
    Refused {
        /// What was asked.
        what: String,
        /// The answer.
        status: StatusCode,
        /// An object store's word for it.
        code: Option<String>,
    },
    /// It names no strong validator.
    #[error("it names no strong ETag for {0} (Apache httpd does with `FileETag Digest`)")]
    Weak(String),
}

/// A probe of one upstream.
pub struct Probe<'a> {
    upstream: &'a Upstream,
    host: HeaderValue,
    /// An object that is there, another one, and one that is not.
    there: String,
    other: String,
    missing: String,
    signer: Option<Arc<Signer>>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(
        upstream: &'a Upstream,
        object: String,
        host: HeaderValue,
        signer: Option<Arc<Signer>>,
    ) -> Self {
        Self {
            upstream,
            host,
            other: format!("{object}-other"),
            missing: format!("{object}-missing"),
            there: object,
            signer,
        }
    }

    /// Tries each condition of each call, within `patience` in all, and takes the objects away again. `ask` sends a
    /// request.
    ///
    /// # Errors
    /// [`Untried`]; then nothing is known.
    pub async fn run<E: std::fmt::Display>(
        &self,
        patience: Duration,
        ask: impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
    ) -> Result<Known, Untried> {
        let late = |_| {
            Err(Untried::Silent {
                what: "the probe".into(),
                why: format!("not within {}", humantime::format_duration(patience)),
            })
        };
        // What a probe before this one may have left.
        let _ = timeout(patience, self.clear(&ask)).await;
        let tried = timeout(patience, self.conditions(&ask)).await;
        let _ = timeout(patience, self.clear(&ask)).await;
        tried.unwrap_or_else(late)
    }

    async fn clear<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
    ) {
        for object in [&self.there, &self.other, &self.missing] {
            let _ = self.ask(ask, Method::DELETE, object, &[], "").await;
        }
    }

    async fn conditions<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
    ) -> Result<Known, Untried> {
        let (there, missing) = (self.there.as_str(), self.missing.as_str());
        let mut known = Known::default();
        let put = async |header: (HeaderName, &str), body: &str| {
            self.ask(ask, Method::PUT, there, &[header], body).await
        };
        let made = put(ANY, "1").await?;
        let what = "PUT with If-None-Match: * of an object that is not there";
        self.must(made, what)?;
        let etag = self.etag(ask, there).await?;
        let create = judge(&put(ANY, "2").await?, false, "PUT with If-None-Match: *")?;
        known.note(Call::Put, Test::Create, create);
        let refuses = judge(&put(OTHER, "2").await?, false, "PUT with If-Match")?;
        // What was there before the last two, if they were refused.
        let goes = judge(
            &put((IF_MATCH, &etag), "3").await?,
            true,
            "PUT with If-Match",
        )?;
        let none = [(IF_MATCH, etag.as_str())];
        let none = self.ask(ask, Method::PUT, missing, &none, "4").await?;
        let on_nothing = match none.status() {
            StatusCode::NOT_FOUND => Some(true),
            _ => judge(
                &none,
                false,
                "PUT with If-Match of an object that is not there",
            )?,
        };
        known.note(
            Call::Put,
            Test::Match,
            both(both(refuses, goes), on_nothing),
        );
        if self.upstream.kind == Kind::S3 {
            self.upload(ask, &mut known).await?;
            self.copy(ask, &mut known).await?;
        }
        let deleted = self.ask(ask, Method::DELETE, there, &[OTHER], "").await?;
        known.note(
            Call::Delete,
            Test::Match,
            judge(&deleted, false, "DELETE with If-Match")?,
        );
        Ok(known)
    }

    /// Whether an upload in parts is completed against its condition.
    async fn upload<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
        known: &mut Known,
    ) -> Result<(), Untried> {
        let there = &self.there;
        let begun = self
            .ask(ask, Method::POST, &format!("{there}?uploads"), &[], "")
            .await?;
        let begun = self.must(begun, "CreateMultipartUpload")?;
        let id = child(begun.body(), "UploadId").unwrap_or_default();
        let upload = format!(
            "{there}?uploadId={}",
            utf8_percent_encode(&id, NON_ALPHANUMERIC)
        );
        let done = self.complete(ask, &upload, known).await;
        // Gone already where it was completed.
        let _ = self.ask(ask, Method::DELETE, &upload, &[], "").await;
        done
    }

    async fn complete<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
        upload: &str,
        known: &mut Known,
    ) -> Result<(), Untried> {
        let part = format!("{upload}&partNumber=1");
        let part = self.ask(ask, Method::PUT, &part, &[], "5").await?;
        let part = question::etag(self.must(part, "UploadPart")?.headers());
        let part = part.ok_or_else(|| Untried::Weak("a part of an upload".into()))?;
        let part = part
            .value()
            .to_str()
            .unwrap_or_default()
            .replace('"', "&quot;");
        let list = format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>"
        );
        let mut open = true;
        for (header, test) in [(ANY, Test::Create), (OTHER, Test::Match)] {
            let done = self
                .ask(ask, Method::POST, upload, &[header], &list)
                .await?;
            // Where the first was ignored the upload is gone, and the second says nothing of conditions.
            let what = "CompleteMultipartUpload with a condition";
            let honoured = if open {
                judge(&done, false, what)?
            } else {
                Some(false)
            };
            open &= honoured != Some(false);
            known.note(Call::Complete, test, honoured);
        }
        Ok(())
    }

    /// Whether a copy is made against its condition, which has to be of the object that it makes.
    async fn copy<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
        known: &mut Known,
    ) -> Result<(), Untried> {
        let made = self
            .ask(ask, Method::PUT, &self.other, &[], "another")
            .await?;
        self.must(made, "PUT")?;
        let of_source = self.etag(ask, &self.there).await?;
        let copied = async |to: &str, header: (HeaderName, &str)| {
            let from = [(COPY_SOURCE, self.there.as_str()), header];
            self.ask(ask, Method::PUT, to, &from, "").await
        };
        let what = "CopyObject with a condition";
        let refuses = judge(&copied(&self.other, ANY).await?, false, what)?;
        let creates = judge(&copied(&self.missing, ANY).await?, true, what)?;
        known.note(Call::Copy, Test::Create, both(refuses, creates));
        let source = (IF_MATCH, of_source.as_str());
        let refuses = judge(&copied(&self.other, source).await?, false, what)?;
        let target = self.etag(ask, &self.other).await?;
        let matches = judge(&copied(&self.other, (IF_MATCH, &target)).await?, true, what)?;
        known.note(Call::Copy, Test::Match, both(refuses, matches));
        Ok(())
    }

    async fn etag<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
        object: &str,
    ) -> Result<String, Untried> {
        let seen = self.ask(ask, Method::HEAD, object, &[], "").await?;
        let etag = question::etag(seen.headers()).ok_or_else(|| Untried::Weak(object.into()))?;
        Ok(etag.value().to_str().unwrap_or_default().to_owned())
    }

    async fn ask<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
        method: Method,
        target: &str,
        headers: &[(HeaderName, &str)],
        body: &str,
    ) -> Result<Response<Bytes>, Untried> {
        let what = format!("{method} {target}");
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = method;
        head.uri = target.parse::<Uri>().unwrap_or_default();
        head.headers.insert(HOST, self.host.clone());
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_str(value) {
                head.headers.insert(name.clone(), value);
            }
        }
        if let Some(signer) = &self.signer {
            let digest = Sha256::digest(body)
                .iter()
                .fold(String::new(), |mut text, byte| {
                    let _ = write!(text, "{byte:02x}");
                    text
                });
            if let Ok(digest) = HeaderValue::from_str(&digest) {
                head.headers.insert(CONTENT_SHA256, digest);
            }
            question::sign(signer, &mut head)
                .await
                .map_err(Untried::Credentials)?;
        }
        if !matches!(head.method, Method::HEAD | Method::DELETE) {
            head.headers
                .insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let answer = ask(head, Bytes::copy_from_slice(body.as_bytes())).await;
        answer.map_err(|why| Untried::Silent {
            what,
            why: why.to_string(),
        })
    }

    fn must(&self, answer: Response<Bytes>, what: &str) -> Result<Response<Bytes>, Untried> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(Untried::Refused {
            what: format!("{what} ({})", self.there),
            status: answer.status(),
            code: error_code(answer.body()),
        })
    }
}

/// Whether a condition that does not hold (`holds`: that does) was looked at. One that the upstream does not take at
/// all is not to be sent. `None`: such a call is not allowed here.
///
/// # Errors
/// [`Untried::Refused`], where the answer says nothing of it.
fn judge(answer: &Response<Bytes>, holds: bool, what: &str) -> Result<Option<bool>, Untried> {
    match answer.status() {
        _ if is_refused(answer) => Ok(Some(!holds)),
        StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED => Ok(Some(false)),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => {
            Ok(None)
        }
        status if status.is_success() => Ok(Some(holds)),
        status => Err(Untried::Refused {
            what: what.into(),
            status,
            code: error_code(answer.body()),
        }),
    }
}

/// The code in an object store's error.
#[must_use]
pub fn error_code(body: &[u8]) -> Option<String> {
    let code = child(body, "Code")?;
    let plain = code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then_some(code)
}

fn said(code: Option<&String>) -> String {
    let code = code.map(|code| format!(" ({code})"));
    code.unwrap_or_default()
}

/// Where to look.
const fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => ": look at `region`, and at the path of `probe`",
        401 | 403 => ": look at the gateway's credentials, and at what they allow",
        404 | 409 => ": the bucket or folder of `probe` must be there before",
        _ => "",
    }
}

/// Both, where both are known.
fn both(first: Option<bool>, second: Option<bool>) -> Option<bool> {
    first.zip(second).map(|(first, second)| first && second)
}

/// Whether a condition that did not hold was why nothing was done. Some answer so in the body of a success.
fn is_refused(answer: &Response<Bytes>) -> bool {
    answer.status() == StatusCode::PRECONDITION_FAILED
        || error_code(answer.body()).as_deref() == Some("PreconditionFailed")
}

/// The text of an element below the root of an answer.
fn child(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let document = Document::parse(text).ok()?;
    let mut all = document.root_element().children();
    let found = all.find(|node| node.tag_name().name() == name)?;
    found.text().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_nothing_of_conditions_is_not_taken_for_one() {
        let answered = |status: u16, body: &'static str| {
            let answer = Response::builder().status(status);
            answer.body(Bytes::from_static(body.as_bytes())).unwrap()
        };
        let judged = |status, body, holds| judge(&answered(status, body), holds, "PUT").ok();
        let failed = "<Error><Code>PreconditionFailed</Code></Error>";
        for (status, body, of_wrong, of_right) in [
            (200, "", Some(false), Some(true)),
            (204, "", Some(false), Some(true)),
            (412, "", Some(true), Some(false)),
            (200, failed, Some(true), Some(false)),
            (501, "", Some(false), Some(false)),
            (400, "", Some(false), Some(false)),
            (403, "", None, None),
            (405, "", None, None),
        ] {
            assert_eq!(judged(status, body, false), Some(of_wrong), "{status}");
            assert_eq!(judged(status, body, true), Some(of_right), "{status}");
        }
        // Neither honoured nor ignored: it has to be tried again.
        for status in [301, 404, 409, 429, 500, 502, 503, 504] {
            assert_eq!(judged(status, "", false), None, "{status}");
            assert_eq!(judged(status, "", true), None, "{status}");
        }
    }
}
