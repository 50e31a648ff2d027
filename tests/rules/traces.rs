//! Traces: the spans of each request reach a collector, as OTLP over HTTP, and never stand in a request's way.

use crate::support::{Client, Config, free_port, wait_until};
use crate::upstream::{End, Script};
use crate::world::World;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    heads: Vec<String>,
    service: String,
}

impl Collector {
    fn start(status: u16) -> (Self, u16) {
        let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let port = listener.local_addr().unwrap().port();
        let collector = Self::default();
        let own = collector.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                own.take(stream.unwrap(), status);
            }
        });
        (collector, port)
    }

    fn take(&self, stream: TcpStream, status: u16) {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap() == 0 {
                return; // a look at whether anybody listens
            }
        }
        let lower = head.to_lowercase();
        let length = lower.split("content-length: ").nth(1).unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let told = ExportTraceServiceRequest::decode(&*body).unwrap();
        {
            let mut kept = self.kept();
            kept.heads.push(lower);
            for spans in told.resource_spans {
                for fact in spans.resource.unwrap().attributes {
                    if fact.key == "service.name" {
                        kept.service = text(fact.value.unwrap().value.unwrap());
                    }
                }
                let scopes = spans.scope_spans.into_iter();
                kept.spans.extend(scopes.flat_map(|scope| scope.spans));
            }
        }
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        let _ = reader.get_mut().write_all(answer.as_bytes());
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }

    #[track_caller]
    fn spans(&self, count: usize) -> Vec<Span> {
        wait_until(&format!("{count} spans"), || {
            self.kept().spans.len() >= count
        });
        let spans = self.kept().spans.clone();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(flag) => flag.to_string(),
        Value::ArrayValue(list) => list
            .values
            .into_iter()
            .map(|item| text(item.value.unwrap()))
            .collect(),
        other => format!("{other:?}"),
    }
}

