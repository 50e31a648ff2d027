//! What listeners show their clients, and whom they let in.

use super::{H1, H2, Kept, TlsError, roots, shown};
use crate::config::ServerTls;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use std::sync::Arc;

/// The TLS side of all listeners.
pub type Tls = Kept<ServerConfig>;

/// Reads the files.
///
/// # Errors
/// [`TlsError`]
pub fn open(files: ServerTls) -> Result<Tls, TlsError> {
    let identity = &files.identity;
    let all = [
        Some(&identity.cert),
        Some(&identity.key),
        files.client_ca.as_ref(),
    ];
    let all = all.into_iter().flatten().cloned().collect();
    Kept::open(all, move || config(&files))
}

fn config(files: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = shown(&files.identity)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::unusable(&e))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|e| TlsError::unusable(&e))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| TlsError::unusable(&e))?;
    config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    Ok(Arc::new(config))
}
