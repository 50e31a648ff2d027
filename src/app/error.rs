//! Why a gateway does not start, or did not end well.

use crate::listen::BindError;
use crate::store::OpenError;
use crate::tls::TlsError;

/// Why a gateway did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// An address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A certificate, a key or the roots cannot be used.
    #[error("{key}: {why}")]
    Tls {
        /// The key of the configuration that names them.
        key: String,
        /// What is wrong with them.
        why: TlsError,
    },
    /// The keys of clients cannot be used.
    #[error("{key}: {why}")]
    Keys {
        /// The key of the configuration that names them.
        key: String,
        /// What is wrong with them.
        why: String,
    },
    /// The access log cannot be written.
    #[error("access_log: {0}")]
    AccessLog(std::io::Error),
    /// Traces cannot be sent.
    #[error("opentelemetry: {0}")]
    Traces(std::io::Error),
    /// A route requires its guard, and does not have it.
    #[error(
        "routes.{route}.guard_required: upstream {upstream} is not known to honour the conditions of the guard: {why}"
    )]
    Guard {
        /// The route.
        route: String,
        /// Its upstream.
        upstream: String,
        /// What is known of it.
        why: String,
    },
    /// Fences cannot be found again.
    #[error("rebuild: {0}")]
    Rebuild(String),
    /// The system refuses a thread, a runtime or a metrics registry.
    #[error("cannot start: {0}")]
    System(String),
    /// The store did not close in order. No commit is lost; the next start waits for the settle.
    #[error("the store did not close in order: {0}")]
    Close(crate::store::Error),
}