fn fact(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|fact| fact.key == key)?;
    Some(text(found.value.clone()?.value?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A gateway that sends its traces there.
fn traced(port: u16, more: &str, change: impl FnOnce(Config) -> Config) -> World {
    let table = format!("[opentelemetry]\nendpoint = 'http://127.0.0.1:{port}'\n{more}");
    World::with(|c| change(c.more(&table)))
}

#[test]
fn a_request_has_a_span_and_below_it_one_for_its_way_to_the_upstream() {
    let (collector, port) = Collector::start(200);
    let w = traced(port, "resource = 'name'\nservice_name = 'gate'", |c| c);
    let ask = w.put(5).header("Fencing-Holder", "worker-1");
    let ask = ask.header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
    let ask = ask.header("tracestate", "vendor=1");
    ask.send().answered(200);
    let spans = collector.spans(2);
    let own = spans.iter().find(|span| span.kind == 2).unwrap();
    let onward = spans.iter().find(|span| span.kind == 3).unwrap();
    assert_eq!(
        (hex(&own.trace_id), hex(&own.parent_span_id)),
        (TRACE.into(), PARENT.into())
    );
    assert_eq!(
        (&onward.trace_id, &onward.parent_span_id),
        (&own.trace_id, &own.span_id)
    );
    assert_eq!(own.name, "PUT files");
    for (key, value) in [
        ("http.request.method", "PUT"),
        ("http.response.status_code", "200"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("url.path", "/files/a"),
        ("fencegate.route", "files"),
        ("fencegate.decision", "raised"),
        ("fencegate.outcome", "answered"),
        ("fencegate.token", "5"),
        ("fencegate.holder", "worker-1"),
        ("fencegate.resources", "default:files/a"),
    ] {
        assert_eq!(fact(own, key).as_deref(), Some(value), "{key}");
    }
    let within = |inner: &Span, outer: &Span| {
        inner.start_time_unix_nano >= outer.start_time_unix_nano
            && inner.end_time_unix_nano <= outer.end_time_unix_nano
    };
    assert!(within(onward, own), "{own:#?} {onward:#?}");
    // What the upstream does comes below the span that leads there.
    let seen = w.up.head("t5");
    let told = format!("00-{TRACE}-{}-01", hex(&onward.span_id));
    assert_eq!(seen.header("traceparent"), Some(&*told));
    assert_eq!(seen.header("tracestate"), Some("vendor=1"));
    let kept = collector.kept();
    assert_eq!(kept.service, "gate");
    assert!(
        kept.heads[0].starts_with("post /v1/traces http/1.1\r\n"),
        "{}",
        kept.heads[0]
    );
}

#[test]
fn a_zombie_is_seen_in_its_trace() {
    let (collector, port) = Collector::start(200);
    let w = traced(port, "", |c| c);
    w.put(5).send().answered(200);
    let ask = w
        .put(4)
        .header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
    ask.send().refused(412, "stale");
    let spans = collector.spans(3);
    let stale: Vec<_> = spans
        .iter()
        .filter(|span| hex(&span.trace_id) == TRACE)
        .collect();
    assert_eq!(stale.len(), 1, "nothing went to the upstream");
    assert_eq!(fact(stale[0], "fencegate.decision").unwrap(), "stale");
    assert_eq!(fact(stale[0], "http.response.status_code").unwrap(), "412");
    assert_eq!(
        fact(stale[0], "url.path"),
        None,
        "names are not sent unless asked for"
    );
    assert!(
        !fact(stale[0], "fencegate.resources")
            .unwrap()
            .contains("files")
    );
}

#[test]
fn what_fails_is_an_error_in_its_trace() {
    let (collector, port) = Collector::start(200);
    let w = traced(port, "", |c| c);
    w.up.script("lost", Script::end(End::Close));
    w.put(5).tag("lost").send().refused(502, "outcome-unknown");
    let spans = collector.spans(2);
    let own = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(own.status.as_ref().unwrap().code, 2, "{own:#?}");
}

#[test]
fn the_sender_decides_what_is_recorded_and_else_the_share() {
    let (collector, port) = Collector::start(200);
    let w = traced(port, "sample = 0", |c| c);
    let with = |tag: &str, parent: &str| {
        let ask = w.put(5).tag(tag).header("traceparent", parent);
        ask.send().answered(200);
        w.up.head(tag).header("traceparent").unwrap().to_owned()
    };
    // Not recorded, and said on: the upstream is not to record it either.
    assert!(with("off", &format!("00-{TRACE}-{PARENT}-00")).ends_with("-00"));
    // One that cannot be read is none: a new one begins, and is not chosen.
    let begun = with("torn", "00-xyz");
    assert!(begun.ends_with("-00") && !begun.contains(TRACE), "{begun}");
    assert!(with("on", &format!("00-{TRACE}-{PARENT}-01")).ends_with("-01"));
    let spans = collector.spans(2);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
}

#[test]
fn a_collector_that_hangs_holds_nobody_up_and_what_is_lost_is_counted() {
    let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut w = traced(port, "queue = 16", |c| c);
    let mut client = Client::connect(w.gw.port);
    let headers = [("Fencing-Token", "5")];
    for _ in 0..2_000 {
        let answer = client.request("PUT", "/files/a", &headers, b"");
        answer.answered(200);
    }
    assert!(w.metric("fencegate_spans_dropped_total", &[]) > 0.0);
    assert!(w.gw.stop().success());
}

#[test]
fn a_collector_that_refuses_is_named_in_the_log_once() {
    let (_collector, port) = Collector::start(400);
    let w = traced(port, "", |c| c);
    for (count, token) in [(2.0, 5), (4.0, 6)] {
        w.put(token).send().answered(200);
        wait_until("the loss to be counted", || {
            w.metric("fencegate_spans_dropped_total", &[]) >= count
        });
    }
    let log = w.gw.log();
    assert_eq!(
        log.matches("traces cannot be delivered").count(),
        1,
        "{log}"
    );
}

#[test]
fn without_a_collector_a_trace_passes_as_it_came() {
    let w = World::new();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    w.put(5).header("traceparent", &parent).send().answered(200);
    assert_eq!(w.up.head("t5").header("traceparent"), Some(&*parent));
}
