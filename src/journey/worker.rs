//! One serving thread: the configuration that its next request goes by, and what it does between requests.

use super::{Client, Journey, Plan, Policies, Reply};
use http::{Request, Response};
use hyper::body::Incoming;
use std::cell::RefCell;
use std::rc::Rc;

/// One serving thread.
pub struct Worker {
    current: RefCell<Current>,
}

/// The configuration in force.
struct Current {
    journey: Rc<Journey>,
    policies: Policies,
}

impl Current {
    fn new(journey: Journey, plan: &Plan) -> Self {
        Self {
            journey: Rc::new(journey),
            policies: plan.policies.iter().cloned().collect(),
        }
    }
}

impl Worker {
    /// A serving thread over what all of them share.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let journey = Journey::new(plan.shared.clone());
        Self {
            current: RefCell::new(Current::new(journey, plan)),
        }
    }

    /// From now on requests go by this. Those under way go on by what they began with; its policies are let go
    /// of when the last of them was admitted, and what they were admitted to is over.
    pub fn renew(&self, plan: &Plan) {
        let mut next = Journey::new(plan.shared.clone());
        let mut current = self.current.borrow_mut();
        next.upstreams = next.upstreams.after(&current.journey.upstreams);
        *current = Current::new(next, plan);
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
        let policies = Rc::clone(&self.current.borrow().policies);
        self.current().serve(policies, client, request)
    }

    fn current(&self) -> Rc<Journey> {
        Rc::clone(&self.current.borrow().journey)
    }
}
