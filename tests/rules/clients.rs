//! How long a client connection may be quiet, and what does not count as quiet.

use crate::support::{Client, wait_until};
use crate::upstream::Script;
use crate::world::{World, pause};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

fn impatient() -> World {
    World::with(|c| {
        c.server("workers", "1")
            .server("header_timeout", "\"1s\"")
            .upstream("body_idle_timeout", "\"60s\"")
            .upstream("response_timeout", "\"60s\"")
    })
}

#[track_caller]
fn is_let_go(mut client: Client, since: Instant) {
    assert!(client.rest().is_empty());
    assert!(since.elapsed() >= PATIENCE, "{:?}", since.elapsed());
}

#[test]
fn a_client_that_sends_no_head_is_let_go() {
    let w = impatient();
    let start = Instant::now();
    let silent = Client::connect(w.gw.port);
    let mut slow = Client::connect(w.gw.port);
    slow.send(b"PUT /files/a HTTP/1.1\r\nHost: gate\r\n");
    let mut trickling = Client::connect(w.gw.port);
    for byte in b"PUT /file" {
        trickling.send(&[*byte]);
        pause(50);
    }
    is_let_go(silent, start);
    is_let_go(slow, start);
    is_let_go(trickling, start);
}

#[test]
fn the_time_of_a_connection_counts_from_its_last_request() {
    let w = impatient();
    let mut client = Client::connect(w.gw.port);
    let headers = [("Fencing-Token", "5")];
    for _ in 0..4 {
        let answer = client.request("PUT", "/files/a", &headers, b"data");
        answer.answered(200);
        pause(400);
    }
    let start = Instant::now();
    let answer = client.request("PUT", "/files/a", &headers, b"data");
    answer.answered(200);
    is_let_go(client, start);
}

#[test]
fn a_request_under_way_is_not_quiet() {
    let w = impatient();
    w.up.script("late", Script::hold());
    let late = w.put(5).tag("late").start();
    let mut upload = w.put(5).tag("upload").half();
    w.up.body("upload", 50);
    pause(2500);
    upload.send(&[b'x'; 50]);
    upload.response("PUT").answered(200);
    w.up.release("late");
    late.result().answered(200);
}

#[test]
fn a_response_under_way_is_not_quiet() {
    let w = impatient();
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf";
    let script = Script {
        early: true,
        raw: Some((head, "half")),
        ..Script::hold()
    };
    w.up.script("slow", script);
    let slow = w.ask("GET", "/files/a").tag("slow").start();
    w.up.head("slow");
    pause(2500);
    w.up.release("slow");
    assert_eq!(slow.result().body, b"halfhalf");
}

#[test]
fn connections_beyond_the_bounds_are_told_so_and_the_others_served() {
    let w = World::with(|c| {
        c.server("workers", "2")
            .server("max_connections", "4")
            .server("max_connections_per_client", "3")
    });
    let headers = [("Fencing-Token", "5")];
    let mut open: Vec<Client> = (0..3).map(|_| Client::connect(w.gw.port)).collect();
    for client in &mut open {
        client
            .request("PUT", "/files/a", &headers, b"data")
            .answered(200);
    }
    let answer = w.put(5).tag("beyond").send();
    assert_eq!(
        (answer.status, answer.header("Fencing-Status")),
        (503, Some("busy"))
    );
    w.stays_away("beyond");
    let reason = "reason=\"client\"";
    let refused = w.metric("fencegate_refused_connections_total", &[reason]);
    assert!((refused - 1.0).abs() < 0.1);
    open.pop();
    wait_until("a place to be free", || w.put(5).send().status == 200);
    for client in &mut open {
        client
            .request("PUT", "/files/a", &headers, b"data")
            .answered(200);
    }
}
