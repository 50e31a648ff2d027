//! One run: a gateway under load, whatever a seed does to it, and what is known of it afterwards.

use crate::call::{Call, Ended};
use crate::check::{History, Restart, Tokens, keys_of, token_of};
use crate::holder::Holder;
use crate::load::{Load, Locks};
use crate::plan::{self, Mix, PAIRS, Rng};
use crate::support::upstream::{End, Settles, UNSETTLED, Upstream};
use crate::support::{Client, Config, Gateway};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What every upstream here declares. As short as it can be and still leave room for late effects.
const SETTLE: Duration = Duration::from_millis(60);
const WRITERS: u64 = 14;
/// A run that has not done its share by then has failed.
const LONGEST: Duration = Duration::from_mins(2);

/// Faults and what came of them, by name.
#[derive(Default)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, more: usize) {
        self.0
            .entry(name)
            .or_default()
            .add_assign(u64::try_from(more).unwrap());
    }
}

/// A gateway and its upstream, ready for a run.
pub struct Ground {
    /// The gateway.
    pub gateway: Gateway,
    /// The upstream.
    pub upstream: Upstream,
    trigger: Arc<Trigger>,
}

/// Kills the gateway as soon as a head with a token that was not seen before reaches the upstream:
/// a fence that is not on disk by then is lost.
#[derive(Default)]
struct Trigger {
    armed_for: Mutex<Option<Pid>>,
    highest: [AtomicU64; PAIRS.len()],
}

/// The usual config for [`plan::PAIRS`], before an upstream on these two ports; the seed chooses
/// between ways to wait.
fn config(port: u16, strict_port: u16, seed: u64) -> Config {
    let few = if seed.is_multiple_of(3) { "6" } else { "64" };
    let preempt = if seed.is_multiple_of(2) {
        "false"
    } else {
        "true"
    };
    Config::new(port)
        .upstream("max_connections", few)
        .route("preempt", preempt)
        .upstream("settle", "\"60ms\"")
        .upstream("response_timeout", "\"300ms\"")
        .upstream("body_idle_timeout", "\"250ms\"")
        .route("drain_timeout", "\"700ms\"")
        .route("max_waiting", "6")
        .more(&format!(
            "[upstreams.strict]
            url = \"http://127.0.0.1:{strict_port}\"
            settle = \"60ms\"
            settle_incomplete = \"0s\"
            response_timeout = \"300ms\"
            body_idle_timeout = \"250ms\"
            [[routes]]
            name = \"reads\"
            path = \"/reads/{{*key}}\"
            upstream = \"strict\"
            resource = \"reads/{{key}}\"
            raise_on_read = true
            drain_timeout = \"700ms\"
            [[routes]]
            name = \"ends\"
            path = \"/ends/{{*key}}\"
            upstream = \"files\"
            resource = \"ends/{{key}}\"
            settled_at = \"response-end\"
            drain_timeout = \"700ms\"
            "
        ))
}

impl Ground {
    /// Starts both, for a run with that seed.
    pub fn new(seed: u64) -> Self {
        let trigger = Arc::new(Trigger::default());
        let told = Arc::clone(&trigger);
        let upstream = Upstream::new(move |seen| {
            let key = keys_of(seen)[0];
            let pair = PAIRS.iter().position(|pair| pair.contains(&key)).unwrap();
            let token = token_of(seen);
            if told.highest[pair].fetch_max(token, Ordering::SeqCst) < token
                && let Some(pid) = told.armed_for.lock().take()
            {
                kill_process(pid, Signal::KILL).unwrap();
            }
            plan::of(seen)
        });
        let settles = |incomplete| Settles {
            whole: SETTLE,
            incomplete,
        };
        let port = upstream.listen(settles(SETTLE));
        let strict_port = upstream.listen(settles(Duration::ZERO));
        Self {
            gateway: Gateway::start(config(port, strict_port, seed)),
            upstream,
            trigger,
        }
    }

    /// Runs a load and kills the gateway so many times under it.
    pub fn run(mut self, seed: u64, kills: usize, counts: &mut Counts) -> History {
        let load = Load::start(self.gateway.port, seed, WRITERS, Mix::Wild);
        let zombies = Zombies::start(self.gateway.port, &load.locks, seed);
        let mut rng = Rng(!seed);
        let (mut restarts, mut killed) = (Vec::new(), 0);
        let end = Instant::now() + LONGEST;
        while killed < kills {
            assert!(
                Instant::now() < end,
                "too slow: {killed} kills in {LONGEST:?}"
            );
            if rng.chance(30) {
                self.pause(&mut rng);
                counts.add("gateway pauses", 1);
            }
            if rng.chance(40) {
                if self.kill_at_raise() {
                    counts.add("kills at a raise", 1);
                }
            } else {
                thread::sleep(rng.millis(350));
            }
            self.gateway.kill();
            killed += 1;
            if rng.chance(15) {
                self.gateway.begin_again();
                thread::sleep(rng.millis(60));
                self.gateway.kill();
                killed += 1;
                counts.add("kills within a start", 1);
            }
            let by_then = self.highest_seen();
            self.gateway.start_again();
            restarts.push(Restart {
                seen: by_then,
                fences: fences(self.gateway.admin_port),
            });
        }
        counts.add("kills", killed);
        let (pauses, mut calls) = zombies.stop();
        counts.add("holder pauses", pauses);
        let stale =
            |call: &&Call| matches!(&call.end, Ended::Answer { word, .. } if word == "stale");
        counts.add("zombie writes", calls.iter().filter(stale).count());
        calls.extend(load.stop());
        self.upstream.wait_quiet();
        restarts.push(Restart {
            seen: self.highest_seen(),
            fences: fences(self.gateway.admin_port),
        });
        let history = History {
            seen: self.upstream.log().seen.clone(),
            calls,
            restarts,
        };
        tally(&history, counts);
        history
    }

