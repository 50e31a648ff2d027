//! An HTTP/2 upstream for tests: each request says in its header `x-do` what is to be done with it, and
//! the upstream keeps a log of what it saw.
//!
//! Without `x-do` the body is read and answered with 200. `hold`: the same, once a test releases its tag.
//! `refuse`, `refuse-once`: reset unseen. `reset`: reset once it was read. `silent`: read, never answered.
//! `deaf`: takes nothing of the body. `slow`: takes it slowly. `large`: answered at once with 256 KiB. `early`: answered with 413 at once, the body unread. `grpc-0`,
//! `grpc-14`: a call with that status; `grpc-only-5`: its status is in the head. `echo`: each part comes
//! back at once. `drop`: the connection is dropped once the body was read.

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response, Uri};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::thread;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Builder as Runtime;
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;

/// The upstream.
#[derive(Clone)]
pub struct H2Upstream {
    /// Where it listens on loopback.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    log: Mutex<Log>,
    released: watch::Sender<HashSet<String>>,
    goodbye: Notify,
}

/// What it saw.
#[derive(Default)]
pub struct Log {
    /// `TAG begins`, `TAG is whole`, `TAG is reset: 8`, `TAG is answered`, in their order.
    pub events: Vec<String>,
    pub requests: Vec<Seen>,
    pub connections: usize,
}

/// A request.
pub struct Seen {
    pub tag: String,
    pub connection: usize,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: HeaderMap,
}

impl H2Upstream {
    /// Serves on a free port; with `tls` over TLS.
    pub fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let upstream = Self {
            port,
            shared: Arc::clone(&shared),
        };
        let runtime = Runtime::new_current_thread().enable_all().build().unwrap();
        let serve = async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => connection(stream, shared).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                connection(stream, shared).await;
                            }
                        }
                    }
                });
            }
        };
        thread::spawn(move || runtime.block_on(serve));
        upstream
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.shared.log.lock()
    }

    /// Whether that has happened.
    pub fn saw(&self, event: &str) -> bool {
        self.log().events.iter().any(|e| e == event)
    }

    /// Waits until that has happened.
    #[track_caller]
    pub fn wait(&self, event: &str) {
        super::wait_until(event, || self.saw(event));
    }

    /// Answers what is held under that tag.
    pub fn release(&self, tag: &str) {
        self.shared.released.send_modify(|all| {
            all.insert(tag.to_owned());
        });
    }

    /// Tells every connection to go, in two steps (RFC 9113 section 6.8).
    pub fn say_goodbye(&self) {
        self.shared.goodbye.notify_waiters();
    }
}

async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let number = {
        let mut log = shared.log.lock();
        log.connections += 1;
        log.connections
    };
    // It does not take clients that leave for a flood of resets: what it does then is its own affair.
    let mut server = h2::server::Builder::new();
    server.max_pending_accept_reset_streams(10_000);
    let Ok(mut io) = server.handshake(stream).await else {
        return;
    };
    let dropped = Arc::new(Notify::new());
    let goodbye = shared.goodbye.notified();
    let mut goodbye = std::pin::pin!(goodbye);
    let mut said = false;
    loop {
        tokio::select! {
            accepted = io.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                let (shared, dropped) = (Arc::clone(&shared), Arc::clone(&dropped));
                tokio::spawn(async move {
                    if exchange(request, respond, number, &shared).await == Some(()) {
                        dropped.notify_one();
                    }
                });
            }
            () = dropped.notified() => return,
            () = &mut goodbye, if !said => {
                said = true;
                io.graceful_shutdown();
            }
        }
    }
}

/// One request, and what is to be done with it.
struct Exchange<'a> {
    shared: &'a Shared,
    tag: String,
    act: String,
    /// Its place in the log.
    place: usize,
    respond: SendResponse<Bytes>,
}

