//! The certificates that a gateway shows and trusts, read anew when their files change.

use super::Error;
use crate::config::{Settings, Upstream};
use crate::sign::Clients;
use crate::tls::{TlsError, client, server};
use std::sync::Arc;

/// The TLS sides of a gateway.
pub struct Encryption {
    pub(super) clients: Option<Arc<server::Tls>>,
    /// For each upstream.
    pub(super) upstreams: Vec<Option<Arc<client::Tls>>>,
    /// For each upstream, the clients for whom it is signed.
    pub(super) keys: Vec<Option<Arc<Clients>>>,
}

impl Encryption {
    /// Reads all files that the configuration names.
    ///
    /// # Errors
    /// [`Error::Tls`] for the first that cannot be used.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let clients = settings.server.tls.clone().map(server::open).transpose();
        let key = || "server.tls".into();
        let clients = clients.map_err(|why| Error::Tls { key: key(), why })?;
        let upstreams = settings
            .upstreams
            .iter()
            .map(|upstream| upstream_side(upstream));
        let keys = settings.upstreams.iter().map(|upstream| keys(upstream));
        Ok(Self {
            clients: clients.map(Arc::new),
            upstreams: upstreams.collect::<Result<_, Error>>()?,
            keys: keys.collect::<Result<_, Error>>()?,
        })
    }

    /// For the settings after others: what is spoken to as before keeps what was read.
    ///
    /// # Errors
    /// As [`Encryption::open`].
    pub(super) fn after(&self, before: &Settings, settings: &Settings) -> Result<Self, Error> {
        let upstreams = settings.upstreams.iter().map(|upstream| {
            let same = before
                .upstreams
                .iter()
                .position(|old| old.is_like(upstream));
            match same.and_then(|at| self.upstreams.get(at)) {
                Some(kept) => Ok(kept.clone()),
                None => upstream_side(upstream),
            }
        });
        // Read again with each configuration.
        let keys = settings.upstreams.iter().map(|upstream| keys(upstream));
        Ok(Self {
            clients: self.clients.clone(),
            upstreams: upstreams.collect::<Result<_, Error>>()?,
            keys: keys.collect::<Result<_, Error>>()?,
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
        for (upstream, keys) in settings.upstreams.iter().zip(&self.keys) {
            let name = &*upstream.name;
            match keys.as_ref().map(|keys| keys.refresh()) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) => {
                    tracing::info!(upstream = name, "the clients' keys have changed");
                }
                Some(Err(error)) => {
                    tracing::error!(upstream = name, %error, "the clients' keys have changed and cannot be used: the old ones stay");
                }
            }
        }
    }
}

fn upstream_side(upstream: &Upstream) -> Result<Option<Arc<client::Tls>>, Error> {
    let Some(files) = upstream.tls.clone() else {
        return Ok(None);
    };
    let key = || format!("upstreams.{}.tls", upstream.name);
    let opened = client::open(files, upstream.http2);
    let opened = opened.map_err(|why| Error::Tls { key: key(), why })?;
    Ok(Some(Arc::new(opened)))
}

fn keys(upstream: &Upstream) -> Result<Option<Arc<Clients>>, Error> {
    let Some(path) = upstream.client_keys.clone() else {
        return Ok(None);
    };
    let clients = Clients::open(path).map_err(|why| Error::Keys {
        key: format!("upstreams.{}.client_keys", upstream.name),
        why,
    })?;
    Ok(Some(Arc::new(clients)))
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
