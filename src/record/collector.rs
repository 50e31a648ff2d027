//! The way to an OpenTelemetry collector: one HTTP/1.1 request on a connection of its own for each batch.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of a response is read.
const ANSWER: usize = 64 << 10;

/// Where a collector is.
#[derive(Debug)]
pub struct Collector {
    /// Host and port.
    pub authority: Authority,
    /// How it is spoken to over TLS, and whom its certificate must name.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Collector {
    async fn ask(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = TcpStream::connect(self.authority.as_str()).await?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                exchange(connector.connect(name.clone(), stream).await?, request).await
            }
        }
    }
}

async fn exchange<S>(stream: S, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError>
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

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let host = HeaderValue::from_str(self.authority.as_str())?;
        request.headers_mut().insert(HOST, host);
        let close = HeaderValue::from_static("close");
        request.headers_mut().insert(CONNECTION, close);
        let target = request.uri().path_and_query().cloned();
        *request.uri_mut() = target.map_or_else(Uri::default, Uri::from);
        tokio::time::timeout(PATIENCE, self.ask(request)).await?
    }
}
