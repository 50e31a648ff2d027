//! The way to an OpenTelemetry collector.

use crate::fetch::{Tls, fetch};
use async_trait::async_trait;
use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};

/// Where a collector is.
#[derive(Debug)]
pub struct Collector {
    /// Host and port.
    pub authority: Authority,
    /// How it is spoken to over TLS.
    pub tls: Option<Tls>,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        fetch(&self.authority, self.tls.as_ref(), request).await
    }
}
