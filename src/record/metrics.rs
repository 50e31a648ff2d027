//! The metrics: their names, what they mean, and the handles through which they are counted.
//!
//! Every series exists from the start, at 0. Labels come from the configuration only, never from a
//! request, so that no sender can add a series.

use super::Decision;
use ::metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram, with_local_recorder,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::Arc;

const REQUESTS: &str = "fencegate_requests_total";
const REJECTIONS: &str = "fencegate_fence_rejections_total";
const RAISES: &str = "fencegate_fence_raises_total";
const BEST_EFFORT: &str = "fencegate_best_effort_total";
const RAISE_SECONDS: &str = "fencegate_raise_seconds";
const DRAIN_SECONDS: &str = "fencegate_drain_seconds";
const COMMIT_SECONDS: &str = "fencegate_commit_seconds";
const COMMIT_BATCH_SIZE: &str = "fencegate_commit_batch_size";
const INFLIGHT: &str = "fencegate_inflight_writes";
const UNSETTLED: &str = "fencegate_unsettled_writes";
const WAITING: &str = "fencegate_waiting_writes";
const ZOMBIE_AGE: &str = "fencegate_zombie_age_seconds";
const UPSTREAM_SECONDS: &str = "fencegate_upstream_seconds";
const STORE_ERRORS: &str = "fencegate_store_errors_total";
const BUILD_INFO: &str = "fencegate_build_info";

/// The operations of the store that can fail, as `fencegate_store_errors_total` names them.
pub const STORE_OPS: [&str; 6] = ["read", "commit", "mark", "ledger", "reopen", "close"];

const SECONDS: [f64; 14] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
const AGES: [f64; 9] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0];
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];

/// All metrics of one gateway.
pub struct Metrics {
    handle: PrometheusHandle,
    /// The routes', in the order of the configuration.
    pub routes: Vec<Arc<RouteMetrics>>,
    /// For requests that no route takes.
    pub unrouted: Arc<RouteMetrics>,
    /// From the arrival of a raise until it is forwarded or refused.
    pub raise_seconds: Histogram,
    /// From a durable raise until its drain ended.
    pub drain_seconds: Histogram,
    /// One commit of the store, the sync included.
    pub commit_seconds: Histogram,
    /// Raises that one commit made durable.
    pub commit_batch_size: Histogram,
    /// From a forwarded request to the final response head, by upstream, in the configuration's order.
    pub upstream_seconds: Vec<Histogram>,
    store_errors: [Counter; STORE_OPS.len()],
}

/// The metrics of one route.
pub struct RouteMetrics {
    requests: [Counter; Decision::ALL.len()],
    rejections: [Counter; Decision::ALL.len()],
    /// Raises that were sealed.
    pub raises: Counter,
    /// Writes of unknown outcome that nothing waits for, since the upstream declares no settle.
    pub best_effort: Counter,
    /// Writes forwarded and not ended.
    pub inflight: Gauge,
    /// Writes of unknown outcome inside their settle.
    pub unsettled: Gauge,
    /// Writes that wait for a commit or a drain.
    pub waiting: Gauge,
    /// For each stale request: how long ago its token was superseded.
    pub zombie_age: Histogram,
}

impl RouteMetrics {
    /// Counts a request, once, under its decision.
    pub fn count(&self, decision: Decision) {
        self.requests[decision as usize].increment(1);
        if decision.is_refusal() {
            self.rejections[decision as usize].increment(1);
        }
    }

    fn new(route: &str) -> Self {
        let label = || route.to_owned();
        let series = |name: &'static str, key: &'static str, wanted: fn(Decision) -> bool| {
            Decision::ALL.map(|d| {
                if wanted(d) {
                    counter!(name, "route" => label(), key => d.word())
                } else {
                    Counter::noop()
                }
            })
        };
        Self {
            requests: series(REQUESTS, "decision", |_| true),
            rejections: series(REJECTIONS, "reason", Decision::is_refusal),
            raises: counter!(RAISES, "route" => label()),
            best_effort: counter!(BEST_EFFORT, "route" => label()),
            inflight: gauge!(INFLIGHT, "route" => label()),
            unsettled: gauge!(UNSETTLED, "route" => label()),
            waiting: gauge!(WAITING, "route" => label()),
            zombie_age: histogram!(ZOMBIE_AGE, "route" => label()),
        }
    }
}

