//! The only way out: a request to its upstream, and the response back.
//!
//! A write goes out only with a pass, in a task that owns it. What became of it is told from what
//! reached the socket (`whole`, `answered`, `unsent`, `unknown` in docs/protocol.md).

mod arriving;
mod ask;
mod attend;
mod dial;
mod download;
mod exchange;
mod failure;
mod gather;
mod grpc;
mod guarded;
pub mod headers;
mod http1;
mod http2;
mod link;
mod pace;
mod pool;
mod relay;
mod tunnel;
mod unread;
mod upload;
mod watch;
mod write;

pub use attend::Orphans;
pub use download::Download;
pub use failure::{Failed, Failure};
pub use gather::{Place, Ungathered};
pub use guarded::{Guarded, Kept};
pub use unread::{LINGER, LINGER_PAUSE, Rest};

use crate::admit::{Exempt, Pass};
use crate::config::settings::{SettledAt, Upstream};
use crate::record::Reach;
use crate::route::upgrade;
use crate::sign::Chunks;
use crate::tls::client::Tls;
use attend::Attended;
use bytes::Bytes;
use gather::Gathered;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
use pool::Pool;
use prometheus::Histogram;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use tunnel::Held;
pub use tunnel::Tunnel;
use unread::Came;
use upload::Upload;

/// How much of an answer is read whose body says little.
pub const ANSWER: usize = 64 << 10;

/// The upstreams, as one serving thread sees them.
pub struct Upstreams {
    pools: Vec<Rc<Pool>>,
    /// Pools of earlier configurations, some with exchanges under way.
    leaving: RefCell<Vec<Weak<Pool>>>,
    orphans: Rc<Orphans>,
    gathered: Gathered,
}

impl Upstreams {
    /// `tls`: for each upstream, how it is spoken to where that is over TLS. `share`: how many threads have
    /// pools to the same upstreams. `seconds`: for each upstream, where the time from a request to its
    /// response head is recorded. `reach`: for each, where it is noted whether it can be reached.
    #[must_use]
    pub fn new(
        upstreams: &[Arc<Upstream>],
        tls: &[Option<Arc<Tls>>],
        share: usize,
        seconds: &[Histogram],
        reach: &[Arc<Reach>],
    ) -> Self {
        let told = seconds.iter().zip(reach);
        let all = upstreams.iter().zip(tls).zip(told);
        let pools = all.map(|((upstream, tls), (seconds, reach))| {
            let (seconds, reach) = (seconds.clone(), Arc::clone(reach));
            Pool::new(Arc::clone(upstream), tls.clone(), share, seconds, reach)
        });
        let pools = pools.collect();
        Self {
            pools,
            leaving: RefCell::default(),
            orphans: Rc::default(),
            gathered: Gathered::default(),
        }
    }

    /// For another configuration: an upstream that is the same keeps its connections, and writes that nobody
    /// attends go on. To replace the one before, on the same thread.
    #[must_use]
    pub fn after(self, before: &Self) -> Self {
        let same = |pool: Rc<Pool>| {
            let mut all = before.pools.iter();
            all.find(|old| old.serves_like(&pool))
                .cloned()
                .unwrap_or(pool)
        };
        let pools: Vec<_> = self.pools.into_iter().map(same).collect();
        let gone = before.pools.iter();
        let gone = gone.filter(|old| !pools.iter().any(|pool| Rc::ptr_eq(pool, old)));
        let leaving = gone
            .map(Rc::downgrade)
            .chain(before.leaving.take())
            .collect();
        Self {
            pools,
            leaving: RefCell::new(leaving),
            orphans: Rc::clone(&before.orphans),
            gathered: Gathered::default(),
        }
    }

    /// Ends exchanges whose time is up, and closes connections that have been idle for too long. To be
    /// called some ten times a second.
    pub fn sweep(&self) {
        for pool in &self.pools {
            pool.sweep();
        }
        self.leaving.borrow_mut().retain(|pool| {
            let pool = pool.upgrade();
            pool.inspect(|pool| pool.sweep()).is_some()
        });
    }

    /// Takes a request as it came from its client.
    #[must_use]
    pub fn outgoing(&self, request: Request<Incoming>) -> Box<Outgoing> {
        let (head, body) = request.into_parts();
        let h2 = head.version == Version::HTTP_2;
        let body = Came::new(body, &head, &self.orphans);
        Box::new(Outgoing {
            body: Upload::new(body, h2),
            upgrade: false,
            head,
        })
    }

    /// Reads a request's body of at most `most` bytes before the request goes anywhere: it goes on with what was
    /// read. To be held as long as that: how many there may be is bounded.
    ///
    /// # Errors
    /// [`Ungathered`]: then the body is lost.
    pub async fn gather(
        &self,
        request: &mut Outgoing,
        most: usize,
    ) -> Result<(Bytes, Place<'_>), Ungathered> {
        let place = self.gathered.enter()?;
        let held = gather::gather(&mut request.body, most).await?;
        Ok((held, place))
    }

