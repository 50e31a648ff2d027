//! The metrics: their names, what they mean, and the handles through which they are counted.
//!
//! Every series exists from the start, at 0. Labels come from the configuration only, never from a
//! request, so that no sender can add a series.

use super::Decision;
use super::reach::Reaches;
use prometheus::core::Collector;
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};
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
const GUARD_CONFLICTS: &str = "fencegate_guard_conflicts_total";
const GUARD_GAPS: &str = "fencegate_guard_gaps_total";
const GUARD_QUESTIONS: &str = "fencegate_guard_questions_total";
const STRENGTH: &str = "fencegate_route_strength";
const UPSTREAM_SECONDS: &str = "fencegate_upstream_seconds";
const UPSTREAM_UP: &str = "fencegate_upstream_up";
const STORE_ERRORS: &str = "fencegate_store_errors_total";
const BAD_REQUESTS: &str = "fencegate_bad_requests_total";
const REFUSED_CONNECTIONS: &str = "fencegate_refused_connections_total";
const ACCESS_LOG_DROPPED: &str = "fencegate_access_log_dropped_total";
const EVENTS_DROPPED: &str = "fencegate_events_dropped_total";
const SPANS_DROPPED: &str = "fencegate_spans_dropped_total";
const RELOADS: &str = "fencegate_config_reloads_total";
const BUILD_INFO: &str = "fencegate_build_info";

/// The operations of the store that can fail, as `fencegate_store_errors_total` names them.
pub const STORE_OPS: [&str; 6] = ["read", "commit", "mark", "ledger", "reopen", "close"];

/// How strong a route's promise is, as `fencegate_route_strength` names it.
pub const STRENGTHS: [&str; 4] = ["guarded", "drained", "best-effort", "none"];

/// Why bytes from a client were no request, as `fencegate_bad_requests_total` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// The head is not HTTP/1.1.
    Head,
    /// The head is too large, or has too many headers.
    TooLarge,
    /// The connection broke the rules of HTTP/2.
    Http2,
    /// The TLS handshake failed.
    Tls,
}

impl BadRequest {
    const ALL: [(Self, &str); 4] = [
        (Self::Head, "head"),
        (Self::TooLarge, "too-large"),
        (Self::Http2, "http2"),
        (Self::Tls, "tls"),
    ];
}

const SECONDS: [f64; 14] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];
const AGES: [f64; 9] = [0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 86400.0];
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0];

/// All metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    families: Families,
    upstream_seconds: HistogramVec,
    /// Which upstreams can be reached.
    pub reach: Reaches,
    /// For requests that no route takes.
    pub unrouted: Arc<RouteMetrics>,
    /// From the arrival of a raise until it is forwarded or refused, in seconds.
    pub raise_seconds: Histogram,
    /// From a durable raise until its drain ended, in seconds.
    pub drain_seconds: Histogram,
    /// One commit of the store, the sync included, in seconds.
    pub commit_seconds: Histogram,
    /// Raises that one commit made durable.
    pub commit_batch_size: Histogram,
    store_errors: [IntCounter; STORE_OPS.len()],
    bad_requests: [IntCounter; BadRequest::ALL.len()],
    /// For want of room in all, and for one client.
    refused_connections: [IntCounter; 2],
    /// Lines of the access log that were not written.
    pub access_log_dropped: IntCounter,
    /// What was seen, and found no room among the events.
    pub events_dropped: IntCounter,
    /// Spans that were not delivered.
    pub spans_dropped: IntCounter,
    /// Configurations that were taken up, and those that were not.
    pub reloads: [IntCounter; 2],
}

/// The metrics of one route.
pub struct RouteMetrics {
    requests: [IntCounter; Decision::ALL.len()],
    /// One for each decision that is a refusal.
    rejections: [Option<IntCounter>; Decision::ALL.len()],
    /// Raises that were sealed.
    pub raises: IntCounter,
    /// Writes of unknown outcome that nothing waits for, since the upstream declares no settle.
    pub best_effort: IntCounter,
    /// Writes forwarded and not ended.
    pub inflight: IntGauge,
    /// Writes of unknown outcome inside their settle.
    pub unsettled: IntGauge,
    /// Writes that wait for a commit or a drain.
    pub waiting: IntGauge,
    /// For each stale request: how long ago its token was superseded, in seconds.
    pub zombie_age: Histogram,
    /// Conditions that did not hold since somebody wrote past the gateway.
    pub guard_conflicts: IntCounter,
    /// Objects for which the guard does not close the window, by occasion.
    pub guard_gaps: IntCounter,
    /// Times that an object's state was asked for.
    pub guard_questions: IntCounter,
    /// One for each strength: 1 for the route's own, else 0.
    strength: [IntGauge; STRENGTHS.len()],
}

