//! HTTP/2 to upstreams: what became of a write is told from its stream, and a cut reaches that stream
//! alone.

use crate::support::h2::H2;
use crate::support::h2_upstream::H2Upstream;
use crate::support::{Config, wait_until};
use crate::world::{Ask, World, pause};
use http::HeaderMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

fn world(change: impl FnOnce(Config) -> Config) -> (World, H2Upstream) {
    let up = H2Upstream::start(None);
    let url = format!("\"http://127.0.0.1:{}\"", up.port);
    let w = World::with(|c| {
        let c = c.server("workers", "1").server("h2c", "true");
        change(c.upstream("url", &url).upstream("protocol", "\"http2\""))
    });
    (w, up)
}

/// Opens a connection, and waits until its upstream has said how many streams it takes.
fn warm(w: &World) {
    w.ask("GET", "/files/warm").send().answered(200);
}

/// A PUT of /files/a that says what is to become of it.
fn put(w: &World, token: u64, act: &str) -> Ask {
    w.put(token).header("x-do", act)
}

#[test]
fn requests_share_a_connection_and_say_nothing_of_the_one_they_came_on() {
    let (w, up) = world(|c| c);
    warm(&w);
    let first = put(&w, 5, "hold").tag("first").start();
    up.wait("first is whole");
    let second = w.put(5).tag("second").header("TE", "trailers").send();
    second.answered(200);
    assert_eq!(second.header("x-seen"), Some("second"));
    assert_eq!(second.header("via"), Some("2 fencegate"));
    assert_eq!(second.body, b"done");
    up.release("first");
    first.result().answered(200);
    let log = up.log();
    assert_eq!(log.connections, 1);
    let seen = log.requests.iter().find(|r| r.tag == "second").unwrap();
    assert_eq!(
        seen.uri.to_string(),
        format!("http://127.0.0.1:{}/files/a", w.gw.port)
    );
    assert_eq!(seen.body, b"data");
    assert_eq!(seen.headers["fencing-token"], "5");
    assert_eq!(seen.headers["te"], "trailers");
    assert_eq!(seen.headers["via"], "1.1 fencegate");
    for name in ["host", "connection", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }
}

#[test]
fn a_cut_resets_its_stream_and_leaves_the_others() {
    let (w, up) = world(|c| c.upstream("settle_incomplete", "\"0s\""));
    warm(&w);
    let other = w.put_to("/files/b", 9).header("x-do", "hold").tag("other");
    let other = other.start();
    up.wait("other is whole");
    let mut victim = w.put(5).tag("victim").half();
    up.wait("victim begins");
    w.put(6).tag("next").send().answered(200);
    victim.response("PUT").refused(412, "superseded");
    up.wait("victim is reset: 8");
    up.release("other");
    other.result().answered(200);
    assert_eq!(up.log().connections, 1);
    // Nothing of the lower write came after the higher one.
    let events = up.log().events.clone();
    let place = |event: &str| events.iter().position(|e| e == event).unwrap();
    assert!(
        place("victim is reset: 8") < place("next begins"),
        "{events:?}"
    );
}

#[test]
fn a_cut_does_not_wait_for_an_upstream_that_takes_nothing_of_the_body() {
    let (w, up) = world(|c| c.upstream("settle_incomplete", "\"0s\""));
    let victim = put(&w, 5, "deaf").tag("victim");
    let mut victim = victim.header("Content-Length", "100000000").open();
    let body = vec![b'x'; 1 << 20];
    let mut stream = victim.stream();
    let feeder = thread::spawn(move || while stream.write_all(&body).is_ok() {});
    up.wait("victim begins");
    pause(200); // its window is used up
    w.put(6).tag("next").send().answered(200);
    up.wait("victim is reset: 8");
    victim.response("PUT").refused(412, "superseded");
    drop(victim);
    feeder.join().unwrap();
}

#[test]
fn a_whole_write_is_waited_for() {
    let (w, up) = world(|c| c);
    let lower = put(&w, 5, "hold").start();
    up.wait("t5 is whole");
    let higher = w.put(6).start();
    w.waiting(1);
    pause(200);
    assert!(!higher.is_done() && !up.saw("t6 begins") && !up.saw("t5 is reset: 8"));
    up.release("t5");
    lower.result().answered(200);
    higher.result().answered(200);
}

#[test]
fn what_the_upstream_refused_had_no_effect() {
    // A token may be used once: one that only a refused write used may be used again.
    let (w, up) = world(|c| c.route("accept", "\"newer\"").upstream("settle", "\"1h\""));
    put(&w, 5, "refuse").send().refused(502, "unsent");
    w.put(5).send().answered(200);
    w.put(6).send().answered(200); // nothing is left to settle
    assert!(up.saw("t6 is answered"));
}

