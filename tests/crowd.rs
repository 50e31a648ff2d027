//! A crowd of quiet clients: thousands of connections on which nothing comes, and thousands with half of a
//! head, keep nobody else from being served, and do not keep the gateway from stopping.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // tests wait in real time
#![allow(dead_code)] // this takes a part of what the rules have

mod support;
#[path = "rules/upstream.rs"]
mod upstream;
#[path = "rules/world.rs"]
mod world;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::TcpStream;
use world::World;

const IDLE: usize = 10_000;
const HALF_OPEN: usize = 2_000;

/// Lets this process open as many files as it may, which must be enough.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let needed = (IDLE + HALF_OPEN + 500) as u64;
    let enough = limit.maximum.is_none_or(|most| most >= needed);
    assert!(
        enough,
        "the hard limit of open files is below {needed}: see ulimit -Hn"
    );
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all).unwrap();
}

#[test]
fn others_are_served_beside_a_crowd_that_says_nothing() {
    allow_descriptors();
    let mut w = World::with(|c| c.server("shutdown_timeout", "\"60s\""));
    w.put(5).send().answered(200);
    let connect = || TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| connect()).collect();
    let half_open: Vec<TcpStream> = (0..HALF_OPEN)
        .map(|_| {
            let mut stream = connect();
            let half = b"PUT /files/a HTTP/1.1\r\nHost: a\r\nFencing-To";
            stream.write_all(half).unwrap();
            stream
        })
        .collect();
    for _ in 0..50 {
        w.put(5).send().answered(200);
        w.put(4).send().refused(412, "stale");
    }
    // None of them was turned away or let go.
    assert!(w.metric("fencegate_refused_connections_total", &[]) < 1.0);
    for stream in idle.iter().chain(&half_open).step_by(97) {
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]);
        assert!(peeked.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
    }
    assert!(w.gw.stop().success());
    assert!(w.gw.log().contains("stopped clean"));
}
