//! One HTTP/1.1 request on a connection of its own, for what the gateway asks beside its upstreams: collectors of
//! traces, and services that give credentials out.
//!
//! Bounded in time, and in how much of an answer is read. Knows nothing of who asks.

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a response is read.
const ANSWER: usize = 64 << 10;

/// How a server is spoken to over TLS, and whom its certificate must name.
pub type Tls = (Arc<ClientConfig>, ServerName<'static>);

/// Asks the server at `authority` (host and port) and reads its whole answer. Dropping the future closes the
/// connection.
///
/// # Errors
/// No connection, no answer within 5 s, or one that is larger than 64 KiB.
pub async fn fetch(
    authority: &Authority,
    tls: Option<&Tls>,
    mut request: Request<Bytes>,
) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>> {
    let host = HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().entry(HOST).or_insert(host);
    let close = HeaderValue::from_static("close");
    request.headers_mut().insert(CONNECTION, close);
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = target.map_or_else(Uri::default, Uri::from);
    let asked = async {
        let stream = TcpStream::connect(authority.as_str()).await?;
        match tls {
            None => exchange(stream, request).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                exchange(connector.connect(name.clone(), stream).await?, request).await
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await?
}

async fn exchange<S>(
    stream: S,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the sender.
    tokio::spawn(connection);
    let answer = sender.send_request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