#[test]
fn what_was_refused_is_tried_once_more_where_it_can_be() {
    let (w, up) = world(|c| c);
    w.put(5).tag("opens").send().answered(200);
    let ask = w.ask("DELETE", "/files/a").token(5).tag("again").body(b"");
    ask.clone()
        .header("x-do", "refuse-once")
        .send()
        .answered(200);
    let count = |tag: &str| up.log().requests.iter().filter(|r| r.tag == tag).count();
    assert_eq!(count("again"), 2);
    ask.tag("never")
        .header("x-do", "refuse")
        .send()
        .refused(502, "unsent");
    assert_eq!(count("never"), 2);
}

#[test]
fn a_stream_that_is_reset_after_it_was_whole_is_unknown() {
    for act in ["reset", "drop"] {
        let (w, up) = world(|c| c.upstream("settle", "\"700ms\""));
        let start = Instant::now();
        put(&w, 5, act).send().refused(502, "outcome-unknown");
        w.put(6).send().answered(200);
        assert!(start.elapsed() >= Duration::from_millis(700), "{act}");
        assert!(up.saw("t5 is whole"));
    }
}

#[test]
fn silence_ends_an_exchange_and_its_connection_is_not_used_again() {
    let (w, up) = world(|c| c.upstream("response_timeout", "\"300ms\""));
    put(&w, 5, "silent").send().refused(504, "outcome-unknown");
    up.wait("t5 is reset: 8");
    w.put(5).tag("next").send().answered(200);
    assert_eq!(up.log().requests[1].connection, 2);
}

#[test]
fn a_connection_that_says_goodbye_ends_with_what_it_carries() {
    let (w, up) = world(|c| c);
    let held = put(&w, 5, "hold").tag("held").start();
    up.wait("held is whole");
    up.say_goodbye();
    wait_until("a new connection to be used", || {
        w.put(5).tag("new").send().answered(200);
        up.log().requests.last().unwrap().connection == 2
    });
    up.release("held");
    held.result().answered(200);
}

#[test]
fn a_refusal_before_the_body_was_read_is_passed_on_and_the_rest_not_sent() {
    let (w, up) = world(|c| c.upstream("settle_incomplete", "\"0s\""));
    let mut client = put(&w, 5, "early").half();
    assert_eq!(client.response("PUT").answered(413).body, b"too much");
    up.wait("t5 is reset: 8");
    w.put(6).send().answered(200);
}

#[test]
fn a_call_passes_with_its_trailers_both_ways_at_once() {
    let (w, up) = world(|c| c);
    let h2 = H2::connect(w.gw.port);
    let headers = [
        ("fencing-token", "5"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-do", "echo"),
        ("x-tag", "call"),
    ];
    let mut call = h2.start("POST", "/files/a", &headers);
    call.feed(b"one ");
    wait_until("the first part to be seen", || {
        up.log().requests.first().is_some_and(|r| r.body == b"one ")
    });
    call.feed(b"two");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "7".parse().unwrap());
    trailers.insert("fencing-token", "9".parse().unwrap());
    call.trailers(trailers);
    let (answer, trailers) = call.result().unwrap();
    assert_eq!((answer.status, &*answer.body), (200, &b"one two"[..]));
    assert_eq!(trailers["grpc-status"], "0");
    let seen = &up.log().requests[0];
    assert_eq!(seen.trailers["x-sum"], "7");
    assert!(!seen.trailers.contains_key("fencing-token"));
}

#[test]
fn a_call_ends_with_its_response_and_a_balancers_status_is_no_answer() {
    for (act, settles) in [
        ("grpc-0", false),
        ("grpc-14", true),
        ("grpc-only-5", false),
        ("grpc-only-14", true),
    ] {
        let (w, _up) = world(|c| c.upstream("settle", "\"700ms\""));
        let h2 = H2::connect(w.gw.port);
        let headers = [
            ("fencing-token", "5"),
            ("content-type", "application/grpc"),
            ("x-do", act),
            ("x-tag", "call"),
        ];
        let mut call = h2.start("POST", "/files/a", &headers);
        call.feed(b"message");
        call.end();
        let (answer, trailers) = call.result().unwrap();
        let only = act.starts_with("grpc-only");
        assert_eq!(answer.header("grpc-status").is_some(), only);
        assert_eq!(trailers.contains_key("grpc-status"), !only);
        let start = Instant::now();
        w.put(6).send().answered(200);
        assert_eq!(
            start.elapsed() >= Duration::from_millis(500),
            settles,
            "{act}"
        );
    }
}

