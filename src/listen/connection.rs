//! One client connection from its first byte to its last: TLS, HTTP/1.1 or HTTP/2.

use super::serve::Limits;
use super::streams::Streams;
use crate::clock;
use crate::forward::{LINGER, LINGER_PAUSE};
use crate::journey::{Client, Worker};
use crate::record::{BadRequest, Metrics};
use crate::tls::server::Tls;
use crate::tls::{H2, identity};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;

/// What an HTTP/2 client sends first (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much of a request body an HTTP/2 client may send ahead on a stream, and the gateway may have to hold
/// for a request that waits or an upstream that takes nothing.
const STREAM_WINDOW: u32 = 256 << 10;

/// How many headers the HTTP library takes in HTTP/1.1 unless it is told otherwise.
const ITS_HEADERS: usize = 100;

/// The largest window that there is (RFC 9113 section 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// How much of a response may wait on a stream for its client.
const SEND_BUFFER: usize = 64 << 10;

/// How often the streams of a connection are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How many streams a client may have opened and reset before the gateway saw them (CVE-2023-44487).
const RESETS: usize = 20;

/// Serves a connection, and lets its client read to the end what it was told.
pub(super) async fn connection(
    client: Rc<Client>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    metrics: Arc<Metrics>,
    mut stop: watch::Receiver<bool>,
    worker: Rc<Worker>,
) {
    let encrypted = tls.is_some();
    let protocol = tokio::select! {
        biased;
        protocol = speaks_h2(&client, tls, limits) => protocol,
        // Nothing was taken from it yet.
        _ = stop.wait_for(|stop| *stop) => {
            client.socket.close();
            return;
        }
    };
    let bad = match protocol {
        Ok(true) => {
            let ended = Box::pin(h2(&client, limits, stop.clone(), worker)).await;
            ended.err().and_then(|error| of_h2(&error))
        }
        Ok(false) => {
            let ended = h1(&client, limits, stop.clone(), worker).await;
            ended.err().and_then(|error| of_h1(&error))
        }
        Err(error) => {
            tracing::debug!(%error, "no request came on a client connection");
            encrypted.then_some(BadRequest::Tls)
        }
    };
    if let Some(bad) = bad {
        metrics.bad_request(bad);
    }
    let _lingers = client.begin(); // it may take its time to read
    if !client.socket.has_left() {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => {}
            () = Box::pin(client.socket.linger(LINGER, LINGER_PAUSE)) => {}
        }
    }
    client.socket.close(); // others may still hold it
}

/// What a client sent that was no request; the HTTP library has answered it by itself (400, 431).
fn of_h1(error: &hyper::Error) -> Option<BadRequest> {
    tracing::debug!(%error, "client connection ended early");
    if error.is_parse_too_large() {
        Some(BadRequest::TooLarge)
    } else {
        error.is_parse().then_some(BadRequest::Head)
    }
}

/// The same for HTTP/2: all but a connection that broke off.
fn of_h2(error: &hyper::Error) -> Option<BadRequest> {
    tracing::debug!(%error, "client connection ended early");
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.is::<io::Error>() {
            return None;
        }
        source = inner.source();
    }
    Some(BadRequest::Http2)
}

/// Takes the TLS handshake where there is to be one, and says whether the client speaks HTTP/2: with
/// TLS as agreed in the handshake, without it by its first bytes where that is allowed.
async fn speaks_h2(client: &Client, tls: Option<Arc<Tls>>, limits: Limits) -> io::Result<bool> {
    match tls {
        Some(tls) => {
            // Rare and large: kept out of the connection's future.
            Box::pin(client.socket.accept(tls.config())).await?;
            let shown = client.socket.peer_certificate();
            client.is_called(
                shown
                    .map(|shown| identity::names(&shown))
                    .unwrap_or_default(),
            );
            Ok(client.socket.protocol().is_some_and(|agreed| agreed == H2))
        }
        None if limits.h2c => Box::pin(client.socket.begins_with(PREFACE)).await,
        None => Ok(false),
    }
}

async fn h1(
    client: &Rc<Client>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    worker: Rc<Worker>,
) -> hyper::Result<()> {
    let service = service_fn(|request| {
        let response = worker.serve(client, request);
        async move { Ok::<_, Infallible>(response.await) }
    });
    let mut http = http1::Builder::new();
    http.max_header_size(limits.max_header_bytes)
        .half_close(false);
    // Said, it costs the HTTP library an allocation for each request.
    if limits.max_headers != ITS_HEADERS {
        http.max_headers(limits.max_headers);
    }
    let mut connection = http.serve_connection(client.socket.clone(), service);
    let stopping = stop.clone();
    let mut asked = pin!(stop.wait_for(|stop| *stop));
    let mut listens = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = Pin::new(&mut connection).poll(cx) {
            return Poll::Ready(Some(ended));
        }
        // Once it listens it is woken; there is no need to ask at each poll.
        if listens && !*stopping.borrow() {
            return Poll::Pending;
        }
        listens = true;
        asked.as_mut().poll(cx).map(|_| None)
    })
    .await;
    match ended {
        Some(ended) => ended?,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            Box::pin(wind_up(Pin::new(&mut connection), client, || {})).await?;
        }
    }
    if let Some(tunnel) = client.take_tunnel() {
        let _under_way = client.begin();
        let early = connection.into_parts().read_buf;
        Box::pin(tunnel.run(client.socket.clone(), early)).await;
    }
    Ok(())
}

async fn h2(
    client: &Rc<Client>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
    worker: Rc<Worker>,
) -> hyper::Result<()> {
    client.speaks_h2();
    let streams = Streams::default();
    let (known, watched) = (Rc::clone(client), streams.clone());
    let service = service_fn(move |request| {
        let response = worker.serve(&known, request);
        let watched = watched.clone();
        async move {
            let response = response.await;
            Ok::<_, Infallible>(response.map(|body| watched.watch(body)))
        }
    });
    // Each stream may use its window up, since one that waits must not hold up the others.
    let window = limits.max_streams.saturating_mul(STREAM_WINDOW);
    let mut http = http2::Builder::new(streams.clone());
    http.max_concurrent_streams(limits.max_streams)
        .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(window.min(MAX_WINDOW))
        .max_send_buf_size(SEND_BUFFER);
    let mut connection = pin!(http.serve_connection(client.socket.clone(), service));
    let mut tick = clock::ticks(LOOK);
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = stop.wait_for(|stop| *stop) => break,
            () = client.late() => break,
            _ = tick.tick() => streams.sweep(limits.header_timeout),
        }
    }
    // It is told to go (GOAWAY), and what it may have sent meanwhile is served.
    connection.as_mut().graceful_shutdown();
    let look = || streams.sweep(limits.header_timeout);
    wind_up(connection, client, look).await
}

/// Lets a connection that was asked to end come to its end with what it serves. Where it serves nothing
/// and its client says no more, it is not waited for.
async fn wind_up<C>(
    mut connection: Pin<&mut C>,
    client: &Client,
    look: impl Fn(),
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut tick = clock::ticks(LOOK); // begins at once
    let (mut quiet, mut last) = (0, None);
    while quiet < 3 {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            _ = tick.tick() => look(),
        }
        let now = client.quiet_after();
        // The end of a response may still wait for its client.
        let same = now.is_some() && now == last && client.socket.stalled_for().is_zero();
        quiet = if same { quiet + 1 } else { 0 };
        last = now;
    }
    Ok(())
}
