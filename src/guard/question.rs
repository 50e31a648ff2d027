//! What the gateway asks of a resource itself: a HEAD, and what its answer says of the object's state.

use super::pin::{ETag, Pin};
use crate::sign::{self, Signer};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, ETAG, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use std::sync::Arc;

const CUSTOMERS_KEY: &str = "x-amz-server-side-encryption-customer-";

/// Why the state of an object could not be learned. No write that needs it is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unlearnt {
    /// There is nothing to ask with.
    Credentials(String),
    /// The resource did not answer.
    Silent,
    /// It answered with this, which says neither that the object is there nor that it is not.
    Status(StatusCode),
    /// It named no strong validator, and the route asks for one (`guard_required`).
    Weak,
}

/// The question for one object.
#[derive(Clone)]
pub(super) struct Question {
    target: Uri,
    headers: HeaderMap,
    /// `None`: it goes with what the client's own request was entitled by.
    signer: Option<Arc<Signer>>,
}

impl Question {
    /// About the object of a request that is ready to be forwarded. A signed request's own signature is for that
    /// alone; whatever else entitles it (Basic, Bearer, a cookie) entitles the question too.
    pub(super) fn about(head: &Parts, query: bool, signer: Option<&Arc<Signer>>) -> Self {
        let mut headers = HeaderMap::new();
        let also = |name: &HeaderName| match signer {
            None => [HOST, AUTHORIZATION, COOKIE].contains(name),
            // An object that is encrypted with its client's key is shown to whoever has that.
            Some(_) => *name == HOST || name.as_str().starts_with(CUSTOMERS_KEY),
        };
        for (name, value) in &head.headers {
            if also(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let bare = || head.uri.path().parse().unwrap_or_default();
        Self {
            target: if query { head.uri.clone() } else { bare() },
            headers,
            signer: signer.cloned(),
        }
    }

    /// Takes the status of its answer.
    pub(super) fn heard(&self, status: StatusCode) {
        if let Some(signer) = &self.signer {
            signer.heard(status);
        }
    }

    /// The request to send.
    ///
    /// # Errors
    /// [`Unlearnt::Credentials`]
    pub(super) async fn request(&self) -> Result<Parts, Unlearnt> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::HEAD;
        head.uri = self.target.clone();
        head.headers.clone_from(&self.headers);
        if let Some(signer) = &self.signer {
            sign(signer, &mut head)
                .await
                .map_err(Unlearnt::Credentials)?;
        }
        Ok(head)
    }
}

/// Signs a request as it will go out: with its Host, which its target does not name.
pub(super) async fn sign(signer: &Signer, head: &mut Parts) -> Result<(), String> {
    let whole = sign::absolute(head)?;
    let target = std::mem::replace(&mut head.uri, whole);
    let done = signer.sign(head).await;
    head.uri = target;
    done
}

/// The state that an answer names. `None`: the object is there, without a strong validator.
///
/// # Errors
/// [`Unlearnt::Status`]
pub(super) fn state(status: StatusCode, headers: &HeaderMap) -> Result<Option<Pin>, Unlearnt> {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Some(Pin::Absent)),
        StatusCode::OK | StatusCode::NO_CONTENT => Ok(etag(headers).map(Pin::At)),
        status => Err(Unlearnt::Status(status)),
    }
}

/// The strong validator that an answer names, where there is exactly one.
pub(super) fn etag(headers: &HeaderMap) -> Option<ETag> {
    let mut all = headers.get_all(ETAG).iter();
    let first = all.next()?;
    let alone = all.next().is_none();
    ETag::strong(first.as_bytes()).filter(|_| alone)
}

/// The size that an answer names.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}
