//! A new connection to an upstream: TCP, and TLS on it where its URL says so.

use super::failure::Failure;
use crate::config::settings::Upstream;
use crate::record::Reach;
use crate::socket::Socket;
use crate::tls::H2;
use crate::tls::client::Tls;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// How one upstream is reached.
pub(super) struct Dialer {
    pub(super) upstream: Arc<Upstream>,
    tls: Option<Arc<Tls>>,
    reach: Arc<Reach>,
}

impl Dialer {
    pub(super) const fn new(
        upstream: Arc<Upstream>,
        tls: Option<Arc<Tls>>,
        reach: Arc<Reach>,
    ) -> Self {
        Self {
            upstream,
            tls,
            reach,
        }
    }

    /// Connects within `connect_timeout`, the TLS handshake included. Dropping the future closes what there
    /// is of it.
    pub(super) async fn dial(&self) -> Result<Socket, Failure> {
        let dialled = tokio::time::timeout(self.upstream.connect_timeout, self.connect());
        let dialled = dialled.await.map_err(|_| Failure::ConnectTimeout);
        let dialled = dialled.flatten();
        match &dialled {
            Ok(_) => self.reach.connected(),
            Err(failure) => self.reach.failed(word(failure)),
        }
        dialled
    }

    async fn connect(&self) -> Result<Socket, Failure> {
        let authority = &self.upstream.authority;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let connect = TcpStream::connect((host, authority.port_u16().unwrap_or(80)));
        let socket = Socket::abortive(connect.await.map_err(Failure::Connect)?);
        let (Some(tls), Some(how)) = (&self.tls, &self.upstream.tls) else {
            return Ok(socket);
        };
        let shaken = socket.connect(tls.config(), how.server_name.clone());
        shaken.await.map_err(Failure::Tls)?;
        // A server that knows no ALPN may still speak HTTP/1.1, but not HTTP/2 (RFC 9113 section 3.2).
        if self.upstream.http2 && socket.protocol().is_none_or(|agreed| agreed != H2) {
            let what = "it does not offer HTTP/2 (ALPN)";
            return Err(Failure::Tls(io::Error::other(what)));
        }
        Ok(socket)
    }
}

/// Why there is no connection, in the words of RFC 9209.
fn word(failure: &Failure) -> &'static str {
    use io::ErrorKind as Kind;
    match failure {
        Failure::ConnectTimeout => "connection_timeout",
        Failure::Tls(_) => "tls_protocol_error",
        Failure::Connect(error) => match error.kind() {
            Kind::ConnectionRefused => "connection_refused",
            Kind::ConnectionReset | Kind::ConnectionAborted => "connection_terminated",
            Kind::TimedOut => "connection_timeout",
            Kind::HostUnreachable | Kind::NetworkUnreachable => "destination_ip_unroutable",
            _ if error.raw_os_error().is_none() => "dns_error",
            _ => "proxy_internal_error", // no descriptor or no port is left
        },
        _ => "connection_terminated",
    }
}