#[test]
fn an_upstream_says_how_many_streams_it_takes() {
    let (w, up) = world(|c| {
        c.upstream("max_streams", "1")
            .upstream("max_connections", "2")
    });
    let held: Vec<_> = ["a", "b"]
        .map(|tag| put(&w, 5, "hold").tag(tag).start())
        .into();
    up.wait("a is whole");
    up.wait("b is whole");
    assert_eq!(up.log().connections, 2);
    let third = w.put(5).tag("third").start();
    pause(200);
    assert!(!up.saw("third begins"));
    up.release("a");
    third.result().answered(200);
    up.release("b");
    for call in held {
        call.result().answered(200);
    }
}

#[test]
fn an_idle_connection_is_closed_in_order() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| c.upstream("idle_timeout", "\"300ms\""));
    let call = w.put(5).start();
    let mut peer = Peer::accept(&listener);
    let stream = peer.request();
    peer.greet_back();
    peer.answer(stream);
    call.result().answered(200);
    let said = peer.rest().unwrap(); // FIN, not RST
    assert!(said.contains(&7), "GOAWAY is missing: {said:?}");
}

#[test]
fn what_lies_above_the_last_stream_of_a_goodbye_had_no_effect() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| c.upstream("settle", "\"1h\""));
    let below = w.put(5).tag("below").start();
    let mut peer = Peer::accept(&listener);
    let first = peer.request();
    let above = w.put(5).tag("above").start();
    let second = peer.request();
    assert!(second > first);
    peer.frame(7, 0, 0, &[&first.to_be_bytes()[..], &[0; 4]].concat());
    above.result().refused(502, "unsent");
    peer.answer(first);
    below.result().answered(200);
    let higher = w.put(6).start(); // nothing is left to settle
    let mut next = Peer::accept(&listener);
    let stream = next.request();
    next.answer(stream);
    higher.result().answered(200);
}

#[test]
fn an_error_that_ends_the_connection_leaves_what_was_processed_unknown() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| c);
    let call = w.put(5).start();
    let mut peer = Peer::accept(&listener);
    let stream = peer.request();
    // It has seen the stream, and breaks off.
    peer.frame(
        7,
        0,
        0,
        &[&stream.to_be_bytes()[..], &2_u32.to_be_bytes()].concat(),
    );
    drop(peer);
    call.result().refused(502, "outcome-unknown");
}

#[test]
fn a_connection_that_takes_nothing_is_closed_rather_than_waited_for() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| c.upstream("settle_incomplete", "\"0s\""));
    let victim = w.put(5).header("Content-Length", "100000000");
    let mut victim = victim.open();
    let peer = Peer::accept(&listener); // has an endless window, and reads nothing
    let mut stream = victim.stream();
    let body = vec![b'x'; 1 << 20];
    let feeder = thread::spawn(move || while stream.write_all(&body).is_ok() {});
    pause(500);
    let start = Instant::now();
    let higher = w.put(6).start();
    let mut next = Peer::accept(&listener);
    let stream = next.request();
    next.answer(stream);
    higher.result().answered(200);
    assert!(start.elapsed() < Duration::from_secs(6)); // body_idle_timeout is 8 s
    victim.response("PUT").refused(412, "superseded");
    drop((victim, peer));
    feeder.join().unwrap();
}

#[test]
fn a_write_that_was_given_up_does_not_arrive_later() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| {
        c.upstream("response_timeout", "\"300ms\"")
            .upstream("settle", "\"0s\"")
    });
    let big = vec![b'x'; 40_000];
    let lower = w.put(5).body(&big).start();
    // It takes nothing for now: the write lies in the buffers of the system.
    let first = Peer::accept(&listener);
    lower.result().refused(504, "outcome-unknown");
    let higher = w.put(6).start();
    let mut next = Peer::accept(&listener);
    let stream = next.request();
    next.answer(stream);
    higher.result().answered(200);
    // Now it reads. What was given up was taken back with the connection.
    assert!(first.rest().is_err(), "the connection ended in order");
}

