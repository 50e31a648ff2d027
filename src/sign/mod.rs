//! Requests of the gateway's own to an object store are signed: with Signature Version 4, by the credentials that
//! Amazon's own tools would find on this machine.
//!
//! The signature and the search for credentials are the library's. Knows nothing of what is asked.

mod chain;

use http::request::Parts;
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use std::time::Duration;
use tokio::time::timeout;

/// How long the search for credentials may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Signs requests to the object stores of one region. Credentials are looked for when they are first needed,
/// kept until they expire, and never logged.
#[derive(Debug)]
pub struct Signer(reqsign_core::Signer<Credential>);

impl Signer {
    /// One with the credentials of the usual chain: environment, profile, single sign-on, web identity, process,
    /// container, instance.
    #[must_use]
    pub fn of_chain(region: &str) -> Self {
        let chain = DefaultCredentialProvider::new();
        let signer = RequestSigner::new("s3", region);
        Self(reqsign_core::Signer::new(chain::context(), chain, signer))
    }

    /// Signs all headers of a request, whose URI names the host. May ask others for credentials, for 10 s at most.
    /// Dropping the future leaves the request as it was.
    ///
    /// # Errors
    /// Why there are no credentials, for the operator; then the request is as it was.
    pub async fn sign(&self, head: &mut Parts) -> Result<(), String> {
        let none = |why: String| format!("no credentials for the object store: {why}");
        match timeout(PATIENCE, self.0.sign(head, None)).await {
            Ok(signed) => signed.map_err(|error| none(error.to_string())),
            Err(_) => Err(none(
                "whoever was asked for them did not answer in time".into(),
            )),
        }
    }
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
        let signer = Signer(reqsign_core::Signer::new(
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
        assert!(!format!("{signer:?}{:?}", head.headers).contains("secret"));
    }
}