    /// Pauses the whole gateway for a while. What it has in flight stays in flight meanwhile, and no
    /// other process takes over, so its promise holds.
    fn pause(&self, rng: &mut Rng) {
        thread::sleep(rng.millis(60));
        kill_process(self.gateway.pid(), Signal::STOP).unwrap();
        thread::sleep(rng.millis(150));
        kill_process(self.gateway.pid(), Signal::CONT).unwrap();
    }

    /// Lets the next raise that reaches the upstream kill the gateway. Says whether one came in time.
    fn kill_at_raise(&self) -> bool {
        *self.trigger.armed_for.lock() = Some(self.gateway.pid());
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            if self.trigger.armed_for.lock().is_none() {
                return true;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.trigger.armed_for.lock().take().is_none()
    }

    /// The highest token of which the upstream has seen a byte, for each resource.
    pub fn highest_seen(&self) -> Tokens {
        let mut highest = Tokens::new();
        let log = self.upstream.log();
        let heads = log.seen.iter().filter(|seen| token_of(seen) > 0);
        for seen in heads {
            for key in keys_of(seen) {
                let token = highest.entry(key.to_owned()).or_default();
                *token = token_of(seen).max(*token);
            }
        }
        highest
    }
}

/// Holders that are paused in turn.
struct Zombies {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<(usize, Vec<Call>)>>,
}

impl Zombies {
    fn start(port: u16, locks: &Arc<Locks>, seed: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let start = |n: u64| Holder::start(port, n, usize::try_from(n).unwrap(), seed + n);
        let mut holders: Vec<Holder> = (0..3).map(start).collect();
        let (locks, ended, mut rng) = (Arc::clone(locks), Arc::clone(&over), Rng(seed << 8));
        let thread = thread::spawn(move || {
            let mut pauses = 0;
            while !ended.load(Ordering::Relaxed) {
                let at = usize::try_from(rng.below(3)).unwrap();
                holders[at].turn_zombie(&locks, &mut rng);
                pauses += 1;
            }
            let calls = holders.into_iter().flat_map(Holder::stop);
            (pauses, calls.collect())
        });
        Self {
            over,
            thread: Some(thread),
        }
    }

    /// Lets them end: how often one was paused, and what they know of their requests.
    fn stop(mut self) -> (usize, Vec<Call>) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Zombies {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // none is to stay paused
        }
    }
}

/// The fences that the gateway has, as its admin listener says.
pub fn fences(admin_port: u16) -> Tokens {
    let path = "/api/v1/fences?limit=1000";
    let answer = Client::connect(admin_port).request("GET", path, &[], b"");
    answer.answered(200);
    let page: fencegate::admin::Page = serde_json::from_slice(&answer.body).unwrap();
    let fences = page.fences.into_iter();
    fences
        .map(|fence| (fence.key, fence.token.parse().unwrap()))
        .collect()
}

/// Counts what happened in a run.
fn tally(history: &History, counts: &mut Counts) {
    counts.add("requests", history.calls.len());
    counts.add("requests at the upstream", history.seen.len());
    for call in &history.calls {
        counts.add(
            match &call.end {
                Ended::Answer { own: false, .. } => "answered",
                Ended::Answer { word, .. } => match &**word {
                    "stale" => "refused as stale",
                    "superseded" => "superseded",
                    "missing" => "refused without a token",
                    "draining" => "drains that timed out",
                    "busy" => "refused as busy",
                    "outcome-unknown" => "outcomes unknown",
                    "unsent" => "unsent",
                    _ => "other refusals",
                },
                Ended::Left => "cut by the client",
                Ended::Lost | Ended::Unsent => "lost",
            },
            1,
        );
    }
    for seen in &history.seen {
        let plan = plan::of(seen);
        match plan.end {
            End::Close | End::Reset => counts.add("cut by the upstream", 1),
            End::Answer(status) if plan.early && status < 500 => counts.add("early answers", 1),
            End::Answer(status) if UNSETTLED.contains(&status) => {
                counts.add("unsettled answers", 1);
            }
            End::Answer(500) => counts.add("answered 500", 1),
            End::Answer(_) if plan.hold > Duration::from_millis(300) => {
                counts.add("silent upstream", 1);
            }
            _ => {}
        }
        if seen.applied.is_some() {
            counts.add("effects", 1);
        }
        if seen.late && seen.method != "GET" {
            counts.add("late effects", 1);
        }
        if seen.whole_at.is_none() {
            counts.add("broken off at the upstream", 1);
        }
    }
}
