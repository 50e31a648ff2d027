//! What all serving threads share, made from settings: at the start, and for each configuration after it.

use super::Encryption;
use crate::admit::{Budget, Gates, Handover, Policy, Settles};
use crate::config::{Mode, Route, Settings};
use crate::event::Events;
use crate::fence::Rules;
use crate::guard::{Guards, Honours};
use crate::journey::{Plan, Shared};
use crate::record::{Metrics, Recorders, RouteMetrics};
use crate::route::Routes;
use crate::sign::Signing;
use crate::store::{FenceStore, InForce};
use std::sync::Arc;

/// What is in force under these settings, for the start after this run.
pub(super) fn in_force(settings: &Settings) -> InForce {
    InForce {
        settle: settings.largest_settle(),
        lax: settings.is_lax(),
    }
}

/// The first one.
pub(super) fn first(
    settings: Settings,
    store: &dyn FenceStore,
    gates: Arc<Gates>,
    metrics: Arc<Metrics>,
    guards: Arc<Guards>,
    encryption: &Encryption,
    (recorders, events): (Recorders, Arc<Events>),
) -> Plan {
    let policies = settings.routes.iter().map(|route| {
        let budget = budget(route, store, None);
        Arc::new(policy(route, budget, &metrics))
    });
    let policies: Arc<[_]> = policies.collect();
    let shared = Arc::new(Shared {
        routes: Routes::new(&settings),
        counted: counted(&policies),
        gates,
        honours: honours(&settings, &guards),
        signing: signing(&settings, &guards, encryption),
        guards,
        reach: metrics.reach.take_up(urls(&settings)),
        metrics,
        recorders,
        events,
        upstream_tls: encryption.upstreams.clone(),
        settings,
    });
    Plan { shared, policies }
}

/// The one after another. A route whose requests meet the same fences as before goes on; one that is new or
/// has changed first waits for all that was forwarded before; and all wait for what was forwarded on routes
/// that are gone or have changed, since those paths may be theirs now.
pub(super) fn next(
    before: &Plan,
    settings: Settings,
    store: &dyn FenceStore,
    encryption: &Encryption,
) -> Plan {
    let (before, in_force) = (&before.shared, &before.policies);
    // Where two routes can take one path, the first does: in another order none is what it was.
    let reordered = reordered(&before.settings, &settings);
    let same = |old: &Route, new: &Route| !reordered && new.fences_like(old);
    let stays = |old: &Route| settings.routes.iter().any(|new| same(old, new));
    let old = || before.settings.routes.iter().zip(in_force.iter());
    let gone = || old().filter(|(route, _)| !stays(route));
    let after_all = Handover::after(old().map(|(_, policy)| policy), None);
    let after_gone = |also| Handover::after(gone().map(|(_, policy)| policy), also);
    let policies = settings.routes.iter().map(|route| {
        let same = old().find(|(other, _)| same(other, route));
        let handover = match same {
            // What it waits for itself is not over because the configuration was read again.
            Some((_, policy)) => after_gone(policy.handover.as_ref()),
            None => after_all.clone(),
        };
        let named = old().find(|(other, _)| other.name == route.name);
        let budget = budget(route, store, named.and_then(|(_, p)| p.budget.as_ref()));
        let ancestors = same.map(|(_, policy)| Handover::ancestors(policy));
        Arc::new(Policy {
            ancestors: ancestors.unwrap_or_default(),
            handover,
            ..policy(route, budget, &before.metrics)
        })
    });
    let policies: Arc<[_]> = policies.collect();
    let shared = Arc::new(Shared {
        routes: Routes::new(&settings),
        counted: counted(&policies),
        gates: Arc::clone(&before.gates),
        honours: honours(&settings, &before.guards),
        signing: signing(&settings, &before.guards, encryption),
        guards: Arc::clone(&before.guards),
        reach: before.metrics.reach.take_up(urls(&settings)),
        metrics: Arc::clone(&before.metrics),
        recorders: before.recorders.clone(),
        events: Arc::clone(&before.events),
        upstream_tls: encryption.upstreams.clone(),
        settings,
    });
    Plan { shared, policies }
}

fn honours(settings: &Settings, guards: &Guards) -> Vec<Arc<Honours>> {
    let upstreams = settings.upstreams.iter();
    upstreams.map(|upstream| guards.honours(upstream)).collect()
}

fn signing(
    settings: &Settings,
    guards: &Guards,
    encryption: &Encryption,
) -> Vec<Option<Arc<Signing>>> {
    let upstreams = settings.upstreams.iter().zip(&encryption.keys);
    let signing = upstreams.map(|(upstream, clients)| {
        upstream.sign.then(|| {
            Arc::new(Signing {
                signer: guards.signer(&upstream.region),
                region: upstream.region.clone(),
                clients: clients.clone(),
            })
        })
    });
    signing.collect()
}

fn counted(policies: &[Arc<Policy>]) -> Vec<Arc<RouteMetrics>> {
    policies
        .iter()
        .map(|policy| Arc::clone(&policy.metrics))
        .collect()
}

/// The names and URLs of its upstreams.
pub(super) fn urls(settings: &Settings) -> impl Iterator<Item = (&str, String)> {
    let upstreams = settings.upstreams.iter();
    upstreams.map(|u| (&*u.name, format!("{}://{}", u.scheme(), u.authority)))
}

/// Whether the routes that stay stand in another order.
fn reordered(before: &Settings, after: &Settings) -> bool {
    let places = before.routes.iter().filter_map(|route| {
        let mut all = after.routes.iter();
        all.position(|other| other.name == route.name)
    });
    !places.is_sorted()
}

fn budget(
    route: &Route,
    store: &dyn FenceStore,
    before: Option<&Arc<Budget>>,
) -> Option<Arc<Budget>> {
    let max = route.max_new_resources?;
    if let Some(same) = before.filter(|budget| budget.is_for(&route.name, max)) {
        return Some(Arc::clone(same));
    }
    let created = store.created_by(&route.name);
    Some(Arc::new(Budget::new(Arc::clone(&route.name), max, created)))
}

/// What a route asks of its requests, as the gates need it.
fn policy(route: &Route, budget: Option<Arc<Budget>>, metrics: &Metrics) -> Policy {
    Policy {
        rules: Rules {
            accept: route.accept,
            missing: route.missing,
            preempt: route.preempt,
            max_waiting: route.max_waiting,
            max_advance: route.max_advance,
            first_max: route.first_max,
            format: route.format,
        },
        observe: route.mode == Mode::Observe,
        drain_timeout: route.drain_timeout,
        settles: Settles {
            whole: route.upstream.settle,
            incomplete: route.upstream.settle_incomplete,
        },
        budget,
        ancestors: Vec::new(),
        handover: None,
        metrics: metrics.route(&route.name),
    }
}