#[test]
fn a_write_that_waits_in_the_library_does_not_go_out_after_it_was_given_up() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| {
        c.upstream("response_timeout", "\"300ms\"")
            .upstream("settle", "\"0s\"")
    });
    // One stream at a time, and one byte of a body.
    let settings = [&[0, 4, 0, 0, 0, 1][..], &[0, 3, 0, 0, 0, 1]].concat();
    let opens = w.ask("DELETE", "/files/a").token(5).body(b"").start();
    let mut peer = Peer::greet(&listener, &settings);
    let stream = peer.request();
    peer.answer(stream);
    opens.result().answered(200);
    // The upstream answers before it has taken the body: its end still waits for room.
    let held = w.put(5).tag("held").start();
    let first = peer.head();
    peer.answer(first);
    held.result().answered(200);
    let lower = w.ask("DELETE", "/files/a").token(5).body(b"").start();
    pause(600);
    let mut seen = Vec::new();
    if !lower.is_done() {
        seen.push(peer.head());
    }
    // Whatever became of the lower one, nothing of it comes after the higher one was answered.
    let higher = w.put(6).start();
    let answered = thread::spawn(move || {
        let mut next = Peer::accept(&listener);
        let stream = next.request();
        next.answer(stream);
        next
    });
    higher.result().answered(200);
    peer.window(first, 100);
    let kinds = peer.rest().unwrap_or_default();
    assert!(!kinds.contains(&1), "a request came late: {kinds:?}");
    drop(answered);
    drop(lower);
}

#[test]
fn a_body_that_has_all_its_bytes_ends_upstream() {
    let (w, up) = world(|c| c);
    let h2 = H2::connect(w.gw.port);
    let headers = [
        ("fencing-token", "5"),
        ("content-length", "4"),
        ("x-tag", "t5"),
    ];
    let mut lower = h2.start("PUT", "/files/a", &headers);
    lower.feed(b"data"); // and does not end its stream
    lower.answer().answered(200);
    assert!(up.saw("t5 is whole"));
    w.put(6).send().answered(200);
}

#[test]
fn trailers_that_speak_of_the_connection_do_not_keep_a_body_from_its_end() {
    let (w, up) = world(|c| c);
    let mut client = w.put(5).header("Transfer-Encoding", "chunked").open();
    client.send(b"4\r\ndata\r\n0\r\nKeep-Alive: 1\r\nX-Sum: 7\r\n\r\n");
    client.response("PUT").answered(200);
    let log = up.log();
    assert_eq!(log.requests[0].trailers.len(), 1);
    assert_eq!(log.requests[0].trailers["x-sum"], "7");
}

#[test]
fn clients_that_leave_in_crowds_end_nobody_elses_exchange() {
    let (w, up) = world(|c| c.upstream("max_streams", "200"));
    let held = put(&w, 5, "hold").tag("held").start();
    up.wait("held is whole");
    for _ in 0..4 {
        let h2 = H2::connect(w.gw.port);
        let headers = [("x-do", "large"), ("x-tag", "large")];
        let many: Vec<_> = (0..100)
            .map(|_| h2.start("GET", "/files/a", &headers))
            .collect();
        up.wait("large is answered");
        pause(50);
        drop(
            many.into_iter()
                .map(crate::support::h2::Stream::reset)
                .collect::<Vec<_>>(),
        );
    }
    up.release("held");
    held.result().answered(200);
}

#[test]
fn connections_that_were_told_to_go_are_passed_over() {
    let (w, up) = world(|c| c.upstream("max_streams", "2"));
    let held: Vec<_> = ["a", "b", "c"]
        .map(|tag| {
            let call = put(&w, 5, "hold").tag(tag).start();
            up.wait(&format!("{tag} is whole"));
            call
        })
        .into();
    assert_eq!(up.log().connections, 2);
    up.say_goodbye();
    pause(300);
    up.release("a");
    pause(100);
    w.put(5).tag("new").send().answered(200);
    assert_eq!(up.log().requests.last().unwrap().connection, 3);
    for tag in ["b", "c"] {
        up.release(tag);
    }
    for call in held {
        call.result().answered(200);
    }
}

#[test]
fn a_cut_leaves_others_alone_on_a_connection_that_is_slow() {
    let (w, up) = world(|c| {
        c.upstream("settle_incomplete", "\"0s\"")
            .server("workers", "1")
    });
    warm(&w);
    let slow: Vec<_> = ["a", "b", "c"]
        .map(|tag| {
            let ask = w
                .put_to(&format!("/files/{tag}"), 5)
                .header("x-do", "slow")
                .tag(tag);
            ask.body(&vec![b'x'; 1_500_000]).start()
        })
        .into();
    let victim = w.put_to("/files/v", 5).header("x-do", "slow").tag("victim");
    let mut victim = victim.half();
    up.wait("victim begins");
    pause(300);
    w.put_to("/files/v", 6).tag("next").send().answered(200);
    victim.response("PUT").refused(412, "superseded");
    for call in slow {
        call.result().answered(200);
    }
    assert_eq!(up.log().connections, 1);
}

