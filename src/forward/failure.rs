//! Why an exchange with an upstream brought no response.

use std::io;

/// Why there is no response from the upstream.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The connection was refused, or the name was not found.
    #[error("cannot connect to the upstream: {0}")]
    Connect(io::Error),
    /// The TLS handshake failed: its certificate is not to be trusted, or it does not take ours.
    #[error("no TLS with the upstream: {0}")]
    Tls(io::Error),
    /// No connection within `connect_timeout`.
    #[error("no connection to the upstream in time")]
    ConnectTimeout,
    /// Every connection of `max_connections` was taken for all of `connect_timeout`.
    #[error("all connections to the upstream are taken")]
    NoConnectionFree,
    /// The upstream closed the connection, or sent what is not HTTP.
    #[error("the upstream broke the connection off")]
    Broken,
    /// No response head within `response_timeout`, or the body was not taken.
    #[error("the upstream did not answer in time")]
    Silent,
    /// The client's body stalled for `body_idle_timeout`.
    #[error("the request body stalled")]
    BodyStalled,
    /// The client left, or its body was not well formed.
    #[error("the request body broke off")]
    BodyBroken,
    /// The client's body became larger than it may be.
    #[error("the request body is too large")]
    BodyTooLarge,
    /// A part of the client's body is not what it signed.
    #[error("the request body is not what was signed")]
    Forged,
    /// The resource refused it, since somebody wrote past the gateway.
    #[error("the object was written past the gateway")]
    Conflict,
    /// The resource refused it, since an earlier one of the same holder has taken effect.
    #[error("an earlier write of the same holder has taken effect")]
    Written,
    /// A higher token came, and this write was cut or not tried again.
    #[error("a newer holder took over")]
    Superseded,
}

/// A failure, and whether anything of the request reached the upstream.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub why: Failure,
    /// Whether a byte of it reached the upstream connection; if not, it had no effect.
    pub sent: bool,
}
