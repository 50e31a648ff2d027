//! `WebSocket`s: let through where a route says so, a write for as long as they last, and cut when a newer
//! holder comes.

use crate::support::{Client, Config, wait_until};
use crate::upstream::Script;
use crate::world::{World, pause};
use rustix::process::{Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// An upstream that grants every WebSocket, greets at once and echoes; the word `end` makes it close.
fn echo() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 {
                        return;
                    }
                    head.push(byte[0]);
                }
                let text = String::from_utf8(head).unwrap().to_lowercase();
                if !text.contains("upgrade: websocket") {
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Plain: 1\r\n\r\n");
                    return;
                }
                assert!(
                    text.contains("connection: upgrade") && text.contains("sec-websocket-key: k")
                );
                let granted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello";
                stream.write_all(granted.as_bytes()).unwrap();
                let mut piece = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut piece) {
                    if &piece[..length] == b"end" || stream.write_all(&piece[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn world(port: u16, change: impl FnOnce(Config) -> Config) -> World {
    let url = format!("\"http://127.0.0.1:{port}\"");
    World::with(|c| change(c.upstream("url", &url).route("websocket", "true")))
}

const ASKS: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", "k"),
    ("Sec-WebSocket-Version", "13"),
];

/// Asks for a WebSocket, and sends something before it is granted.
fn open(w: &World, token: Option<&str>, early: &[u8]) -> Client {
    let mut client = w.gw.client();
    let token = token.map(|token| ("Fencing-Token", token));
    let headers: Vec<_> = ASKS.into_iter().chain(token).collect();
    client.send_head("GET", "/files/a", &headers);
    client.send(early);
    client
}

#[track_caller]
fn granted(client: &mut Client) -> Vec<(String, String)> {
    let (status, headers) = client.head();
    assert_eq!(status, 101, "{headers:?}");
    headers
}

/// Reads exactly that.
#[track_caller]
fn expect(client: &mut Client, wanted: &[u8]) {
    let mut came = vec![0; wanted.len()];
    client.read_exact(&mut came);
    assert_eq!(came, wanted);
}

#[test]
fn bytes_pass_both_ways_once_it_is_granted() {
    let w = world(echo(), |c| c);
    let mut client = open(&w, Some("5"), b"early ");
    let headers = granted(&mut client);
    let all = |name: &str| -> Vec<_> {
        let named = headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(all("fencing-status"), ["raised"]);
    assert_eq!(all("upgrade"), ["websocket"]);
    assert_eq!(all("connection"), ["upgrade"]);
    assert_eq!(all("sec-websocket-accept"), ["a"]);
    expect(&mut client, b"helloearly ");
    for _ in 0..3 {
        client.send(b"again");
        expect(&mut client, b"again");
    }
    w.gauge("fencegate_inflight_writes", 1);
    client.send(b"end");
    assert!(client.rest().is_empty());
    w.gauge("fencegate_inflight_writes", 0);
}

#[test]
fn it_is_a_write_and_needs_a_token() {
    let w = world(echo(), |c| c);
    open(&w, None, b"").response("GET").refused(428, "missing");
    w.put(9).body(b"").header("Content-Length", "0").send();
    open(&w, Some("8"), b"")
        .response("GET")
        .refused(412, "stale");
}

#[test]
fn it_is_cut_when_a_newer_holder_comes_and_its_settle_is_waited_for() {
    let w = world(echo(), |c| c.upstream("settle", "\"700ms\""));
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    expect(&mut client, b"hello");
    let start = Instant::now();
    let mut next = open(&w, Some("6"), b"");
    granted(&mut next);
    assert!(start.elapsed() >= Duration::from_millis(700));
    assert!(client.rest().is_empty());
    expect(&mut next, b"hello");
}

#[test]
fn one_that_ends_in_order_leaves_nothing_to_wait_for() {
    let w = world(echo(), |c| c.upstream("settle", "\"1h\""));
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    client.send(b"end");
    client.rest();
    drop(client);
    let mut next = open(&w, Some("6"), b"");
    granted(&mut next);
}

#[test]
fn one_that_its_client_ends_first_is_unknown() {
    // The end is answered by whoever is next in line; what is behind it may not have seen the last message.
    let w = world(echo(), |c| c.upstream("settle", "\"700ms\""));
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    expect(&mut client, b"hello");
    client.stream().shutdown(Shutdown::Write).unwrap();
    client.rest();
    let start = Instant::now();
    granted(&mut open(&w, Some("6"), b""));
    assert!(start.elapsed() >= Duration::from_millis(500));
}

#[test]
fn one_that_is_cut_off_by_a_stop_delivers_nothing_more() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut w = world(listener.local_addr().unwrap().port(), |c| {
        c.server("shutdown_timeout", "\"300ms\"")
    });
    let mut client = open(&w, Some("5"), b"");
    let (mut upstream, _) = listener.accept().unwrap();
    // An answer before its request would be none.
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        upstream.read_exact(&mut byte).unwrap();
        asked.extend(byte);
    }
    let head =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    upstream.write_all(head).unwrap();
    granted(&mut client);
    // The upstream takes nothing: messages lie in the buffers.
    let mut stream = client.stream();
    let feeder = thread::spawn(move || while stream.write_all(&[b'x'; 8192]).is_ok() {});
    pause(500);
    w.gw.stop();
    let mut taken = Vec::new();
    let ended = upstream.read_to_end(&mut taken);
    assert!(
        ended.is_err(),
        "it ended in order after {} bytes",
        taken.len()
    );
    drop(client);
    feeder.join().unwrap();
}

#[test]
fn on_a_route_that_was_off_it_holds_up_the_configuration_after_it() {
    let w = world(echo(), |c| {
        c.route("mode", "\"off\"").upstream("settle", "\"300ms\"")
    });
    let mut client = open(&w, None, b"");
    granted(&mut client);
    expect(&mut client, b"hello");
    w.gw.edit("mode = \"off\"", "mode = \"enforce\"");
    kill_process(w.gw.pid(), Signal::HUP).unwrap();
    let reloaded = || w.metric("fencegate_config_reloads_total", &["ok"]) > 0.5;
    wait_until("the reload", reloaded);
    pause(50);
    let new = w.put(6).header("Content-Length", "4").start();
    w.waiting(1);
    pause(500);
    assert!(!new.is_done());
    client.send(b"end");
    client.rest();
    drop(client);
    new.result().answered(200);
}

#[test]
fn one_on_which_nothing_moves_is_ended() {
    let w = world(echo(), |c| c.upstream("body_idle_timeout", "\"1s\""));
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    expect(&mut client, b"hello");
    assert!(client.rest().is_empty());
    wait_until("the end of the write", || {
        w.metric("fencegate_unsettled_writes", &[]) + w.metric("fencegate_inflight_writes", &[])
            < 0.1
    });
}

#[test]
fn where_no_route_allows_it_the_request_goes_on_without() {
    let w = world(echo(), |c| c.route("websocket", "false"));
    let mut client = open(&w, Some("5"), b"");
    let answer = client.response("GET");
    answer.answered(200);
    assert_eq!(answer.header("x-plain"), Some("1"));
}

#[test]
fn a_protocol_that_was_not_asked_for_is_not_switched_to() {
    for switch in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let w = World::with(|c| c.route("websocket", "true"));
        w.up.script("ws", Script::raw(switch));
        let mut client = w.gw.client();
        let headers = [("Fencing-Token", "5"), ("X-Tag", "ws")];
        let headers: Vec<_> = ASKS.into_iter().chain(headers).collect();
        client.send_head("GET", "/files/a", &headers);
        client.response("GET").refused(502, "outcome-unknown");
    }
}

#[test]
fn a_client_that_leaves_ends_it() {
    let w = world(echo(), |c| c);
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    w.gauge("fencegate_inflight_writes", 1);
    drop(client);
    w.gauge("fencegate_inflight_writes", 0);
}

#[test]
fn it_passes_on_a_route_that_is_off() {
    let w = world(echo(), |c| c.route("mode", "\"off\""));
    let mut client = open(&w, None, b"");
    granted(&mut client);
    expect(&mut client, b"hello");
    client.send(b"x");
    expect(&mut client, b"x");
}

#[test]
fn a_stop_waits_for_it_as_for_any_write() {
    let mut w = world(echo(), |c| c.server("shutdown_timeout", "\"1s\""));
    let mut client = open(&w, Some("5"), b"");
    granted(&mut client);
    let start = Instant::now();
    let stopped = w.gw.stop();
    assert!(start.elapsed() >= Duration::from_secs(1) && stopped.success());
    expect(&mut client, b"hello");
    pause(10);
    let _ = TcpStream::connect(("127.0.0.1", w.gw.port)).is_err();
}
