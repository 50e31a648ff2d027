//! Tries which conditions an upstream honours, with objects of its own.
//!
//! Each condition is tried where it does not hold: an upstream that then does what is asked ignores it. Whoever
//! calls sends the requests.

use super::condition::Condition;
use super::honours::{Call, Known};
use super::pin::ETag;
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
use uuid::Uuid;

/// A validator that no object of the probe has.
const WRONG: &str = "\"00000000000000000000000000000000\"";
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const DIRECTIVE: HeaderName = HeaderName::from_static("x-amz-metadata-directive");

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
    #[error("{what} was answered {status}, where a success was due")]
    Refused {
        /// What was asked.
        what: String,
        /// The answer.
        status: StatusCode,
    },
    /// It names no strong validator.
    #[error("it names no strong ETag for {0}")]
    Weak(String),
}

/// A probe of one upstream.
pub struct Probe<'a> {
    upstream: &'a Upstream,
    host: HeaderValue,
    /// The object that is there, and one that is not.
    there: String,
    missing: String,
    signer: Option<Arc<Signer>>,
}

impl<'a> Probe<'a> {
    /// A probe with objects whose paths begin with `base`. `host`: what its requests name.
    #[must_use]
    pub fn new(
        upstream: &'a Upstream,
        base: &str,
        host: HeaderValue,
        signer: Option<Arc<Signer>>,
    ) -> Self {
        let object = format!("{base}-{}", Uuid::new_v4());
        Self {
            upstream,
            host,
            missing: format!("{object}-missing"),
            there: object,
            signer,
        }
    }

    /// Tries each condition of each call, and takes the objects away again. `ask` sends a request.
    ///
    /// # Errors
    /// [`Untried`]; then nothing is known.
    pub async fn run<E: std::fmt::Display>(
        &self,
        ask: impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
    ) -> Result<Known, Untried> {
        let tried = self.conditions(&ask).await;
        for object in [&self.there, &self.missing] {
            // The next probe has names of its own: what is left of this one does no harm.
            let _ = self.ask(&ask, Method::DELETE, object, &[], "").await;
        }
        tried
    }

    async fn conditions<E: std::fmt::Display>(
        &self,
        ask: &impl AsyncFn(Parts, Bytes) -> Result<Response<Bytes>, E>,
    ) -> Result<Known, Untried> {
        let (there, missing) = (self.there.as_str(), self.missing.as_str());
        let wrong = ETag::strong(WRONG.as_bytes()).ok_or_else(|| Untried::Weak(there.into()))?;
        let wrong = Condition::Match(wrong);
        let any = (IF_NONE_MATCH, "*");
        let other = (IF_MATCH, WRONG);
        let mut known = Known::default();
        let put = async |header: (HeaderName, &str), body: &str| {
            self.ask(ask, Method::PUT, there, &[header], body).await
        };
        self.must(
            put(any.clone(), "1").await?,
            "PUT with If-None-Match: * of an object that is not there",
        )?;
        let seen = self.ask(ask, Method::HEAD, there, &[], "").await?;
        let etag = question::etag(seen.headers()).ok_or_else(|| Untried::Weak(there.into()))?;
        let etag = etag.value().to_str().unwrap_or_default().to_owned();
        known.note(
            Call::Put,
            &Condition::Create,
            refused(&put(any.clone(), "2").await?),
        );
        let refuses = refused(&put(other.clone(), "2").await?);
        let goes = put((IF_MATCH, &etag), "3").await?.status().is_success();
        let none = self
            .ask(ask, Method::PUT, missing, &[(IF_MATCH, &etag)], "4")
            .await?;
        let on_nothing = refused(&none) || none.status() == StatusCode::NOT_FOUND;
        known.note(Call::Put, &wrong, refuses && goes && on_nothing);
        if self.upstream.kind == Kind::S3 {
            let begun = self
                .ask(ask, Method::POST, &format!("{there}?uploads"), &[], "")
                .await?;
            let begun = self.must(begun, "CreateMultipartUpload")?;
            let id = child(begun.body(), "UploadId").unwrap_or_default();
            let id = utf8_percent_encode(&id, NON_ALPHANUMERIC).to_string();
            let part = format!("{there}?partNumber=1&uploadId={id}");
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
            let upload = format!("{there}?uploadId={id}");
            // Where the first is ignored, the upload is gone, and the second says nothing of conditions.
            for (header, condition) in [
                (any.clone(), Condition::Create),
                (other.clone(), wrong.clone()),
            ] {
                let done = self
                    .ask(ask, Method::POST, &upload, &[header], &list)
                    .await?;
                known.note(Call::Complete, &condition, refused(&done));
            }
            let _ = self.ask(ask, Method::DELETE, &upload, &[], "").await;
            for (header, condition) in [(any, Condition::Create), (other.clone(), wrong.clone())] {
                let from = [(COPY_SOURCE, there), (DIRECTIVE, "REPLACE"), header];
                let done = self.ask(ask, Method::PUT, there, &from, "").await?;
                known.note(Call::Copy, &condition, refused(&done));
            }
        }
        let deleted = self.ask(ask, Method::DELETE, there, &[other], "").await?;
        known.note(Call::Delete, &wrong, refused(&deleted));
        Ok(known)
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
        })
    }
}

/// Whether a condition that did not hold was why nothing was done. Some answer so in the body of a success.
fn refused(answer: &Response<Bytes>) -> bool {
    answer.status() == StatusCode::PRECONDITION_FAILED
        || child(answer.body(), "Code").as_deref() == Some("PreconditionFailed")
}

/// The text of an element below the root of an answer.
fn child(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let document = Document::parse(text).ok()?;
    let mut all = document.root_element().children();
    let found = all.find(|node| node.tag_name().name() == name)?;
    found.text().map(str::to_owned)
}
