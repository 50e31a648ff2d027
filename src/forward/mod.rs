//! The only way out: a request to its upstream, and the response back.
//!
//! A write goes out only with a pass, in a task that owns it. What became of it is told from what
//! reached the socket (`whole`, `answered`, `unsent`, `unknown` in docs/protocol.md).

mod download;
mod exchange;
mod failure;
pub mod headers;
mod linger;
mod pool;
mod upload;
mod wire;
mod write;

pub use download::Download;
pub use failure::{Failed, Failure};
pub use linger::linger;

use crate::admit::{Exempt, Pass};
use crate::config::settings::{SettledAt, Upstream};
use http::header::EXPECT;
use http::{HeaderName, Request, Response};
use hyper::body::Incoming;
use pool::Pool;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;
use upload::Upload;

/// The upstreams, as one serving thread sees them.
pub struct Upstreams(Vec<Rc<Pool>>);

impl Upstreams {
    /// `share`: how many threads have pools to the same upstreams.
    #[must_use]
    pub fn new(upstreams: &[Arc<Upstream>], share: usize) -> Self {
        Self(
            upstreams
                .iter()
                .map(|u| Pool::new(Arc::clone(u), share))
                .collect(),
        )
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        for pool in &self.0 {
            pool.sweep();
        }
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
        let (request, progress) = stream(request, token_headers);
        match exchange::run(self.pool(upstream), None, request, &progress).await {
            Ok((response, link)) => {
                let (head, body) = response.into_parts();
                Ok(Response::from_parts(
                    head,
                    Download::direct(body, link).await,
                ))
            }
            Err(stopped) => {
                progress.linger();
                Err(Failed {
                    why: stopped.why,
                    sent: stopped.closed.is_some(),
                })
            }
        }
    }

    /// Forwards a write. Dropping the future leaves the write running: its task owns the pass, and
    /// ends it as the exchange ends.
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
        let (request, progress) = stream(request, token_headers);
        let pool = Rc::clone(self.pool(upstream));
        let (reply, response) = oneshot::channel();
        tokio::task::spawn_local(async move {
            write::run(&pool, pass, request, &progress, settled_at, reply).await;
        });
        // The task always replies; it is only dropped with the whole thread.
        response.await.unwrap_or(Err(Failed {
            why: Failure::Broken,
            sent: true,
        }))
    }

    fn pool(&self, upstream: usize) -> &Rc<Pool> {
        &self.0[upstream]
    }
}

fn stream(
    request: Request<Incoming>,
    token_headers: &Rc<[HeaderName]>,
) -> (Request<Upload>, Rc<upload::Progress>) {
    let (mut head, body) = request.into_parts();
    // Answered here, as soon as the body is asked for.
    let awaits_continue = head.headers.remove(EXPECT).is_some();
    let (upload, progress) = Upload::new(body, Rc::clone(token_headers), awaits_continue);
    (Request::from_parts(head, upload), progress)
}
