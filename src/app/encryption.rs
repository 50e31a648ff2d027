//! The certificates that a gateway shows and trusts, read anew when their files change.

use super::Error;
use crate::config::Settings;
use crate::tls::{TlsError, client, server};
use std::sync::Arc;

/// The TLS sides of a gateway.
pub struct Encryption {
    pub(super) clients: Option<Arc<server::Tls>>,
    /// For each upstream.
    pub(super) upstreams: Vec<Option<Arc<client::Tls>>>,
}

impl Encryption {
    /// Reads all files that the configuration names.
    ///
    /// # Errors
    /// [`Error::Tls`] for the first that cannot be used.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let of = |key: String| move |why| Error::Tls { key, why };
        let clients = settings.server.tls.clone().map(server::open);
        let clients = clients.transpose().map_err(of("server.tls".into()))?;
        let upstreams = settings.upstreams.iter().map(|upstream| {
            let tls = upstream.tls.clone();
            let tls = tls.map(|files| client::open(files, upstream.http2));
            let tls = tls.transpose();
            let tls = tls.map_err(of(format!("upstreams.{}.tls", upstream.name)))?;
            Ok(tls.map(Arc::new))
        });
        Ok(Self {
            clients: clients.map(Arc::new),
            upstreams: upstreams.collect::<Result<_, Error>>()?,
        })
    }

    /// Reads again what has changed on disk, and logs what came of it.
    pub(super) fn refresh(&self, settings: &Settings) {
        if let Some(tls) = &self.clients {
            tell("server", tls.refresh());
        }
        for (upstream, tls) in settings.upstreams.iter().zip(&self.upstreams) {
            if let Some(tls) = tls {
                tell(&upstream.name, tls.refresh());
            }
        }
    }
}

fn tell(whose: &str, refreshed: Result<bool, TlsError>) {
    match refreshed {
        Ok(true) => tracing::info!(whose, "the certificate has changed: new connections get it"),
        Err(error) => {
            tracing::error!(whose, %error, "the certificate has changed and cannot be used: the old one stays");
        }
        Ok(false) => {}
    }
}