impl Metrics {
    /// Registers every series for these routes and upstreams.
    ///
    /// # Errors
    /// Where the exporter refuses a bucket list; the lists are constants, so never in practice.
    pub fn new(routes: &[&str], upstreams: &[&str]) -> Result<Self, BuildError> {
        let full = |name: &str| Matcher::Full(name.to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets(&SECONDS)?
            .set_buckets_for_metric(full(ZOMBIE_AGE), &AGES)?
            .set_buckets_for_metric(full(COMMIT_BATCH_SIZE), &SIZES)?
            .build_recorder();
        let handle = recorder.handle();
        Ok(with_local_recorder(&recorder, || {
            Self::register(handle, routes, upstreams)
        }))
    }

    /// The page that Prometheus reads.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds the recorded samples into their buckets; to be called every few seconds, so that
    /// samples do not pile up where nobody scrapes.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Counts a failed operation of the store, one of [`STORE_OPS`].
    pub fn store_error(&self, op: &str) {
        if let Some(at) = STORE_OPS.iter().position(|o| *o == op) {
            self.store_errors[at].increment(1);
        }
    }

    fn register(handle: PrometheusHandle, routes: &[&str], upstreams: &[&str]) -> Self {
        describe();
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            handle,
            routes: routes
                .iter()
                .map(|r| Arc::new(RouteMetrics::new(r)))
                .collect(),
            unrouted: Arc::new(RouteMetrics::new("")),
            raise_seconds: histogram!(RAISE_SECONDS),
            drain_seconds: histogram!(DRAIN_SECONDS),
            commit_seconds: histogram!(COMMIT_SECONDS),
            commit_batch_size: histogram!(COMMIT_BATCH_SIZE),
            upstream_seconds: upstreams
                .iter()
                .map(|u| histogram!(UPSTREAM_SECONDS, "upstream" => (*u).to_owned()))
                .collect(),
            store_errors: STORE_OPS.map(|op| counter!(STORE_ERRORS, "op" => op)),
        }
    }
}

fn describe() {
    describe_counter!(REQUESTS, "requests by route and what became of them");
    describe_counter!(
        REJECTIONS,
        "requests that the gateway refused, by route and reason"
    );
    describe_counter!(RAISES, "fences raised");
    describe_counter!(
        BEST_EFFORT,
        "writes of unknown outcome that nothing waits for"
    );
    describe_histogram!(
        RAISE_SECONDS,
        Unit::Seconds,
        "arrival of a raise until it went or not"
    );
    describe_histogram!(
        DRAIN_SECONDS,
        Unit::Seconds,
        "durable raise until its drain ended"
    );
    describe_histogram!(
        COMMIT_SECONDS,
        Unit::Seconds,
        "one commit of the store with its sync"
    );
    describe_histogram!(COMMIT_BATCH_SIZE, "raises in one commit");
    describe_gauge!(INFLIGHT, "writes forwarded and not ended");
    describe_gauge!(UNSETTLED, "writes of unknown outcome inside their settle");
    describe_gauge!(WAITING, "writes that wait for a commit or a drain");
    describe_histogram!(
        ZOMBIE_AGE,
        Unit::Seconds,
        "age of a refused token's succession"
    );
    describe_histogram!(
        UPSTREAM_SECONDS,
        Unit::Seconds,
        "forwarded until the response head"
    );
    describe_counter!(STORE_ERRORS, "failed operations of the fence store");
    describe_gauge!(BUILD_INFO, "1, with the version as a label");
}
