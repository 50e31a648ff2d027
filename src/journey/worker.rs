//! One serving thread: the configuration that its next request goes by, and what it does between requests.

use super::{Client, Journey, Reply, Shared};
use http::{Request, Response};
use hyper::body::Incoming;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// One serving thread.
pub struct Worker {
    current: RefCell<Rc<Journey>>,
}

impl Worker {
    /// A serving thread over what all of them share.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            current: RefCell::new(Rc::new(Journey::new(shared))),
        }
    }

    /// From now on requests go by this. Those under way go on by what they began with, which is let go of
    /// when the last of them has its response.
    pub fn renew(&self, shared: Arc<Shared>) {
        let mut next = Journey::new(shared);
        let mut current = self.current.borrow_mut();
        next.upstreams = next.upstreams.after(&current.upstreams);
        *current = Rc::new(next);
    }

    /// What is done between requests, some ten times a second.
    pub fn sweep(&self) {
        self.current().upstreams.sweep();
    }

    /// Drives the writes whose clients have left. To be run on the serving thread.
    pub async fn adopt(&self) {
        let orphans = self.current().upstreams.orphans(); // the same in every configuration
        orphans.adopt().await;
    }

    /// Serves one request. Dropping the future means that its client has left: a request that waits
    /// is not forwarded, a write that was forwarded runs on.
    pub fn serve(
        &self,
        client: &Rc<Client>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Reply>> + use<> {
        self.current().serve(client, request)
    }

    fn current(&self) -> Rc<Journey> {
        Rc::clone(&self.current.borrow())
    }
}
