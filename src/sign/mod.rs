//! Requests to an object store are signed with Signature Version 4, by the credentials that Amazon's own tools would
//! find on this machine: what the gateway itself asks, and, where it signs for its clients, all that goes there. Then
//! it is the gateway that checks who a client is.
//!
//! The signature and the search for credentials are the library's; checking the signature of a request that comes
//! in is ours. Knows nothing of gates and routes.

mod chain;
mod chunks;
mod claim;
mod clients;
pub mod stamp;

pub use chunks::{Chunks, Forged};
pub use clients::{Clients, Identity};

use http::header::{AUTHORIZATION, DATE, HOST};
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

const X_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const SESSION: HeaderName = HeaderName::from_static("x-amz-s3session-token");

/// How long the search for credentials may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Signs requests to the object stores of one region. Credentials are looked for when they are first needed,
/// kept until they expire, and never logged.
pub struct Signer {
    library: reqsign_core::Signer<Credential>,
    /// There were none when they were last looked for.
    failing: AtomicBool,
    /// A request that was signed was refused, and none has been answered well since.
    refused: AtomicBool,
}

impl Signer {
    /// One with the credentials of the usual chain: environment, profile, single sign-on, web identity, process,
    /// container, instance.
    #[must_use]
    pub fn of_chain(region: &str) -> Self {
        let chain = DefaultCredentialProvider::new();
        let signer = RequestSigner::new("s3", region);
        Self::over(reqsign_core::Signer::new(chain::context(), chain, signer))
    }

    const fn over(library: reqsign_core::Signer<Credential>) -> Self {
        Self {
            library,
            failing: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }
    }

    /// Signs all headers of a request, whose URI names the host. May ask others for credentials, for 10 s at most.
    /// Dropping the future leaves the request as it was.
    ///
    /// # Errors
    /// There are no credentials, for whoever asked; the log says why, once, until there are again. Then the request
    /// is as it was.
    pub async fn sign(&self, head: &mut Parts) -> Result<(), String> {
        let why = match timeout(PATIENCE, self.library.sign(head, None)).await {
            Ok(Ok(())) => {
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("there are credentials for the object store again");
                }
                return Ok(());
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "whoever was asked for them did not answer in time".into(),
        };
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                why,
                "there are no credentials for the object store: they are looked for in environment, profile, single sign-on, web identity, process, container and instance"
            );
        }
        Err("the gateway has no credentials for the object store: its log says why".into())
    }
}

impl Signer {
    /// Takes the status of an answer to a request that was signed. That a store refuses such is logged, once, until
    /// it takes one again: a client that is told so would look at its own credentials.
    pub fn heard(&self, status: StatusCode) {
        let doubtful = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        );
        if status.is_success() {
            self.refused.store(false, Ordering::Relaxed);
        } else if doubtful && !self.refused.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                status = status.as_u16(),
                "the object store refuses a request that the gateway has signed: if that goes on, look at the gateway's credentials, at what they allow, and at `region`"
            );
        }
    }
}

/// How one upstream is signed for.
pub struct Signing {
    /// Who signs.
    pub signer: Arc<Signer>,
    /// The region that clients' signatures are for.
    pub region: String,
    /// Who may come; `None`: whoever has been let in.
    pub clients: Option<Arc<Clients>>,
}

