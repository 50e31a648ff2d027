//! `tls` of `[server]` and of an upstream: which files, not what is in them.

use crate::config::file::Table;
use crate::config::settings::{Identity, ServerTls, UpstreamTls};
use crate::config::value::Value;
use rustls::pki_types::ServerName;
use std::path::PathBuf;

pub fn server(mut table: Table<'_, '_>) -> Option<ServerTls> {
    let cert = table.need("cert", "\"tls/cert.pem\"", path);
    let key = table.need("key", "\"tls/key.pem\"", path);
    let client_ca = table.read("client_ca", path);
    table.finish();
    Some(ServerTls {
        identity: Identity {
            cert: cert?,
            key: key?,
        },
        client_ca,
    })
}

/// An upstream's, with what is not said of it: the name in its certificate is its host's. `None` where the
/// host is none that a certificate could name, and no other is given; or there are faults, which are kept.
pub fn upstream(value: Option<&Value<'_, '_>>, host: &str) -> Option<UpstreamTls> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let own_name = ServerName::try_from(host.to_owned()).ok();
    let Some(value) = value else {
        return own_name.map(|server_name| UpstreamTls {
            ca: None,
            identity: None,
            server_name,
        });
    };
    let mut table = value.table()?;
    let ca = table.read("ca", path);
    let cert = table.read("cert", path);
    let key = table.read("key", path);
    for (name, there, other) in [
        ("cert", cert.is_some(), key.is_some()),
        ("key", key.is_some(), cert.is_some()),
    ] {
        if other && !there {
            table.missing(name, "\"…\": a certificate and its key go together");
        }
    }
    let given = table.read("server_name", |value| {
        let text = value.text()?;
        value.check(ServerName::try_from(text.to_owned()).map_err(|_| {
            format!("\"{text}\" is no host name: write the one in the upstream's certificate")
        }))
    });
    table.finish();
    Some(UpstreamTls {
        ca,
        identity: cert.zip(key).map(|(cert, key)| Identity { cert, key }),
        server_name: given.or(own_name)?,
    })
}

pub fn path(value: &Value<'_, '_>) -> Option<PathBuf> {
    value.label(4096).map(PathBuf::from)
}
