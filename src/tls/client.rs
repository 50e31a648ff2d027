//! What the gateway shows its upstreams, and which of them it trusts.

use super::{H1, H2, Kept, TlsError, roots, shown};
use crate::config::settings::UpstreamTls;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;

/// The TLS side of the connections to one upstream.
pub type Tls = Kept<ClientConfig>;

/// Reads the files. `http2`: no other protocol is agreed on, else HTTP/1.1 alone.
///
/// # Errors
/// [`TlsError`]
pub fn open(files: UpstreamTls, http2: bool) -> Result<Tls, TlsError> {
    let identity = files.identity.as_ref();
    let all = [
        files.ca.as_ref(),
        identity.map(|identity| &identity.cert),
        identity.map(|identity| &identity.key),
    ];
    let all = all.into_iter().flatten().cloned().collect();
    Kept::open(all, move || config(&files, http2))
}

fn config(files: &UpstreamTls, http2: bool) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match &files.ca {
        Some(path) => roots(path)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError::unusable(&e))?
        .with_root_certificates(roots);
    let mut config = match &files.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = shown(identity)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| TlsError::unusable(&e))?
        }
    };
    let protocol = if http2 { H2 } else { H1 };
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Arc::new(config))
}

/// Those that the system trusts. Some that cannot be read leave the others.
fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    if taken == 0 {
        let what = "the system trusts no certificate authority: name one with `ca`";
        return Err(TlsError::file(Path::new("tls.ca"), &what));
    }
    Ok(roots)
}