impl Signing {
    /// Makes a request the gateway's own: takes off what its client was entitled by, and signs what has to be
    /// signed. What is added later must not have to. May ask others for credentials, for 10 s at most.
    ///
    /// # Errors
    /// Why there are no credentials, for the operator.
    pub async fn entitle(&self, head: &mut Parts) -> Result<(), String> {
        let headers = &mut head.headers;
        for name in [AUTHORIZATION, DATE, X_DATE, TOKEN, SESSION] {
            headers.remove(name);
        }
        if let Some(query) = head.uri.query() {
            let says = |pair: &&str| {
                let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
                let name = percent_decode_str(name).decode_utf8_lossy();
                !claim::QUERY.contains(&&*name)
            };
            let rest: Vec<&str> = query.split('&').filter(says).collect();
            let path = head.uri.path();
            let target = if rest.is_empty() {
                path.to_owned()
            } else {
                format!("{path}?{}", rest.join("&"))
            };
            head.uri = target
                .parse()
                .map_err(|e| format!("the target is none: {e}"))?;
        }
        let (mut own, ()) = Request::new(()).into_parts();
        own.method = head.method.clone();
        own.uri = absolute(head)?;
        // One of several values would be signed, and all would go.
        for name in repeated(&head.headers) {
            let all = head.headers.get_all(&name).iter();
            let all: Vec<&[u8]> = all.map(HeaderValue::as_bytes).collect();
            let one = HeaderValue::from_bytes(&all.join(&b","[..]));
            head.headers.insert(name, one.map_err(|e| e.to_string())?);
        }
        for (name, value) in &head.headers {
            if *name == HOST || name.as_str().starts_with("x-amz-") {
                own.headers.append(name.clone(), value.clone());
            }
        }
        self.signer.sign(&mut own).await?;
        for name in [AUTHORIZATION, X_DATE, CONTENT_SHA256, TOKEN, SESSION] {
            if let Some(value) = own.headers.remove(&name) {
                head.headers.insert(name, value);
            }
        }
        Ok(())
    }
}

/// What a request may not have where the gateway signs: a header that was moved into the query, which the store would
/// not find there, and an older kind of signature.
///
/// # Errors
/// Why it is refused, for its sender.
pub fn check_query(query: &str) -> Result<(), String> {
    for (name, _) in claim::pairs(query)? {
        let begin = name.get(..6);
        let amazons = begin.is_some_and(|begin| begin.eq_ignore_ascii_case("x-amz-"));
        if claim::is_old(&name) {
            return Err("the URL is signed with Signature Version 2: sign it with version 4 (in boto3, signature_version=\"s3v4\")".into());
        }
        if amazons && !claim::QUERY.contains(&&*name) {
            return Err(format!("{name} stands in the query: send it as a header"));
        }
    }
    Ok(())
}

/// The digest of a content, as `x-amz-content-sha256` has it.
#[must_use]
pub fn digest(content: &[u8]) -> String {
    claim::hex(&Sha256::digest(content))
}

/// The names that stand several times among those that are signed.
fn repeated(headers: &HeaderMap) -> Vec<HeaderName> {
    let several = |name: &&HeaderName| {
        name.as_str().starts_with("x-amz-") && headers.get_all(*name).iter().nth(1).is_some()
    };
    headers.keys().filter(several).cloned().collect()
}

/// The URI of a request whose target does not name its host.
///
/// # Errors
/// It has none.
pub fn absolute(head: &Parts) -> Result<Uri, String> {
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let mut whole = head.uri.clone().into_parts();
    whole.scheme = Some(Scheme::HTTP);
    whole.authority = host.and_then(|host| host.parse::<Authority>().ok());
    Uri::from_parts(whole).map_err(|e| format!("the request has no host: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use reqsign_core::{Context, StaticEnv};

    /// The signature is the library's; that the credentials come from the environment, and that the Host which
    /// goes out is signed, is ours.
    #[tokio::test]
    async fn signs_the_host_that_goes_out() {
        let envs = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let envs = envs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let context = Context::new().with_env(StaticEnv {
            home_dir: None,
            envs,
        });
        let signer = Signer::over(reqsign_core::Signer::new(
            context,
            DefaultCredentialProvider::new(),
            RequestSigner::new("s3", "eu-west-3"),
        ));
        let request = Request::head("http://s3.example:8080/b/a%20b").header("host", "s3.example");
        let (mut head, ()) = request.body(()).unwrap().into_parts();
        signer.sign(&mut head).await.unwrap();
        let said = head.headers["authorization"].to_str().unwrap();
        assert!(
            said.contains(
                "/eu-west-3/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
            ),
            "{said}"
        );
        assert_eq!(head.headers["host"], "s3.example");
        assert!(!format!("{:?}", head.headers).contains("secret"));
    }
}