/// `Some` where the connection is to be dropped.
async fn exchange(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    connection: usize,
    shared: &Shared,
) -> Option<()> {
    let (head, mut body) = request.into_parts();
    let header = |name: &str| {
        let value = head.headers.get(name);
        value.map_or_else(String::new, |v| v.to_str().unwrap().to_owned())
    };
    let (tag, act) = (header("x-tag"), header("x-do"));
    let (first, place) = {
        let mut log = shared.log.lock();
        let first = !log.requests.iter().any(|r| r.tag == tag);
        log.requests.push(Seen {
            tag: tag.clone(),
            connection,
            uri: head.uri.clone(),
            headers: head.headers.clone(),
            body: Vec::new(),
            trailers: HeaderMap::new(),
        });
        (first, log.requests.len() - 1)
    };
    let mut exchange = Exchange {
        shared,
        tag,
        act,
        place,
        respond,
    };
    exchange.say("begins");
    match &*exchange.act {
        "refuse" => exchange.respond.send_reset(Reason::REFUSED_STREAM),
        "refuse-once" if first => exchange.respond.send_reset(Reason::REFUSED_STREAM),
        "early" => {
            exchange.answer(413, "too much");
            exchange.reset().await;
        }
        "deaf" => exchange.reset().await,
        "large" => exchange.answer(200, Bytes::from(vec![b'x'; 256 << 10])),
        _ => return exchange.serve(&mut body).await,
    }
    None
}

impl Exchange<'_> {
    fn say(&self, what: &str) {
        let event = format!("{} {what}", self.tag);
        self.shared.log.lock().events.push(event);
    }

    /// Waits until the stream is reset.
    async fn reset(&mut self) {
        let code = poll_fn(|cx| self.respond.poll_reset(cx)).await;
        self.say(&format!("is reset: {}", code.map_or(0, u32::from)));
    }

    fn answer(&mut self, status: u16, body: impl Into<Bytes>) {
        let response = Response::builder()
            .status(status)
            .header("x-seen", &self.tag);
        let mut stream = self
            .respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap();
        stream.send_data(body.into(), true).unwrap();
        self.say("is answered");
    }

    async fn serve(mut self, body: &mut RecvStream) -> Option<()> {
        let mut call = (self.act == "echo").then(|| self.begin_call());
        loop {
            match body.data().await {
                Some(Ok(data)) => {
                    if self.act == "slow" {
                        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                    }
                    let _ = body.flow_control().release_capacity(data.len());
                    self.shared.log.lock().requests[self.place]
                        .body
                        .extend_from_slice(&data);
                    if let Some(call) = &mut call {
                        call.send_data(data, false).unwrap();
                    }
                }
                Some(Err(error)) => {
                    let code = error.reason().map_or(0, u32::from);
                    self.say(&format!("is reset: {code}"));
                    return None;
                }
                None => break,
            }
        }
        if let Ok(Some(trailers)) = body.trailers().await {
            self.shared.log.lock().requests[self.place].trailers = trailers;
        }
        self.say("is whole");
        match self.act.clone().as_str() {
            "drop" => return Some(()),
            "reset" => self.respond.send_reset(Reason::INTERNAL_ERROR),
            "hold" | "silent" => {
                let mut released = self.shared.released.subscribe();
                let tag = self.tag.clone();
                tokio::select! {
                    _ = released.wait_for(|all| all.contains(&tag)) => self.answer(200, "held"),
                    () = self.reset() => {}
                }
            }
            act => match (call, act.strip_prefix("grpc-")) {
                (Some(call), _) => end_call(call, "0"),
                (None, Some(status)) => match status.strip_prefix("only-") {
                    Some(status) => self.refuse_call(status),
                    None => {
                        let mut call = self.begin_call();
                        call.send_data(Bytes::from_static(b"message"), false)
                            .unwrap();
                        end_call(call, status);
                    }
                },
                (None, None) => self.answer(200, "done"),
            },
        }
        None
    }

    fn begin_call(&mut self) -> SendStream<Bytes> {
        let response = Response::builder().header("content-type", "application/grpc");
        self.respond
            .send_response(response.body(()).unwrap(), false)
            .unwrap()
    }

    fn refuse_call(&mut self, status: &str) {
        let response = Response::builder().header("content-type", "application/grpc");
        let response = response.header("grpc-status", status).body(()).unwrap();
        self.respond.send_response(response, true).unwrap();
    }
}

fn end_call(mut call: SendStream<Bytes>, status: &str) {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    call.send_trailers(trailers).unwrap();
}
