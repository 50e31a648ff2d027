//! TLS, both ways: certificates, keys and roots, read from PEM files, and read again when those change.
//!
//! Knows files and the TLS library. Knows nothing of connections.

pub mod client;
pub mod identity;
pub mod server;

use crate::config::Identity;
use crate::stamp::Stamp;
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// HTTP/2 and HTTP/1.1 as TLS names them (RFC 7301).
pub const H2: &[u8] = b"h2";
const H1: &[u8] = b"http/1.1";

/// Why TLS cannot be spoken.
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

impl TlsError {
    fn file(path: &Path, what: &dyn std::fmt::Display) -> Self {
        Self::File {
            path: path.into(),
            what: what.to_string(),
        }
    }

    fn unusable(what: &dyn std::fmt::Display) -> Self {
        Self::Unusable(what.to_string())
    }
}

type Read<C> = dyn Fn() -> Result<Arc<C>, TlsError> + Send + Sync;

/// What was made of some files, and is made again when they change.
pub struct Kept<C> {
    files: Vec<PathBuf>,
    read: Box<Read<C>>,
    current: RwLock<Current<C>>,
}

struct Current<C> {
    config: Arc<C>,
    stamps: Vec<Stamp>,
    /// What was last said to be wrong, so that it is said once.
    said: String,
}

impl<C> Kept<C> {
    fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<Arc<C>, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let config = read()?;
        let said = String::new();
        Ok(Self {
            files,
            read: Box::new(read),
            current: RwLock::new(Current {
                config,
                stamps,
                said,
            }),
        })
    }

    /// What the next handshake goes by.
    #[must_use]
    pub fn config(&self) -> Arc<C> {
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
        let read = (self.read)();
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

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    files.iter().map(|path| Stamp::of(path)).collect()
}

type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What one side shows of itself.
fn shown(identity: &Identity) -> Result<Shown, TlsError> {
    let chain = certificates(&identity.cert)?;
    let key = PrivateKeyDer::from_pem_file(&identity.key);
    let key = key.map_err(|e| TlsError::file(&identity.key, &e))?;
    Ok((chain, key))
}

/// Whom one side trusts.
fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(path)? {
        roots.add(root).map_err(|e| TlsError::file(path, &e))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| TlsError::file(path, &e))?;
    let chain: Result<Vec<_>, _> = read.collect();
    let chain = chain.map_err(|e| TlsError::file(path, &e))?;
    if chain.is_empty() {
        return Err(TlsError::file(path, &"there is no certificate in it (PEM)"));
    }
    Ok(chain)
}
