//! TLS to upstreams: whom the gateway trusts, what it shows, and certificates that change.

use crate::support::authority::Authority;
use crate::support::h2_upstream::H2Upstream;
use crate::support::{Config, wait_until};
use crate::world::World;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

/// An upstream that speaks HTTP/1.1 over TLS, and says in its answers who asked.
fn serve(config: Arc<ServerConfig>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(tls, stream.unwrap());
            thread::spawn(move || while answer(&mut stream).is_ok() {});
        }
    });
    port
}

fn answer(stream: &mut StreamOwned<ServerConnection, std::net::TcpStream>) -> std::io::Result<()> {
    let mut came = Vec::new();
    while !came.ends_with(b"\r\n\r\ndata") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        came.push(byte[0]);
    }
    let client = stream.conn.peer_certificates().is_some();
    let name = stream.conn.server_name().unwrap_or_default().to_owned();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Client: {client}\r\nX-Name: {name}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.flush()
}

fn world(port: u16, tls: &str, change: impl FnOnce(Config) -> Config) -> World {
    let url = format!("\"https://localhost:{port}\"");
    let tls = format!("{{ {tls} }}");
    World::with(|c| change(c.upstream("url", &url).upstream("tls", &tls)))
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn ca(folder: &Path, authority: &Authority) -> String {
    format!("ca = '{}'", file(folder, "ca.pem", &authority.pem()))
}

#[test]
fn an_upstream_is_trusted_by_its_authority_and_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let trusted = ca(folder.path(), &authority);
    let protocols: &[&[u8]] = &[b"http/1.1"];
    let port = serve(authority.server("localhost", protocols, None));
    let w = world(port, &trusted, |c| c);
    let answer = w.put(5).send();
    answer.answered(200);
    assert_eq!(answer.header("x-name"), Some("localhost"));
    // Another's certificate, or one for another name, is none: nothing was sent.
    for port in [
        serve(stranger.server("localhost", protocols, None)),
        serve(authority.server("elsewhere", protocols, None)),
    ] {
        let w = world(port, &trusted, |c| c);
        let answer = w.put(5).send();
        answer.refused(502, "unsent");
        let said = answer.header("proxy-status").unwrap();
        assert!(said.contains("error=tls_protocol_error"), "{said}");
    }
    let port = serve(authority.server("elsewhere", protocols, None));
    let named = format!("{trusted}, server_name = \"elsewhere\"");
    let answer = world(port, &named, |c| c).put(5).send();
    answer.answered(200);
    assert_eq!(answer.header("x-name"), Some("elsewhere"));
}

#[test]
fn whom_the_system_trusts_is_trusted_where_no_authority_is_named() {
    let authority = Authority::new();
    let port = serve(authority.server("localhost", &[], None));
    let url = format!("\"https://localhost:{port}\"");
    let w = World::with(|c| c.upstream("url", &url));
    w.put(5).send().refused(502, "unsent");
}

#[test]
fn the_gateway_shows_its_certificate_and_a_new_one_after_it_changed() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    let port = serve(authority.server("localhost", &[], Some(&clients)));
    let renew = |signer: &Authority| {
        let (cert, key) = signer.sign(&["gateway"]);
        let key = file(folder.path(), "key.pem", &key.serialize_pem());
        (file(folder.path(), "cert.pem", &cert.pem()), key)
    };
    let (cert, key) = renew(&others);
    let trusted = ca(folder.path(), &authority);
    let tls = format!("{trusted}, cert = '{cert}', key = '{key}'");
    let w = world(port, &tls, |c| c.upstream("idle_timeout", "\"100ms\""));
    // With TLS 1.3 the refusal of a client's certificate comes after the handshake.
    assert_eq!(w.put(5).send().status, 502);
    renew(&clients);
    wait_until("the new certificate to be shown", || {
        let answer = w.put(5).send();
        answer.status == 200 && answer.header("x-client") == Some("true")
    });
}

#[test]
fn http2_is_agreed_on_in_the_handshake() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let trusted = ca(folder.path(), &authority);
    let http2 = |c: Config| c.upstream("protocol", "\"http2\"");
    let up = H2Upstream::start(Some(authority.server("localhost", &[b"h2"], None)));
    let w = world(up.port, &trusted, http2);
    w.put(5).send().answered(200);
    assert_eq!(up.log().requests[0].uri.scheme_str(), Some("https"));
    let mut victim = w.put(5).tag("victim").half();
    up.wait("victim begins");
    w.put(6).send().answered(200);
    victim.response("PUT").refused(412, "superseded");
    up.wait("victim is reset: 8");
    // One that speaks HTTP/1.1 alone is not taken for another.
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let port = serve(authority.server("localhost", protocols, None));
        world(port, &trusted, http2)
            .put(5)
            .send()
            .refused(502, "unsent");
    }
}

#[test]
fn files_that_cannot_be_used_fail_the_check_and_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let w = world(1, &ca(folder.path(), &authority), |c| c);
    file(folder.path(), "ca.pem", "nothing");
    for command in ["check", "serve"] {
        let (code, said) = w.gw.command(&[command]);
        assert!(code.is_some_and(|code| code > 0), "{command}");
        assert!(
            said.contains("upstreams.files.tls: ") && said.contains("ca.pem"),
            "{said}"
        );
    }
}
