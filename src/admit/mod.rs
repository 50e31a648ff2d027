//! The async shell of the gates: look-up, seal, commit, drain, and the [`Pass`] at the end.
//!
//! The only maker of a pass. Knows nothing of HTTP; what the rules are, the gates know.

mod budget;
mod cell;
mod handover;
mod look;
mod pass;
mod reach;
mod steps;
mod table;
mod tenure;
mod ticket;
mod unseen;

pub use budget::Budget;
pub use handover::Handover;
pub use pass::{Exempt, Outcome, Pass, Settles};
pub use reach::Reach;
pub use tenure::Tenure;
pub use unseen::Unseen;

use crate::clock::{self, Time};
use crate::fence::crossing::Entry;
use crate::fence::{Kind, Refusal, ResourceKey, Rules, Token, WriteId};
use crate::record::{Metrics, RouteMetrics};
use crate::store::FenceStore;
use reach::Reaches;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use table::Table;
use ticket::{Stop, Stops, Ticket};

/// All gates of this process, over one store.
pub struct Gates {
    store: Arc<dyn FenceStore>,
    table: Table,
    tenure: Tenure,
    reaches: Arc<Reaches>,
    next_id: AtomicU64,
    /// Writes that are in flight or unsettled.
    unsettled: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// What a route asks of its requests, resolved once.
pub struct Policy {
    /// What the gates go by.
    pub rules: Rules,
    /// Forward at once whatever the gates say, and only record.
    pub observe: bool,
    /// How long a request may wait for the commit and the drain.
    pub drain_timeout: Duration,
    /// How long an unknown outcome may still take effect.
    pub settles: Settles,
    /// How many resources the route may create; `None`: any number.
    pub budget: Option<Arc<Budget>>,
    /// The policies of the same route in earlier configurations, as far as requests go by them.
    pub ancestors: Vec<Weak<Policy>>,
    /// What must be over before anything is forwarded by it; `None`: nothing.
    pub handover: Option<Arc<Handover>>,
    /// Where the route's requests are counted.
    pub metrics: Arc<RouteMetrics>,
}

/// A resource that a request may change.
pub struct Want<'a> {
    /// The resource.
    pub key: &'a ResourceKey,
    /// The token that the request shows for it; NONE where it shows none.
    pub token: Token,
    /// What the route that covers the resource asks.
    pub policy: &'a Arc<Policy>,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A gate refused it.
    Refused(Refusal),
    /// The route may not create another resource.
    TooManyResources,
    /// Older writes were not settled in time. The fence stays raised.
    DrainTimeout,
}

/// A refusal, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Why.
    pub why: Denial,
    /// The fence that stood against it; NONE where there is none.
    pub fence: Token,
    /// How long ago the refused token was superseded, where that is known.
    pub age: Option<Duration>,
    /// Which of the request's resources that is about, and the token that was shown to it, where that is known.
    pub of: Option<(ResourceKey, Token)>,
}

impl From<Refusal> for Denied {
    fn from(why: Refusal) -> Self {
        Self {
            why: Denial::Refused(why),
            fence: Token::NONE,
            age: None,
            of: None,
        }
    }
}

