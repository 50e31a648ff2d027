//! One upstream, as one serving thread sees it: its connections, and the exchanges under way.

use super::dial::Dialer;
use super::failure::Failure;
use super::link::Link;
use super::upload::Limits;
use super::watch::Watch;
use super::{http1, http2};
use crate::clock::{self, Time};
use crate::config::settings::Upstream;
use crate::record::Reach;
use crate::tls::client::Tls;
use prometheus::Histogram;
use std::rc::Rc;
use std::sync::Arc;

/// An upstream. For one thread.
pub(super) struct Pool {
    pub(super) upstream: Arc<Upstream>,
    tls: Option<Arc<Tls>>,
    connections: Connections,
    /// The exchanges under way.
    pub(super) watch: Watch,
    /// How long exchanges take, up to the response head.
    pub(super) seconds: Histogram,
    /// Whether it can be reached.
    pub(super) reach: Arc<Reach>,
}

enum Connections {
    Http1(Rc<http1::Connections>),
    Http2(Rc<http2::Connections>),
}

impl Pool {
    /// `share`: of how many threads' pools this is one; they divide `max_connections`.
    pub(super) fn new(
        upstream: Arc<Upstream>,
        tls: Option<Arc<Tls>>,
        share: usize,
        seconds: Histogram,
        reach: Arc<Reach>,
    ) -> Rc<Self> {
        let most = upstream.max_connections.div_ceil(share.max(1)).max(1);
        let dialer = Dialer::new(Arc::clone(&upstream), tls.clone(), Arc::clone(&reach));
        let connections = if upstream.http2 {
            Connections::Http2(http2::Connections::new(dialer, most))
        } else {
            Connections::Http1(http1::Connections::new(dialer, most))
        };
        Rc::new(Self {
            upstream,
            tls,
            connections,
            watch: Watch::default(),
            seconds,
            reach,
        })
    }

    /// Whether its connections serve what the other's would.
    pub(super) fn serves_like(&self, other: &Self) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        tls && Arc::ptr_eq(&self.reach, &other.reach) && self.upstream.is_like(&other.upstream)
    }

    /// How long the parts of an exchange may take here.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            response: self.upstream.response_timeout,
            body_idle: self.upstream.body_idle_timeout,
            body_rate: self.upstream.min_body_rate,
        }
    }

    /// The right to one exchange: on a connection that is open unless `fresh` is asked, else on a new one;
    /// at the bound, on the next that is free. Cancel-safe.
    pub(super) async fn link(&self, fresh: bool, now: Time) -> Result<Link, Failure> {
        match &self.connections {
            Connections::Http1(all) => Ok(Link::http1(all.link(fresh, now).await?, self.limits())),
            // One that was refused is not used again anyway. Large: kept out of the caller's future.
            Connections::Http2(all) => {
                Ok(Link::http2(Box::pin(all.stream()).await?, self.limits()))
            }
        }
    }

    /// Wakes exchanges whose time is up, and closes connections that are not needed. To be called some ten
    /// times a second.
    pub(super) fn sweep(&self) {
        self.watch.wake_overdue(clock::now());
        match &self.connections {
            Connections::Http1(all) => all.sweep(),
            Connections::Http2(all) => all.sweep(),
        }
    }
}