    /// The writes whose clients have left, and what clients still send that were answered before.
    #[must_use]
    pub fn orphans(&self) -> Rc<Orphans> {
        Rc::clone(&self.orphans)
    }

    /// Forwards a request that needs no pass. Dropping the future, or the response's body, closes the connection.
    ///
    /// # Errors
    /// [`Failed`] where no response came.
    pub async fn exempt(
        &self,
        upstream: usize,
        right: Exempt,
        mut request: Box<Outgoing>,
        token_headers: &Rc<[HeaderName]>,
        settled_at: SettledAt,
    ) -> Result<Response<Download>, Failed> {
        let pool = &self.pools[upstream];
        request.bind(token_headers, pool);
        let progress = Rc::clone(request.progress());
        let mut unseen = right.unseen();
        match exchange::run(pool, None, request, &progress).await {
            Ok((response, link)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                let tunnel = Tunnel::new(link, Held::Unseen(unseen));
                Ok(response.map(|_| Download::switched(tunnel)))
            }
            Ok((response, link)) => {
                let whole = progress.is_whole();
                let unsettled = &pool.upstream.unsettled_status;
                let says = whole && !unsettled.contains(&response.status());
                if says
                    && settled_at == SettledAt::ResponseHead
                    && let Some(unseen) = unseen.take()
                {
                    unseen.settled();
                }
                let left = unseen.map(|unseen| (unseen, says));
                Ok(response.map(|body| Download::direct(body, link, whole, left)))
            }
            Err(stopped) => {
                let sent = stopped.closed.is_some();
                if !sent && let Some(unseen) = unseen.take() {
                    unseen.settled();
                }
                let why = stopped.why;
                Err(Failed { why, sent })
            }
        }
    }

    /// Asks an upstream something on the gateway's own behalf, and reads its answer; of one whose body is larger
    /// than `most` bytes, the head. Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`Failed`] where no answer came.
    pub async fn ask(
        &self,
        upstream: usize,
        head: Parts,
        body: Bytes,
        most: usize,
    ) -> Result<Response<Bytes>, Failed> {
        ask::ask(&self.pools[upstream], head, body, most).await
    }

    /// Forwards a write. Dropping the future leaves the write running (see [`Orphans::adopt`]): what
    /// drives it owns the pass and its turn at the object, and ends them as the exchange ends.
    ///
    /// # Errors
    /// [`Failed`] where no response came, or the write was cut.
    pub async fn write(
        &self,
        upstream: usize,
        pass: Pass,
        guarded: Option<Guarded>,
        mut request: Box<Outgoing>,
        token_headers: &Rc<[HeaderName]>,
        settled_at: SettledAt,
    ) -> Result<Response<Download>, Failed> {
        let pool = &self.pools[upstream];
        request.bind(token_headers, pool);
        let progress = Rc::clone(request.progress());
        let calls = grpc::is_call(&request.head.headers);
        let settled_at = if calls {
            SettledAt::ResponseEnd
        } else {
            settled_at
        };
        let pool = Rc::clone(pool);
        let work = write::run(pool, pass, guarded, request, settled_at, calls);
        Attended::new(&self.orphans, &progress, work).await
    }
}

/// A request that has not left yet: its head may be changed, its body has not begun.
pub struct Outgoing {
    /// The head, as it will go out.
    pub head: Parts,
    /// It asks to become a WebSocket.
    pub upgrade: bool,
    body: Upload,
}

impl Outgoing {
    /// For whoever answers it.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.body.rest()
    }

    /// How large its body is, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Takes its body out of the signed chunks in which it comes: `length` bytes in all.
    pub fn unchunk(&mut self, chunks: Chunks, length: u64) {
        self.body.unchunk(chunks, length);
    }

    /// Bounds the size of its body. False where the body says by itself that it is larger.
    #[must_use]
    pub fn limit_body(&mut self, most: Option<u64>) -> bool {
        self.body.limit(most)
    }

    /// One that was not taken.
    fn again(head: Parts, body: Upload) -> Box<Self> {
        let upgrade = upgrade::asks(&head); // as it was made to
        Box::new(Self {
            head,
            upgrade,
            body,
        })
    }

    fn from_request(request: Request<Upload>) -> Box<Self> {
        let (head, body) = request.into_parts();
        Self::again(head, body)
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
            Some(length)
                if self.body.came_as_h2()
                    && headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() =>
            {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            _ => {}
        }
    }

    const fn progress(&self) -> &Rc<upload::Progress> {
        self.body.progress()
    }
}
