//! The only way out: a request to its upstream, and the response back.
//!
//! A write goes out only with a pass, in a task that owns it. What became of it is told from what
//! reached the socket (`whole`, `answered`, `unsent`, `unknown` in docs/protocol.md).

mod attend;
mod download;
mod exchange;
mod failure;
pub mod headers;
mod pool;
mod relay;
mod upload;
mod watch;
mod write;

pub use download::Download;
pub use failure::{Failed, Failure};

use crate::admit::{Exempt, Pass};
use crate::config::settings::{SettledAt, Upstream};
use attend::{Attendance, Attended, Orphans};
use http::header::TRANSFER_ENCODING;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use pool::Pool;
use std::rc::Rc;
use std::sync::Arc;
use upload::Upload;

/// The upstreams, as one serving thread sees them.
pub struct Upstreams {
    pools: Vec<Rc<Pool>>,
    orphans: Rc<Orphans>,
}

impl Upstreams {
    /// `share`: how many threads have pools to the same upstreams.
    #[must_use]
    pub fn new(upstreams: &[Arc<Upstream>], share: usize) -> Self {
        let pools = upstreams
            .iter()
            .map(|u| Pool::new(Arc::clone(u), share))
            .collect();
        Self {
            pools,
            orphans: Rc::default(),
        }
    }

    /// Ends exchanges whose time is up, and closes connections that have been idle for too long. To be
    /// called some ten times a second.
    pub fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
    }

    /// Drives the writes whose clients have left. To be run in the thread's `LocalSet`.
    pub async fn adopt(&self) {
        self.orphans.adopt().await;
    }

    /// Forwards a request that needs no pass. Dropping the future, or the response's body, closes the connection.
    ///
    /// # Errors
    /// [`Failed`] where no response came.
    pub async fn exempt(
        &self,
        upstream: usize,
        _right: Exempt,
        request: Request<Incoming>,
        token_headers: &Rc<[HeaderName]>,
    ) -> Result<Response<Download>, Failed> {
        let pool = self.pool(upstream);
        let (request, progress) = stream(request, token_headers, pool);
        match exchange::run(pool, None, &Attendance::default(), request, &progress).await {
            Ok((response, link)) => {
                let (head, body) = response.into_parts();
                Ok(Response::from_parts(
                    head,
                    Download::direct(body, link, progress.is_whole()),
                ))
            }
            Err(stopped) => Err(Failed {
                why: stopped.why,
                sent: stopped.closed.is_some(),
            }),
        }
    }

    /// Forwards a write. Dropping the future leaves the write running (see [`Upstreams::adopt`]): what
    /// drives it owns the pass, and ends it as the exchange ends.
    ///
    /// # Errors
    /// [`Failed`] where no response came, or the write was cut.
    pub async fn write(
        &self,
        upstream: usize,
        pass: Pass,
        request: Request<Incoming>,
        token_headers: &Rc<[HeaderName]>,
        settled_at: SettledAt,
    ) -> Result<Response<Download>, Failed> {
        let pool = Rc::clone(self.pool(upstream));
        let (request, progress) = stream(request, token_headers, &pool);
        let write = Attended::new(&self.orphans, |slot, client| {
            write::run(pool, pass, client, request, progress, settled_at, slot)
        });
        write.await.unwrap_or(Err(Failed {
            why: Failure::Broken,
            sent: true,
        }))
    }

    fn pool(&self, upstream: usize) -> &Rc<Pool> {
        &self.pools[upstream]
    }
}

fn stream(
    request: Request<Incoming>,
    token_headers: &Rc<[HeaderName]>,
    pool: &Pool,
) -> (Request<Upload>, Rc<upload::Progress>) {
    let (mut head, body) = request.into_parts();
    if body.size_hint().exact().is_none() && !body.is_end_stream() {
        // Said outright: the HTTP library takes a GET without it for one that has no body.
        head.headers
            .insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let (upload, progress) = Upload::new(body, Rc::clone(token_headers), pool.limits());
    (Request::from_parts(head, upload), progress)
}
