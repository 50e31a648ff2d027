//! Asks the upstreams of guarded routes which conditions they honour: before the first request, and again as long
//! as one of them did not answer.

use super::{Error, plan};
use crate::clock;
use crate::config::{Conditions, Kind, Route, Settings, Strength, Upstream};
use crate::forward::{ANSWER, Upstreams};
use crate::guard::{Guards, Known, Untried};
use crate::journey::{Plan, Shared};
use crate::record::Metrics;
use crate::tls::client::Tls;
use http::{HeaderValue, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long one upstream may take for all that it is asked.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long an upstream that did not answer is left alone, at first and at most.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// What came of asking one upstream.
pub struct Tried {
    /// Its place among the upstreams of the settings.
    pub upstream: usize,
    /// What it honours, or why that is not known.
    pub known: Result<Known, Untried>,
}

/// Looks for the credentials that the gateway signs with, so that the log says at the start where there are none.
pub async fn credentials(settings: &Settings, guards: &Guards) {
    let asks = |upstream: &Upstream| {
        let mut routes = settings.routes.iter();
        let asks =
            |route: &Arc<Route>| route.upstream.index == upstream.index && route.is_guarded();
        upstream.sign || upstream.kind == Kind::S3 && routes.any(asks)
    };
    let upstreams = settings.upstreams.iter().filter(|upstream| asks(upstream));
    for upstream in upstreams {
        let request = Request::head(format!("http://{}/", upstream.authority)).body(());
        if let Ok(request) = request {
            let (mut head, ()) = request.into_parts();
            let _ = guards.signer(&upstream.region).sign(&mut head).await; // it says so itself
        }
    }
}

/// Asks each upstream that has a `probe`, a guarded route and no answer yet, and notes what it honours.
pub async fn probe(
    settings: &Settings,
    tls: &[Option<Arc<Tls>>],
    metrics: &Metrics,
    guards: &Guards,
) -> Vec<Tried> {
    let due: Vec<_> = settings
        .upstreams
        .iter()
        .filter_map(|upstream| due(settings, guards, upstream))
        .collect();
    if due.is_empty() {
        return Vec::new();
    }
    let all = settings.upstreams.iter();
    let seconds: Vec<_> = all.map(|u| metrics.upstream_seconds(&u.name)).collect();
    let reach = metrics.reach.take_up(plan::urls(settings));
    let pools = Upstreams::new(&settings.upstreams, tls, 1, &seconds, &reach);
    let mut tried = Vec::new();
    for (upstream, base, host) in due {
        let probe = guards.probe(upstream, base, host);
        let ask = async |head, body| {
            let answer = pools.ask(upstream.index, head, body, ANSWER).await;
            answer.map_err(|failed| failed.why)
        };
        let known = probe.run(PATIENCE, ask).await;
        if let Ok(known) = known {
            guards.honours(upstream).learn(known);
        }
        tried.push(Tried {
            upstream: upstream.index,
            known,
        });
    }
    tried
}

/// Where an upstream is to be tried, and under which host.
fn due<'a>(
    settings: &'a Settings,
    guards: &Guards,
    upstream: &'a Upstream,
) -> Option<(&'a Upstream, &'a str, HeaderValue)> {
    let Conditions::Probe(base) = &upstream.conditions else {
        return None;
    };
    let mut routes = settings.routes.iter();
    let route =
        routes.find(|route| route.upstream.index == upstream.index && route.is_guarded())?;
    if guards.honours(upstream).known().is_any() {
        return None;
    }
    let own = upstream.authority.as_str();
    let host = if upstream.rewrite_host {
        own
    } else {
        route.host.as_deref().unwrap_or(own)
    };
    Some((upstream, base, HeaderValue::from_str(host).ok()?))
}

/// What is known of a route that has a guard.
pub struct Looked {
    /// Its name.
    pub route: Arc<str>,
    /// How strong it is.
    pub strength: Strength,
    /// What that is known by.
    pub why: String,
    /// Its upstream could not be asked, or the gateway would not start with what was found.
    pub failed: bool,
}

