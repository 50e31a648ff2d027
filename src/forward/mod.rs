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
mod unread;
mod upload;
mod watch;
mod write;

pub use download::Download;
pub use failure::{Failed, Failure};
pub use unread::{LINGER, LINGER_PAUSE, Rest};

use crate::admit::{Exempt, Pass};
use crate::config::settings::{SettledAt, Upstream};
use attend::{Attended, Orphans};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;
use pool::Pool;
use prometheus::Histogram;
use std::rc::Rc;
use std::sync::Arc;
use unread::Came;
use upload::Upload;

/// The upstreams, as one serving thread sees them.
pub struct Upstreams {
    pools: Vec<Rc<Pool>>,
    orphans: Rc<Orphans>,
}

impl Upstreams {
    /// `share`: how many threads have pools to the same upstreams. `seconds`: for each upstream, where the
    /// time from a request to its response head is recorded.
    #[must_use]
    pub fn new(upstreams: &[Arc<Upstream>], share: usize, seconds: &[Histogram]) -> Self {
        let pools = upstreams
            .iter()
            .zip(seconds)
            .map(|(u, seconds)| Pool::new(Arc::clone(u), share, seconds.clone()))
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

    /// Takes a request as it came from its client.
    #[must_use]
    pub fn outgoing(&self, request: Request<Incoming>) -> Box<Outgoing> {
        let (head, body) = request.into_parts();
        let h2 = head.version == Version::HTTP_2;
        let body = Came::new(body, &head, &self.orphans);
        Box::new(Outgoing {
            body: Upload::new(body, h2),
            head,
        })
    }

    /// Drives the writes whose clients have left, and reads what clients still send that were answered
    /// before. To be run on the serving thread.
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
        mut request: Box<Outgoing>,
        token_headers: &Rc<[HeaderName]>,
    ) -> Result<Response<Download>, Failed> {
        let pool = &self.pools[upstream];
        request.bind(token_headers, pool);
        let progress = Rc::clone(request.progress());
        match exchange::run(pool, None, request, &progress).await {
            Ok((response, link)) => {
                let whole = progress.is_whole();
                Ok(response.map(|body| Download::direct(body, link, whole)))
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
        mut request: Box<Outgoing>,
        token_headers: &Rc<[HeaderName]>,
        settled_at: SettledAt,
    ) -> Result<Response<Download>, Failed> {
        let pool = &self.pools[upstream];
        request.bind(token_headers, pool);
        let progress = Rc::clone(request.progress());
        let work = write::run(Rc::clone(pool), pass, request, settled_at);
        Attended::new(&self.orphans, &progress, work).await
    }
}

/// A request that has not left yet: its head may be changed, its body has not begun.
pub struct Outgoing {
    /// The head, as it will go out.
    pub head: Parts,
    body: Upload,
}

impl Outgoing {
    /// For whoever answers it.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.body.rest()
    }

    /// Bounds the size of its body. False where the body says by itself that it is larger.
    #[must_use]
    pub fn limit_body(&mut self, most: Option<u64>) -> bool {
        self.body.limit(most)
    }

    fn from_request(request: Request<Upload>) -> Box<Self> {
        let (head, body) = request.into_parts();
        Box::new(Self { head, body })
    }

    fn into_request(self) -> Request<Upload> {
        Request::from_parts(self.head, self.body)
    }

    fn bind(&mut self, token_headers: &Rc<[HeaderName]>, pool: &Pool) {
        self.body.bind(Rc::clone(token_headers), pool.limits());
        let headers = &mut self.head.headers;
        match self.body.size_hint().exact() {
            // Said outright: the HTTP library takes a GET without it for one that has no body.
            None if !self.body.is_end_stream() => {
                headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            // HTTP/2 lets it come twice.
            Some(length) if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() => {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            _ => {}
        }
    }

    const fn progress(&self) -> &Rc<upload::Progress> {
        self.body.progress()
    }
}
