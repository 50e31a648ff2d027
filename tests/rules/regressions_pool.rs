//! Faults that were there once: who waits for a connection to the upstream, who holds one, and what
//! becomes of connections when the gateway ends. Each test fails without its fix.

use crate::support::{Client, Config, Gateway, free_port};
use crate::upstream::Script;
use crate::world::{World, pause};
use rustix::process::{Signal, kill_process};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// One connection to the upstream, for which a request waits as long as it takes.
fn narrow(config: Config) -> Config {
    config
        .server("workers", "1")
        .upstream("max_connections", "1")
        .upstream("connect_timeout", "\"20s\"")
}

#[test]
fn an_admitted_write_that_waits_for_a_connection_does_not_start_after_the_seal() {
    let w = World::with(|c| narrow(c).route("preempt", "false"));
    w.up.script("t5", Script::hold());
    let held = w.put(5).start();
    w.up.whole_of("t5");
    let second = w.put(5).tag("second").start();
    w.gauge("fencegate_inflight_writes", 2);
    let newer = w.put(6).start();
    w.waiting(1);
    w.up.release("t5");
    held.result().answered(200);
    second.result().refused(412, "superseded");
    newer.result().answered(200);
    assert_eq!(w.up.whole(), ["t5", "t6"]);
    assert_eq!(w.up.count("second"), 0);
}

#[test]
fn a_write_whose_client_left_while_it_waits_for_a_connection_is_not_sent() {
    let w = World::with(narrow);
    w.up.script("t5", Script::hold());
    let held = w.put(5).start();
    w.up.whole_of("t5");
    for (method, body) in [("DELETE", &b""[..]), ("PUT", b"data")] {
        let ask = w.ask(method, "/files/b").token(5).tag("gone");
        let length = body.len().to_string();
        let mut client = ask.header("Content-Length", &length).open();
        client.send(body);
        w.gauge("fencegate_inflight_writes", 2);
        drop(client);
        w.gauge("fencegate_inflight_writes", 1);
    }
    w.up.release("t5");
    held.result().answered(200);
    w.put_to("/files/b", 5).tag("third").send().answered(200);
    w.put_to("/files/b", 6).send().answered(200); // what was not sent has nothing to settle
    assert_eq!(w.up.whole(), ["t5", "third", "t6"]);
    assert_eq!(w.up.count("gone"), 0);
}

#[test]
fn deadlines_run_from_when_a_connection_is_there() {
    let w = World::with(|c| narrow(c).upstream("response_timeout", "\"2s\""));
    w.up.script("next", Script::hold());
    let mut first = w.put(5).half();
    w.up.body("t5", 50);
    let ask = w.ask("DELETE", "/files/b").token(5).tag("next");
    let next = ask.body(b"").start();
    w.gauge("fencegate_inflight_writes", 2);
    pause(2200);
    first.send(&[b'x'; 50]);
    first.response("PUT").answered(200);
    w.up.head("next");
    pause(300); // deadlines are looked at some ten times a second
    w.up.release("next");
    next.result().answered(200);
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let w = World::with(|c| {
        narrow(c)
            .server("header_timeout", "\"1s\"")
            .upstream("body_idle_timeout", "\"60s\"")
    });
    let script = Script {
        body: vec![b'x'; 1024 * 1024],
        times: 50,
        ..Script::default()
    };
    let write = w.put(5).header("Content-Length", "0");
    for (tag, ask) in [("read", w.ask("GET", "/files/a")), ("write", write)] {
        w.up.script(tag, script.clone());
        let client = ask.tag(tag).open();
        w.up.head(tag);
        // Within the connect_timeout, though the client is still there.
        w.ask("GET", "/files/b").send().answered(200);
        drop(client);
    }
    w.put(6).send().answered(200);
}

#[test]
fn a_stop_is_not_held_up_by_a_client_that_lingers() {
    let mut w = World::new();
    let script = Script {
        early: true,
        hold_body: true,
        ..Script::status(413)
    };
    w.up.script("large", script);
    w.put(5).send().answered(200);
    let mut large = w.put(5).tag("large").half();
    large.response("PUT").answered(413);
    let mut stale = w.put(4).half();
    stale.response("PUT").refused(412, "stale");
    let start = Instant::now();
    assert!(w.gw.stop().success());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}"); // a client may linger for 5 s and more
    drop((large, stale));
}

