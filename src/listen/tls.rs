//! The certificate that listeners show, and whose clients they let in: read from files, and read again
//! when those change.

use crate::config::TlsFiles;
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// HTTP/2 and HTTP/1.1 as TLS names them (RFC 7301).
pub const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("{}: {what}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The key does not fit the certificate, or the like.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(String),
}

/// The TLS side of all listeners.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<Current>,
}

struct Current {
    config: Arc<ServerConfig>,
    stamps: Stamps,
    /// What was last said to be wrong, so that it is said once.
    said: String,
}

/// For each file: when it was last changed, its length and its inode; `None` where that cannot be told.
type Stamps = Vec<Option<(SystemTime, u64, u64)>>;

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`]
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let config = config(&files)?;
        let said = String::new();
        let current = RwLock::new(Current {
            config,
            stamps,
            said,
        });
        Ok(Self { files, current })
    }

    /// What the next handshake goes by.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }

    /// Reads the files again if one has changed. Connections that are open keep what they have.
    ///
    /// # Errors
    /// [`TlsError`], once for each fault; then nothing has changed, and they are read again the next time.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let stamps = stamps(&self.files);
        if stamps == self.current.read().stamps {
            return Ok(false);
        }
        let read = config(&self.files);
        let mut current = self.current.write();
        match read {
            Ok(config) => {
                *current = Current {
                    config,
                    stamps,
                    said: String::new(),
                };
                Ok(true)
            }
            Err(error) if current.said == error.to_string() => Ok(false),
            Err(error) => {
                current.said = error.to_string();
                Err(error)
            }
        }
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    let changed = |path: &PathBuf| {
        let found = path.metadata().ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    };
    [
        Some(&files.cert),
        Some(&files.key),
        files.client_ca.as_ref(),
    ]
    .into_iter()
    .flatten()
    .map(changed)
    .collect()
}

fn config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let unusable = |e: &dyn std::fmt::Display| TlsError::Unusable(e.to_string());
    let chain = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| bad(&files.key, &e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(path)? {
                roots.add(root).map_err(|e| bad(path, &e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|e| unusable(&e))?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| unusable(&e))?;
    config.alpn_protocols = vec![H2.to_vec(), H1.to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| bad(path, &e))?;
    let chain: Vec<_> = read.collect::<Result<_, _>>().map_err(|e| bad(path, &e))?;
    if chain.is_empty() {
        return Err(bad(path, &"there is no certificate in it (PEM)"));
    }
    Ok(chain)
}

fn bad(path: &Path, what: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.into(),
        what: what.to_string(),
    }
}