/// Asks them now, for whoever wants to know before a gateway serves.
///
/// # Errors
/// [`Error::Tls`] or [`Error::System`], where they cannot be asked.
pub fn look(settings: &Settings) -> Result<Vec<Looked>, Error> {
    let encryption = super::Encryption::open(settings)?;
    let metrics = Metrics::new().map_err(|e| Error::System(e.to_string()))?;
    let guards = Guards::default();
    let tried = probe(settings, &encryption.upstreams, &metrics, &guards);
    let tried = super::runtime()?.block_on(tried);
    let routes = settings.routes.iter().filter(|route| route.is_guarded());
    let said = routes.map(|route| {
        let upstream = &route.upstream;
        let known = guards.honours(upstream).known();
        let tried = tried.iter().find(|tried| tried.upstream == upstream.index);
        let tried = tried.map(|tried| &tried.known);
        let why = match tried {
            Some(Err(why)) => format!("the probe has failed: {why}"),
            _ if upstream.conditions == Conditions::Trusted => {
                "not asked: conditions = \"trusted\"".to_owned()
            }
            _ if !known.is_any() => "there is no probe".to_owned(),
            _ => match known.ignored(route.guard).as_slice() {
                [] => "every condition is honoured".to_owned(),
                ignored => format!(
                    "the conditions of {} are ignored, {}",
                    ignored.join(", "),
                    if route.guard_required {
                        "and those calls are refused"
                    } else {
                        "and such calls go without (with guard_required = true they would be refused)"
                    }
                ),
            },
        };
        let closes = known.closes(route.guard, upstream.kind, route.guard_required);
        Looked {
            route: Arc::clone(&route.name),
            strength: strength(route, known),
            why,
            failed: matches!(tried, Some(Err(_))) || route.guard_required && !closes,
        }
    });
    Ok(said.collect())
}

/// Says what came of it, as far as its operator should know.
pub fn report(settings: &Settings, tried: &[Tried]) {
    for Tried { upstream, known } in tried {
        let Some(upstream) = settings.upstreams.get(*upstream) else {
            continue;
        };
        let name = &*upstream.name;
        match known {
            Ok(known) => {
                for route in guarded(settings, upstream) {
                    let strength = strength(route, *known).word();
                    let ignored = known.ignored(route.guard).join(", ");
                    let route = &*route.name;
                    tracing::info!(
                        upstream = name,
                        route,
                        strength,
                        ignored,
                        "the probe has found which conditions the upstream honours"
                    );
                }
            }
            Err(why) => {
                tracing::warn!(upstream = name, %why, "the probe has failed: guarded routes to this upstream are not known to be guarded, and it is tried again");
            }
        }
    }
}

/// Refuses to start where a route requires its guard and does not have it.
///
/// # Errors
/// [`Error::Guard`]
pub fn required(settings: &Settings, guards: &Guards, tried: &[Tried]) -> Result<(), Error> {
    for route in settings.routes.iter().filter(|route| route.guard_required) {
        let upstream = &route.upstream;
        let known = guards.honours(upstream).known();
        if !route.is_guarded() || known.closes(route.guard, upstream.kind, true) {
            continue;
        }
        let failed = tried.iter().find(|tried| tried.upstream == upstream.index);
        let why = match failed.map(|tried| &tried.known) {
            Some(Err(why)) => format!("the probe has failed: {why}"),
            _ => format!(
                "the upstream ignores conditions: {}",
                known.ignored(route.guard).join(", ")
            ),
        };
        return Err(Error::Guard {
            route: route.name.to_string(),
            upstream: upstream.name.to_string(),
            why,
        });
    }
    Ok(())
}

/// How strong a route's promise is, by what is known of its upstream.
#[must_use]
pub fn strength(route: &Route, known: Known) -> Strength {
    route.strength(known.closes(route.guard, route.upstream.kind, route.guard_required))
}

/// Tells the metrics how strong each route's promise is.
pub(super) fn count(shared: &Shared) {
    for (route, counted) in shared.settings.routes.iter().zip(&shared.counted) {
        let known = shared.honours[route.upstream.index].known();
        counted.is(strength(route, known).word());
    }
}

fn guarded<'a>(
    settings: &'a Settings,
    upstream: &'a Upstream,
) -> impl Iterator<Item = &'a Arc<Route>> {
    let routes = settings.routes.iter();
    routes.filter(|route| route.upstream.index == upstream.index && route.is_guarded())
}

/// Tries again, as long as it runs, what did not answer, and what comes with another configuration.
pub(super) async fn again(mut live: watch::Receiver<Plan>) {
    let mut pause = PAUSE;
    loop {
        tokio::select! {
            () = clock::sleep_until(clock::now().after(pause)) => pause = (pause * 2).min(LONGEST_PAUSE),
            changed = live.changed() => {
                if changed.is_err() {
                    return;
                }
                pause = PAUSE;
            }
        }
        // Not the plan: what comes after it would wait for its policies.
        let shared = Arc::clone(&live.borrow_and_update().shared);
        let Shared {
            settings,
            upstream_tls,
            metrics,
            guards,
            ..
        } = &*shared;
        let tried = probe(settings, upstream_tls, metrics, guards).await;
        report(settings, &tried);
        count(&shared);
    }
}