/// The library forgets a reset after some more, and takes what comes for it then for a fault of the other side, of
/// which it forgives some.
#[test]
fn what_comes_late_for_clients_that_left_ends_nobody_elses_exchange() {
    let (listener, port) = listen();
    let w = raw_world(port, |c| {
        c.server("h2c", "true").upstream("max_streams", "300")
    });
    let held = w.put(5).start();
    let mut peer = Peer::accept(&listener);
    let kept = peer.request();
    peer.greet_back();
    let mut left = Vec::new();
    for _ in 0..12 {
        let h2 = H2::connect(w.gw.port);
        let many: Vec<_> = (0..100).map(|_| h2.start("GET", "/files/a", &[])).collect();
        left.extend(many.iter().map(|_| peer.head()));
        let resets: Vec<_> = many
            .into_iter()
            .map(crate::support::h2::Stream::reset)
            .collect();
        drop(resets);
        let mut told = 0;
        while told < 100 {
            let (kind, flags, _, payload) = peer.next().unwrap();
            match kind {
                3 => told += 1,
                6 if flags == 0 => peer.pong(&payload),
                _ => {}
            }
        }
    }
    // More than the library would forgive.
    for stream in left {
        peer.frame(1, 4, stream, &[0x88]);
    }
    peer.answer(kept);
    held.result().answered(200);
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn raw_world(port: u16, change: impl FnOnce(Config) -> Config) -> World {
    let url = format!("\"http://127.0.0.1:{port}\"");
    World::with(|c| {
        let c = c.server("workers", "1").upstream("url", &url);
        change(c.upstream("protocol", "\"http2\""))
    })
}

/// The upstream's end of a connection, frame by frame.
struct Peer(TcpStream, bool);

impl Peer {
    /// Accepts a connection, and gives it the largest windows that there are.
    fn accept(listener: &TcpListener) -> Self {
        let mut peer = Self::greet(
            listener,
            &[&[0, 4][..], &0x7fff_ffff_u32.to_be_bytes()].concat(),
        );
        peer.frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        peer
    }

    /// Accepts a connection, and says how it is to be used.
    fn greet(listener: &TcpListener, settings: &[u8]) -> Self {
        listener.set_nonblocking(true).unwrap();
        let mut accepted = None;
        wait_until("a connection to the upstream", || {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.unwrap();
        stream.set_nonblocking(false).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut peer = Self(stream, false);
        let mut preface = [0; 24];
        peer.0.read_exact(&mut preface).unwrap();
        peer.frame(4, 0, 0, settings);
        peer
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_frame(kind, flags, stream, payload).unwrap();
    }

    fn try_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [0, length[0], length[1], kind, flags];
        let bytes = [&head[..], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&bytes)
    }

    /// Reads frames up to the end of a request, and gives its stream.
    fn request(&mut self) -> u32 {
        loop {
            let (kind, flags, stream, payload) = self.next().unwrap();
            match kind {
                4 if flags == 0 => self.frame(4, 1, 0, &[]), // takes the settings
                6 if flags == 0 => self.pong(&payload),
                0 | 1 if flags & 1 == 1 => return stream,
                _ => {}
            }
        }
    }

    fn pong(&mut self, payload: &[u8]) {
        self.1 = true;
        self.frame(6, 1, 0, payload);
    }

    /// Answers the PING that follows the preface, if that has not been done.
    fn greet_back(&mut self) {
        while !self.1 {
            let (kind, flags, _, payload) = self.next().unwrap();
            if kind == 6 && flags == 0 {
                self.pong(&payload);
            }
        }
    }

    /// Reads frames up to the head of a request, and gives its stream.
    fn head(&mut self) -> u32 {
        loop {
            let (kind, flags, stream, payload) = self.next().unwrap();
            match kind {
                4 if flags == 0 => self.frame(4, 1, 0, &[]),
                6 if flags == 0 => self.pong(&payload),
                1 => return stream,
                _ => {}
            }
        }
    }

    fn next(&mut self) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok((head[3], head[4], stream, payload))
    }

    /// Room for a body.
    fn window(&mut self, stream: u32, bytes: u32) {
        let _ = self.try_frame(8, 0, stream, &bytes.to_be_bytes()); // it may be closed by now
    }

    /// 200 without a body.
    fn answer(&mut self, stream: u32) {
        self.frame(1, 5, stream, &[0x88]);
    }

    /// The types of all frames up to the end.
    fn rest(mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes)?;
        let (mut kinds, mut at) = (Vec::new(), 0);
        while let Some(head) = bytes.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            kinds.push(head[3]);
            at += 9 + length as usize;
        }
        Ok(kinds)
    }
}
