//! TLS from clients: what is agreed on, who is let in, and certificates that change while connections
//! are open.

use crate::support::authority::Authority;
use crate::support::h2::H2;
use crate::support::{Client, Config, wait_until};
use crate::world::World;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A connection over TLS that speaks HTTP/1.1.
struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl Encrypted {
    fn connect(port: u16, config: Arc<ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self(StreamOwned::new(
            ClientConnection::new(config, name).unwrap(),
            stream,
        ))
    }

    /// Sends a PUT without a body and reads the head of the answer.
    fn put(&mut self, token: u64) -> Result<String, std::io::Error> {
        let head = format!(
            "PUT /files/a HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\nX-Tag: t{token}\r\nContent-Length: 0\r\n\r\n"
        );
        self.ask(&head)
    }

    /// Sends a head and reads that of the answer.
    fn ask(&mut self, head: &str) -> Result<String, std::io::Error> {
        self.0.write_all(head.as_bytes())?;
        let mut came = Vec::new();
        while !came.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut part = [0; 4096];
            let length = self.0.read(&mut part)?;
            if length == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            came.extend_from_slice(&part[..length]);
        }
        Ok(String::from_utf8(came).unwrap())
    }

    fn certificate(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    }
}

/// Sends a head on a connection of its own, and gives that of the answer.
pub fn exchange(port: u16, config: Arc<ClientConfig>, head: &str) -> String {
    Encrypted::connect(port, config).ask(head).unwrap()
}

fn files(config: Config, folder: &Path, more: &str) -> Config {
    let path = |name: &str| folder.join(name).display().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    config.server(
        "tls",
        &format!("{{ cert = '{cert}', key = '{key}'{more} }}"),
    )
}

fn world(authority: &Authority) -> (World, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    authority.renew(folder.path());
    (World::with(|c| files(c, folder.path(), "")), folder)
}

#[test]
fn both_protocols_are_fenced_over_tls() {
    let authority = Authority::new();
    let (w, _folder) = world(&authority);
    let h2 = H2::over_tls(w.gw.port, authority.client(&[b"h2"], None)).unwrap();
    let headers = [("Fencing-Token", "5"), ("X-Tag", "t5")];
    h2.request("PUT", "/files/a", &headers, b"data")
        .answered(200);
    assert_eq!(w.up.head("t5").all("X-Forwarded-Proto"), ["https"]);
    let mut h1 = Encrypted::connect(w.gw.port, authority.client(&[b"http/1.1"], None));
    assert!(h1.put(4).unwrap().starts_with("HTTP/1.1 412 "));
    assert!(h1.put(6).unwrap().starts_with("HTTP/1.1 200 "));
    h2.request("PUT", "/files/a", &headers, b"data")
        .refused(412, "stale");
    // Without ALPN it is HTTP/1.1.
    let mut old = Encrypted::connect(w.gw.port, authority.client(&[], None));
    assert!(old.put(6).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_is_not_encrypted_is_not_served() {
    let authority = Authority::new();
    let (w, _folder) = world(&authority);
    let mut plain = Client::connect(w.gw.port);
    plain.send_head(
        "PUT",
        "/files/a",
        &[("Fencing-Token", "5"), ("X-Tag", "plain")],
    );
    assert!(!plain.rest().starts_with(b"HTTP/"));
    w.stays_away("plain");
}

#[test]
fn a_certificate_that_changes_is_shown_to_new_connections_and_drops_none() {
    let authority = Authority::new();
    let (w, folder) = world(&authority);
    let client = || authority.client(&[b"http/1.1"], None);
    let mut open = Encrypted::connect(w.gw.port, client());
    open.put(5).unwrap();
    let first = open.certificate();
    authority.renew(folder.path());
    let shown = || {
        let mut new = Encrypted::connect(w.gw.port, client());
        new.put(5).unwrap();
        new.certificate()
    };
    wait_until("the new certificate to be shown", || shown() != first);
    let second = shown();
    // One that cannot be used changes nothing.
    fs::write(folder.path().join("key.pem"), "no key").unwrap();
    wait_until("the fault to be said", || {
        w.gw.log().contains("cannot be used")
    });
    assert_eq!(shown(), second);
    assert!(open.put(5).unwrap().starts_with("HTTP/1.1 200 "));
}

#[test]
fn only_clients_of_the_authority_are_let_in() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.renew(folder.path());
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    let more = format!(", client_ca = '{}'", ca.display());
    let w = World::with(|c| files(c, folder.path(), &more));
    let put = |shown| Encrypted::connect(w.gw.port, authority.client(&[], shown)).put(5);
    assert!(put(None).is_err());
    assert!(put(Some(stranger.sign(&["worker"]))).is_err());
    w.stays_away("t5");
    assert!(
        put(Some(authority.sign(&["worker"])))
            .unwrap()
            .starts_with("HTTP/1.1 200 ")
    );
}

#[test]
fn a_handshake_that_stalls_is_let_go() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.renew(folder.path());
    let w = World::with(|c| files(c, folder.path(), "").server("header_timeout", "\"1s\""));
    let start = Instant::now();
    let mut silent = Client::connect(w.gw.port);
    let mut half = Client::connect(w.gw.port);
    half.send(&[22, 3, 1, 2, 0, 1]);
    assert!(silent.rest().is_empty() && half.rest().is_empty());
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_certificate_that_cannot_be_used_fails_the_check_and_stops_the_start() {
    let authority = Authority::new();
    let (w, folder) = world(&authority);
    let (_, other) = authority.sign(&["localhost"]);
    fs::write(folder.path().join("key.pem"), other.serialize_pem()).unwrap();
    let (code, said) = w.gw.command(&["check"]);
    assert!(code == Some(2) && said.contains("server.tls: "), "{said}");
    fs::write(folder.path().join("key.pem"), "no key").unwrap();
    let (code, said) = w.gw.command(&["serve"]);
    assert!(code == Some(1) && said.contains("key.pem"), "{said}");
    fs::remove_file(folder.path().join("cert.pem")).unwrap();
    let (code, said) = w.gw.command(&["check"]);
    assert!(code == Some(2) && said.contains("cert.pem"), "{said}");
}
