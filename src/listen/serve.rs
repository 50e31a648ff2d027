//! Serves the client connections of one listener, on one thread.

use super::connection::connection;
use super::room::{Full, Room};
use crate::clock::{self, Time};
use crate::forward::headers::Peer;
use crate::journey::{Client, Worker};
use crate::record::Metrics;
use crate::socket::Socket;
use crate::tls::server::Tls;
use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The most and the least time between two looks at the connections.
const SWEEP: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(100));

/// What a client connection may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a client may take to send the head of a request, counted from the end of the one before,
    /// and how long it may take nothing of a response. Enforced late by up to half of it, at most three
    /// seconds.
    pub header_timeout: Duration,
    /// How large the head of a request may be.
    pub max_header_bytes: usize,
    /// How many header fields it may have, in HTTP/1.1. (In HTTP/2 the journey counts them.)
    pub max_headers: usize,
    /// Whether a client without TLS may speak HTTP/2 from its first byte.
    pub h2c: bool,
    /// How many requests one HTTP/2 connection may have under way.
    pub max_streams: u32,
}

/// Accepts and serves connections, with `tls` encrypted ones only, until `stop` becomes true; then lets
/// every connection end with the requests that it serves, and returns once they have. Spawns local tasks.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    metrics: Arc<Metrics>,
    room: Arc<Room>,
    mut stop: watch::Receiver<bool>,
    worker: Rc<Worker>,
) {
    let open = Rc::new(Open::default());
    let turned_away = Rc::new(Cell::new(0));
    let mut clients = Clients::default();
    let period = (limits.header_timeout / 8).clamp(SWEEP.1, SWEEP.0);
    let mut tick = clock::ticks(period);
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            _ = tick.tick() => {
                clients.sweep(limits.header_timeout);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after(&error).await;
                continue;
            }
        };
        // One socket may be for both, if whoever passed it on made it so.
        let ip = address.ip().to_canonical();
        let seat = match room.enter(ip) {
            Ok(seat) => seat,
            Err(full) => {
                metrics.refused_connection(matches!(full, Full::Client));
                turn_away(stream, tls.is_some(), &turned_away);
                continue;
            }
        };
        let socket = Socket::orderly(stream);
        let client = Rc::new(Client::new(Peer::new(ip, tls.is_some()), socket));
        let guard = Open::enter(&open);
        let (stop, worker, tls) = (stop.clone(), Rc::clone(&worker), tls.clone());
        let metrics = Arc::clone(&metrics);
        let known = Rc::clone(&client);
        let task = tokio::task::spawn_local(async move {
            connection(client, tls, limits, metrics, stop, worker).await;
            drop((guard, seat));
        });
        clients.add(known, task.abort_handle());
    }
    drop(listener);
    let mut empty = pin!(open.empty());
    loop {
        tokio::select! {
            () = &mut empty => return,
            _ = tick.tick() => clients.sweep(limits.header_timeout),
        }
    }
}

/// The connections of this thread. One look at all of them costs less than a timer for each request.
#[derive(Default)]
struct Clients(Vec<Known>);

struct Known {
    client: Rc<Client>,
    task: AbortHandle,
    /// What its client said when it was last seen to be quiet.
    quiet_after: Option<u64>,
    quiet_since: Time,
    overdue: bool,
}

impl Clients {
    fn add(&mut self, client: Rc<Client>, task: AbortHandle) {
        self.0.push(Known {
            quiet_after: client.quiet_after(),
            quiet_since: clock::now(),
            overdue: false,
            client,
            task,
        });
    }

    /// Ends those whose client has sent no head, or has taken nothing of its response, for that long:
    /// the one holds a descriptor, the other may hold an upstream connection. Each is seen to be late
    /// twice: after a pause of the process, what came meanwhile is served first.
    fn sweep(&mut self, patience: Duration) {
        let now = clock::now();
        self.0.retain_mut(|known| {
            let late = known.quiet_for(now).max(known.client.socket.stalled_for()) >= patience;
            if late && known.overdue {
                known.client.socket.close();
                known.task.abort();
            } else if late {
                known.client.is_late();
            }
            known.overdue = late;
            !known.task.is_finished()
        });
    }
}

impl Known {
    fn quiet_for(&mut self, now: Time) -> Duration {
        let quiet_after = self.client.quiet_after();
        if quiet_after.is_none() || quiet_after != self.quiet_after {
            self.quiet_after = quiet_after;
            self.quiet_since = now;
        }
        now.since(self.quiet_since)
    }
}

/// What a client is told for which there is no room.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nFencing-Status: busy\r\nRetry-After: 1\r\n\
    Proxy-Status: fencegate; error=http_request_denied\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// How many of them may still be reading that.
const TURNED_AWAY: usize = 64;

/// Says that there is no room, where that can be said without TLS, and ends the connection.
fn turn_away(stream: TcpStream, encrypted: bool, under_way: &Rc<Cell<usize>>) {
    if encrypted || under_way.get() >= TURNED_AWAY {
        return;
    }
    // There is room for it in the send buffer of a new connection; else it is not said.
    let _ = stream.try_write(FULL);
    under_way.set(under_way.get() + 1);
    let under_way = Rc::clone(under_way);
    tokio::task::spawn_local(async move {
        let patience = Duration::from_secs(1);
        Box::pin(Socket::orderly(stream).linger(patience, patience)).await;
        under_way.set(under_way.get().saturating_sub(1));
    });
}

/// Out of descriptors or memory: wait for some to be freed, rather than spin. Anything else concerns
/// one connection that is gone already.
async fn pause_after(error: &io::Error) {
    let ours = !matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    );
    if ours {
        tracing::warn!(%error, "cannot accept connections for now");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Counts the open connections of this thread.
#[derive(Default)]
struct Open {
    count: Cell<usize>,
    changed: tokio::sync::Notify,
}

struct Guard(Rc<Open>);

impl Open {
    fn enter(open: &Rc<Self>) -> Guard {
        open.count.set(open.count.get() + 1);
        Guard(Rc::clone(open))
    }

    async fn empty(&self) {
        while self.count.get() > 0 {
            self.changed.notified().await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.changed.notify_one();
    }
}