impl Gates {
    /// Makes the gates over a store that this process holds.
    #[must_use]
    pub fn new(store: Arc<dyn FenceStore>, tenure: Tenure, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            store,
            table: Table::default(),
            tenure,
            reaches: Arc::default(),
            next_id: AtomicU64::new(1),
            unsettled: AtomicUsize::new(0),
            metrics,
        })
    }

    /// Admits a request to one resource, or to several at once: each with the token that the request
    /// shows for it. `policy` is that of the request's own route. A request of [`Kind::Read`] passes
    /// the same steps, but nothing waits for it afterwards.
    ///
    /// On `Ok` the fences are durable and every lower write is settled, except under `observe`.
    /// Dropping the future takes the request out of the line; a fence that it raised stays raised.
    ///
    /// # Errors
    /// [`Denied`], and then nothing of the request may be forwarded.
    pub async fn admit(
        self: &Arc<Self>,
        wants: &[Want<'_>],
        kind: Kind,
        policy: &Arc<Policy>,
        reaches: Vec<Reach>,
    ) -> Result<Pass, Denied> {
        if policy.observe {
            return Ok(self.observe(wants, kind, policy, reaches).await);
        }
        if !self.store.is_ready() {
            return Err(Refusal::Store.into());
        }
        let mut late = false;
        for want in wants {
            if let Some(handover) = want.policy.handover.as_ref().filter(|h| !h.is_over()) {
                // Rare: kept out of the caller's future.
                Box::pin(self.take_over(handover, policy)).await?;
                late = true;
            }
        }
        let stops = self.stops(wants).await?;
        let ticket = Arc::new(Ticket::new(
            self.id(),
            kind,
            stops,
            Arc::clone(policy),
            reaches,
        ));
        let arrived = clock::now();
        let entry = steps::arrive(self, &ticket, arrived)?;
        if !entry.forwarded {
            // Rare and large: kept out of the caller's future.
            let waited = Box::pin(self.wait(&ticket, arrived)).await;
            if entry.raised {
                let now = clock::now();
                self.metrics
                    .raise_seconds
                    .observe(now.since(arrived).as_secs_f64());
                if let Some(durable) = ticket.durable_at() {
                    self.metrics
                        .drain_seconds
                        .observe(now.since(durable).as_secs_f64());
                }
            }
            waited?;
        }
        let mut pass = Pass::new(self, ticket, entry, None);
        pass.came_late(late);
        Ok(pass)
    }

    /// Records a request that is forwarded whatever the gates say. Without the store it is forwarded
    /// without a trace in them.
    async fn observe(
        self: &Arc<Self>,
        wants: &[Want<'_>],
        kind: Kind,
        policy: &Arc<Policy>,
        reaches: Vec<Reach>,
    ) -> Pass {
        let stops = self.stops(wants).await;
        let known = stops.is_ok();
        let stops = stops.unwrap_or_default();
        let ticket = Arc::new(Ticket::new(
            self.id(),
            kind,
            stops,
            Arc::clone(policy),
            reaches,
        ));
        let (verdict, raised) = if known {
            steps::observe(self, &ticket)
        } else {
            (Err(Refusal::Store), false)
        };
        let entry = Entry {
            forwarded: true,
            raised,
        };
        Pass::new(self, ticket, entry, verdict.err())
    }

    /// Claims all that lies below a prefix (`key/`) for a request that may change it. To be passed on
    /// to [`Gates::admit`], so that it lasts as long as the request may take effect.
    ///
    /// # Errors
    /// `None` in place of the claim where something there is fenced or in flight; [`Denied`] where the
    /// store cannot answer.
    pub async fn reach(self: &Arc<Self>, prefix: Vec<u8>) -> Result<Option<Reach>, Denied> {
        let reach = self.reaches.claim(prefix);
        let (store, prefix) = (Arc::clone(&self.store), reach.prefix().to_vec());
        // The store first: what is sealed in between is in memory by then.
        let asked = tokio::task::spawn_blocking(move || store.any_under(&prefix)).await;
        let Ok(Ok(stored)) = asked else {
            return Err(self.read_failed());
        };
        let engaged = stored || self.table.any_engaged_under(reach.prefix());
        Ok((!engaged).then_some(reach))
    }

    /// How many writes are in flight or inside their settle.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// When raises stop waiting for what was in flight before this process took over.
    #[must_use]
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Lets gates that nothing refers to leave memory; those touched since the last call stay.
    pub fn sweep(&self) {
        self.table.sweep();
    }

    /// How many gates are in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no gate is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn id(&self) -> WriteId {
        WriteId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The gates of a request, loaded, in key order.
    async fn stops(&self, wants: &[Want<'_>]) -> Result<Stops, Denied> {
        let mut stops = self.find(wants)?;
        if stops.iter().any(|stop| !stop.cell.is_loaded()) {
            Box::pin(self.load(&stops)).await?; // rare and large: kept out of the caller's future
        }
        if stops.len() > 1 {
            stops.sort_by(|a, b| a.cell.key.cmp(&b.cell.key));
        }
        Ok(stops)
    }

    fn find(&self, wants: &[Want<'_>]) -> Result<Stops, Denied> {
        let find = |want: &Want<'_>| {
            let cell = self.table.find(want.key, &*self.store, &self.tenure);
            Ok(Stop {
                cell: cell.map_err(|_| self.read_failed())?,
                token: want.token,
                policy: Arc::clone(want.policy),
            })
        };
        wants.iter().map(find).collect()
    }

    async fn load(&self, stops: &Stops) -> Result<(), Denied> {
        for Stop { cell, .. } in stops {
            if !cell.is_loaded() {
                let loaded = cell.load(&self.store, &self.tenure).await;
                loaded.map_err(|_| self.read_failed())?;
            }
        }
        Ok(())
    }

    fn read_failed(&self) -> Denied {
        self.metrics.store_error("read");
        Refusal::Store.into()
    }

    /// Waits for the verdict on a ticket that stands in line.
    async fn wait(self: &Arc<Self>, ticket: &Arc<Ticket>, arrived: Time) -> Result<(), Denied> {
        let metrics = &ticket.policy.metrics;
        metrics.waiting.inc();
        let place = Place {
            gates: self,
            ticket,
            decided: false,
        };
        let denied = place.verdict(arrived).await;
        metrics.waiting.dec();
        denied
    }
}

/// A place in line. Dropped before the verdict (the client left), it takes the request out.
struct Place<'a> {
    gates: &'a Arc<Gates>,
    ticket: &'a Arc<Ticket>,
    decided: bool,
}

impl Place<'_> {
    async fn verdict(mut self, arrived: Time) -> Result<(), Denied> {
        let end = arrived.after(self.ticket.policy.drain_timeout);
        if let Some(until) = self.gates.tenure.until() {
            tokio::select! {
                biased;
                verdict = self.ticket.verdict() => return self.decide(verdict),
                () = clock::sleep_until(until.min(end)) => {}
            }
            if until.has_passed() {
                steps::take_over(self.gates, self.ticket);
            }
        }
        tokio::select! {
            biased;
            verdict = self.ticket.verdict() => self.decide(verdict),
            () = clock::sleep_until(end) => self.give_up(),
        }
    }

    fn decide(&mut self, verdict: Result<(), Refusal>) -> Result<(), Denied> {
        self.decided = true;
        verdict.map_err(|why| steps::denied(self.ticket, why))
    }

    fn give_up(&mut self) -> Result<(), Denied> {
        self.decided = true;
        match steps::leave(self.gates, self.ticket) {
            None => Err(Denied {
                why: Denial::DrainTimeout,
                ..Refusal::Busy.into()
            }),
            Some(verdict) => verdict.map_err(|why| steps::denied(self.ticket, why)),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.decided {
            return;
        }
        self.ticket.policy.metrics.waiting.dec();
        if steps::leave(self.gates, self.ticket) == Some(Ok(())) {
            // Its turn came in the same moment: nothing of it was sent.
            let entry = Entry {
                forwarded: true,
                raised: false,
            };
            Pass::new(self.gates, Arc::clone(self.ticket), entry, None).finish(Outcome::Unsent);
        }
    }
}