#[test]
fn what_a_killed_gateway_had_in_its_send_buffers_is_not_delivered() {
    const LENGTH: usize = 400_000;
    let port = free_port();
    let listener = narrow_listener(port);
    let mut gw = Gateway::start(Config::new(port).server("workers", "1"));
    let mut client = TcpStream::connect(("127.0.0.1", gw.port)).unwrap();
    let head = format!(
        "PUT /files/a HTTP/1.1\r\nHost: a\r\nFencing-Token: 5\r\nContent-Length: {LENGTH}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(&vec![b'x'; LENGTH]).unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    let patience = Some(Duration::from_secs(30));
    upstream.set_read_timeout(patience).unwrap();
    // The head is there, so the gateway writes; what the upstream has no room for waits over there.
    upstream.peek(&mut [0]).unwrap();
    pause(500);
    gw.kill();
    let mut came = Vec::new();
    // In whatever way it ends: what came before the end counts.
    let _ = upstream.read_to_end(&mut came);
    assert!(came.starts_with(b"PUT /files/a "), "nothing came");
    assert!(came.len() < LENGTH, "all came: {}", came.len());
}

#[test]
fn nothing_more_is_sent_once_the_upstream_turned_the_write_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let gw = Gateway::start(Config::new(port).server("workers", "1"));
    let mut client = Client::connect(gw.port);
    let headers = [("Fencing-Token", "5"), ("Content-Length", "20")];
    client.send_head("PUT", "/files/a", &headers);
    client.send(b"first half");
    let (mut upstream, _) = listener.accept().unwrap();
    upstream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let (mut came, mut buffer) = (Vec::new(), [0; 4096]);
    while !came.ends_with(b"first half") {
        let length = upstream.read(&mut buffer).unwrap();
        came.extend_from_slice(&buffer[..length]);
    }
    pause(100);
    // The gateway finds the answer and the last part in the same moment, in this order.
    kill_process(gw.pid(), Signal::STOP).unwrap();
    let answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    upstream.write_all(answer.as_bytes()).unwrap();
    pause(100);
    client.send(b"other half");
    pause(100);
    // Read as it comes: the reset at the end would take it away.
    let reader = thread::spawn(move || {
        let mut more = Vec::new();
        let _ = upstream.read_to_end(&mut more); // in whatever way it ends
        more
    });
    pause(50);
    kill_process(gw.pid(), Signal::CONT).unwrap();
    client.response("PUT").answered(413);
    assert_eq!(reader.join().unwrap(), b"");
}

#[test]
fn what_came_while_the_gateway_was_paused_was_in_time() {
    let w = World::with(|c| {
        c.server("workers", "1")
            .upstream("body_idle_timeout", "\"1s\"")
            .upstream("response_timeout", "\"1s\"")
    });
    let mut half = w.put(5).tag("half").half();
    w.up.script("held", Script::hold());
    let held = w.put(5).tag("held").start();
    w.up.body("half", 50);
    w.up.whole_of("held");
    pause(300); // deadlines are looked at some ten times a second
    kill_process(w.gw.pid(), Signal::STOP).unwrap();
    half.send(&[b'x'; 50]);
    w.up.release("held");
    pause(1500);
    kill_process(w.gw.pid(), Signal::CONT).unwrap();
    half.response("PUT").answered(200);
    held.result().answered(200);
}

#[test]
fn a_connection_is_idle_from_the_end_of_its_last_response() {
    let w = World::with(|c| c.server("workers", "1").upstream("idle_timeout", "\"2s\""));
    let script = Script {
        hold_end: true,
        ..Script::default()
    };
    w.up.script("long", script);
    let long = w.ask("GET", "/files/a").tag("long").start();
    w.up.head("long");
    pause(2500);
    w.up.release("long");
    long.result().answered(200);
    w.ask("GET", "/files/a").tag("next").send().answered(200);
    assert_eq!(w.up.head("next").from, w.up.head("long").from);
}

/// A listener whose connections take little that is not read.
fn narrow_listener(port: u16) -> TcpListener {
    let kind = socket2::Type::STREAM;
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    socket.bind(&address.into()).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}