/// The families whose series have a route as their label.
struct Families {
    requests: IntCounterVec,
    rejections: IntCounterVec,
    raises: IntCounterVec,
    best_effort: IntCounterVec,
    inflight: IntGaugeVec,
    unsettled: IntGaugeVec,
    waiting: IntGaugeVec,
    zombie_age: HistogramVec,
    guard_conflicts: IntCounterVec,
    guard_gaps: IntCounterVec,
    guard_questions: IntCounterVec,
    strength: IntGaugeVec,
}

impl Families {
    fn new(all: &Registry) -> Result<Self, Error> {
        let counters = |name, help, labels: &[&str]| {
            added(all, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges = |name, help| added(all, IntGaugeVec::new(Opts::new(name, help), &["route"]));
        Ok(Self {
            requests: counters(
                REQUESTS,
                "requests by route and what became of them",
                &["route", "decision"],
            )?,
            rejections: counters(
                REJECTIONS,
                "requests that the gateway refused, by route and reason",
                &["route", "reason"],
            )?,
            raises: counters(RAISES, "fences raised", &["route"])?,
            best_effort: counters(
                BEST_EFFORT,
                "writes of unknown outcome that nothing waits for",
                &["route"],
            )?,
            guard_conflicts: counters(
                GUARD_CONFLICTS,
                "objects that were written past the gateway",
                &["route"],
            )?,
            guard_gaps: counters(
                GUARD_GAPS,
                "objects for which the guard does not close the window",
                &["route"],
            )?,
            guard_questions: counters(
                GUARD_QUESTIONS,
                "times that an object's state was asked for",
                &["route"],
            )?,
            strength: added(
                all,
                IntGaugeVec::new(
                    Opts::new(STRENGTH, "1 for the strength of the route's promise"),
                    &["route", "strength"],
                ),
            )?,
            inflight: gauges(INFLIGHT, "writes forwarded and not ended")?,
            unsettled: gauges(UNSETTLED, "writes of unknown outcome inside their settle")?,
            waiting: gauges(WAITING, "writes that wait for a commit or a drain")?,
            zombie_age: added(
                all,
                HistogramVec::new(
                    HistogramOpts::new(
                        ZOMBIE_AGE,
                        "age of a refused token's succession in seconds",
                    )
                    .buckets(AGES.to_vec()),
                    &["route"],
                ),
            )?,
        })
    }

    fn of(&self, route: &str) -> RouteMetrics {
        let decided = |d: Decision| self.requests.with_label_values(&[route, d.word()]);
        let rejected = |d: Decision| {
            d.is_refusal()
                .then(|| self.rejections.with_label_values(&[route, d.word()]))
        };
        RouteMetrics {
            requests: Decision::ALL.map(decided),
            rejections: Decision::ALL.map(rejected),
            raises: self.raises.with_label_values(&[route]),
            best_effort: self.best_effort.with_label_values(&[route]),
            inflight: self.inflight.with_label_values(&[route]),
            unsettled: self.unsettled.with_label_values(&[route]),
            waiting: self.waiting.with_label_values(&[route]),
            zombie_age: self.zombie_age.with_label_values(&[route]),
            guard_conflicts: self.guard_conflicts.with_label_values(&[route]),
            guard_gaps: self.guard_gaps.with_label_values(&[route]),
            guard_questions: self.guard_questions.with_label_values(&[route]),
            strength: STRENGTHS.map(|word| self.strength.with_label_values(&[route, word])),
        }
    }
}

impl RouteMetrics {
    /// Counts a request, once, under its decision.
    pub fn count(&self, decision: Decision) {
        self.requests[decision as usize].inc();
        if let Some(rejections) = &self.rejections[decision as usize] {
            rejections.inc();
        }
    }
}

impl RouteMetrics {
    /// Says how strong the route's promise is now, in one of [`STRENGTHS`].
    pub fn is(&self, strength: &str) {
        for (gauge, word) in self.strength.iter().zip(STRENGTHS) {
            gauge.set(i64::from(word == strength));
        }
    }
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// Where a name is registered twice; the names are constants, so never in practice.
    pub fn new() -> Result<Self, Error> {
        let registry = Registry::new();
        let all = &registry;
        let seconds = |name, help| added(all, Histogram::with_opts(in_seconds(name, help)));
        let families = Families::new(all)?;
        let sizes = HistogramOpts::new(COMMIT_BATCH_SIZE, "raises in one commit");
        let upstream_seconds = in_seconds(UPSTREAM_SECONDS, "forwarded until the response head");
        let upstream_seconds = added(all, HistogramVec::new(upstream_seconds, &["upstream"]))?;
        let up = Opts::new(
            UPSTREAM_UP,
            "0 where connecting to the upstream failed last",
        );
        let up = added(all, IntGaugeVec::new(up, &["upstream"]))?;
        let errors = Opts::new(STORE_ERRORS, "failed operations of the fence store");
        let errors = added(all, IntCounterVec::new(errors, &["op"]))?;
        let bad = Opts::new(
            BAD_REQUESTS,
            "what clients sent that was no request, by reason",
        );
        let bad = added(all, IntCounterVec::new(bad, &["reason"]))?;
        let full = Opts::new(
            REFUSED_CONNECTIONS,
            "connections for which there was no room",
        );
        let full = added(all, IntCounterVec::new(full, &["reason"]))?;
        let dropped = IntCounter::new(
            ACCESS_LOG_DROPPED,
            "lines of the access log that were not written",
        );
        let reloads = Opts::new(RELOADS, "configurations read again, by what came of it");
        let reloads = added(all, IntCounterVec::new(reloads, &["result"]))?;
        let info = Opts::new(BUILD_INFO, "1, with the version as a label")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        added(all, Gauge::with_opts(info))?.set(1.0);
        Ok(Self {
            unrouted: Arc::new(families.of("")),
            raise_seconds: seconds(RAISE_SECONDS, "arrival of a raise until it went or not")?,
            drain_seconds: seconds(DRAIN_SECONDS, "durable raise until its drain ended")?,
            commit_seconds: seconds(COMMIT_SECONDS, "one commit of the store with its sync")?,
            commit_batch_size: added(all, Histogram::with_opts(sizes.buckets(SIZES.to_vec())))?,
            upstream_seconds,
            reach: Reaches::new(up),
            store_errors: STORE_OPS.map(|op| errors.with_label_values(&[op])),
            bad_requests: BadRequest::ALL.map(|(_, reason)| bad.with_label_values(&[reason])),
            refused_connections: ["all", "client"].map(|reason| full.with_label_values(&[reason])),
            access_log_dropped: added(all, dropped)?,
            events_dropped: added(
                all,
                IntCounter::new(
                    EVENTS_DROPPED,
                    "sightings that found no room among the events",
                ),
            )?,
            spans_dropped: added(all, IntCounter::new(SPANS_DROPPED, "spans not delivered"))?,
            reloads: ["ok", "failed"].map(|result| reloads.with_label_values(&[result])),
            families,
            registry,
        })
    }

    /// The series of a route of that name, each at 0 where they are new.
    #[must_use]
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        Arc::new(self.families.of(name))
    }

    /// For an upstream of that name: from a forwarded request to the final response head, in seconds.
    #[must_use]
    pub fn upstream_seconds(&self, name: &str) -> Histogram {
        self.upstream_seconds.with_label_values(&[name])
    }

    /// The page that Prometheus reads.
    #[must_use]
    pub fn render(&self) -> String {
        // It fails only for a name that is no name; ours are constants.
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_default()
    }

    /// Counts a connection for which there was no room: for its client alone, else for any.
    pub fn refused_connection(&self, for_client: bool) {
        self.refused_connections[usize::from(for_client)].inc();
    }

    /// Counts bytes from a client that were no request, and that no route knows of.
    pub fn bad_request(&self, why: BadRequest) {
        self.bad_requests[why as usize].inc();
    }

    /// Counts a failed operation of the store, one of [`STORE_OPS`].
    pub fn store_error(&self, op: &str) {
        if let Some(at) = STORE_OPS.iter().position(|o| *o == op) {
            self.store_errors[at].inc();
        }
    }
}

fn in_seconds(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, format!("{help}, in seconds")).buckets(SECONDS.to_vec())
}

fn added<C: Collector + Clone + 'static>(
    all: &Registry,
    made: Result<C, Error>,
) -> Result<C, Error> {
    let made = made?;
    all.register(Box::new(made.clone()))?;
    Ok(made)
}
