//! What is said of upstreams that can or cannot be reached, and that nothing is decided by it.

use crate::support::{Client, Config, Gateway, free_port, wait_until};
use crate::world::World;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

const UP: &str = "fencegate_upstream_up";

/// The status of the page, and its body.
fn readyz(gw: &Gateway) -> (u16, Value) {
    let page = Client::connect(gw.admin_port).request("GET", "/readyz", &[], b"");
    assert_eq!(page.header("Content-Type"), Some("application/json"));
    (page.status, serde_json::from_slice(&page.body).unwrap())
}

/// What it says of an upstream: the gateway is ready whatever that is.
#[track_caller]
fn said(gw: &Gateway, name: &str) -> Value {
    let (status, page) = readyz(gw);
    assert_eq!((status, &page["status"]), (200, &"ready".into()));
    page["upstreams"][name].clone()
}

#[track_caller]
fn is(gw: &Gateway, name: &str, state: &str, error: Option<&str>) {
    let said = said(gw, name);
    assert_eq!(said["state"], state, "{said}");
    assert_eq!(said["error"].as_str(), error, "{said}");
    assert_eq!(said["for_seconds"].is_u64(), state != "unused", "{said}");
}

#[test]
fn an_upstream_that_is_down_is_named_and_makes_nothing_unready() {
    let other = "[upstreams.other]\nurl = \"http://127.0.0.1:9\"\n";
    let mut w = World::with(|c| c.more(other));
    is(&w.gw, "files", "unused", None);
    w.gauge(UP, 2);
    w.put(5).send().answered(200);
    is(&w.gw, "files", "reachable", None);
    w.up.stop();
    w.put(5).send().refused(502, "unsent");
    is(&w.gw, "files", "unreachable", Some("connection_refused"));
    is(&w.gw, "other", "unused", None);
    w.gauge(UP, 1);
    assert!(w.metric(UP, &["upstream=\"files\""]) < 0.1);
    w.up.start_again();
    w.put(5).send().answered(200);
    is(&w.gw, "files", "reachable", None);
    w.gauge(UP, 2);
}

#[test]
fn a_handshake_that_fails_is_named() {
    let mut w = World::new();
    w.gw.edit("\"http://", "\"https://");
    assert!(w.gw.stop().success());
    w.gw.start_again();
    w.put(5).send().refused(502, "unsent");
    is(&w.gw, "files", "unreachable", Some("tls_protocol_error"));
}

#[test]
fn an_answer_on_an_open_connection_takes_back_what_was_said() {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let port = listener.local_addr().unwrap().port();
    let gw = Gateway::start(Config::new(port).server("workers", "1"));
    let mut client = gw.client();
    client.send_head("GET", "/files/a", &[]);
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = BufReader::new(&stream);
    let mut line = String::from("-");
    while !line.trim().is_empty() {
        line.clear();
        head.read_line(&mut line).unwrap();
    }
    drop(listener);
    assert_eq!(gw.get("/files/b").status, 502);
    is(&gw, "files", "unreachable", Some("connection_refused"));
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .unwrap();
    client.response("GET").answered(200);
    is(&gw, "files", "reachable", None);
}

#[test]
fn another_url_begins_anew() {
    let mut w = World::new();
    w.up.stop();
    w.put(5).send().refused(502, "unsent");
    w.gauge(UP, 0);
    let other = free_port();
    w.gw.edit(&w.up.port.to_string(), &other.to_string());
    rustix::process::kill_process(w.gw.pid(), rustix::process::Signal::HUP).unwrap();
    wait_until("the other url", || {
        said(&w.gw, "files")["state"] == "unused"
    });
    w.gauge(UP, 1);
}

#[test]
fn a_gateway_that_stops_says_so() {
    let w = World::new();
    w.up.script("held", crate::upstream::Script::hold());
    let held = w.put(5).tag("held").start();
    w.up.whole_of("held");
    w.gw.ask_to_stop();
    wait_until("503", || {
        let (status, page) = readyz(&w.gw);
        status == 503 && page["status"] == "stopping"
    });
    w.up.release("held");
    held.result().answered(200);
}
