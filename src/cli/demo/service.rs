//! A small file service of the old kind: PUT stores, and whoever writes last wins.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// The service, on a thread of its own until the process ends.
pub(super) struct Service {
    address: SocketAddr,
    disk: Arc<Disk>,
}

#[derive(Default)]
struct Disk {
    files: Mutex<HashMap<String, Bytes>>,
    /// Paths to which an upload has begun.
    begun: Mutex<HashSet<String>>,
    changed: Condvar,
}

impl Service {
    pub(super) fn start() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let disk = Arc::new(Disk::default());
        let shared = Arc::clone(&disk);
        std::thread::Builder::new()
            .name("file service".into())
            .spawn(move || {
                runtime.block_on(accept(listener, shared));
            })?;
        Ok(Self { address, disk })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a file holds.
    pub(super) fn content(&self, path: &str) -> String {
        let files = self.disk.files.lock();
        files
            .get(path)
            .map(|body| String::from_utf8_lossy(body).into_owned())
            .unwrap_or_default()
    }

    /// Waits until an upload to a path has begun; `None` where that takes too long.
    pub(super) fn wait_for_upload(&self, path: &str, patience: Duration) -> Option<()> {
        let mut begun = self.disk.begun.lock();
        let changed = &self.disk.changed;
        let late = changed.wait_while_for(&mut begun, |begun| !begun.contains(path), patience);
        (!late.timed_out()).then_some(())
    }
}

async fn accept(listener: TcpListener, disk: Arc<Disk>) {
    while let Ok((stream, _)) = listener.accept().await {
        let disk = Arc::clone(&disk);
        let service = service_fn(move |request| answer(request, Arc::clone(&disk)));
        let http = hyper::server::conn::http1::Builder::new();
        tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    request: Request<Incoming>,
    disk: Arc<Disk>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let (status, body) = match *request.method() {
        Method::PUT => {
            disk.begun.lock().insert(path.clone());
            disk.changed.notify_all();
            match request.into_body().collect().await {
                Ok(body) => {
                    disk.files.lock().insert(path, body.to_bytes());
                    (StatusCode::OK, Bytes::new())
                }
                Err(_) => (StatusCode::BAD_REQUEST, Bytes::new()),
            }
        }
        Method::GET => match disk.files.lock().get(&path) {
            Some(body) => (StatusCode::OK, body.clone()),
            None => (StatusCode::NOT_FOUND, Bytes::new()),
        },
        _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}
