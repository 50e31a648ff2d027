//! Chaos: real processes under load, killed, paused, cut off and answered wrong, as seeds say. Then
//! what the upstream saw is held against the invariants.
//!
//! `FENCEGATE_CHAOS_SEED=1,2` chooses the seeds, `FENCEGATE_CHAOS_KILLS` how often the gateway is killed
//! in each run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // tests wait in real time

mod support;

#[path = "chaos/blind.rs"]
mod blind;
#[path = "chaos/call.rs"]
mod call;
#[path = "chaos/calm.rs"]
mod calm;
#[path = "chaos/check.rs"]
mod check;
#[path = "chaos/holder.rs"]
mod holder;
#[path = "chaos/load.rs"]
mod load;
#[path = "chaos/plan.rs"]
mod plan;
#[path = "chaos/run.rs"]
mod run;

use run::{Counts, Ground};
use std::env;
use std::time::Instant;

const SEEDS: [u64; 3] = [1, 2, 3];
const KILLS: usize = 70;

/// How often a run of all seeds has to do each at least, for every hundred kills: a run without
/// them would show nothing.
const FLOOR: [(&str, u64); 14] = [
    ("kills", 100),
    ("kills at a raise", 15),
    ("kills within a start", 4),
    ("gateway pauses", 5),
    ("holder pauses", 20),
    ("zombie writes", 20),
    ("cut by the client", 50),
    ("cut by the upstream", 50),
    ("early answers", 10),
    ("unsettled answers", 30),
    ("late effects", 10),
    ("superseded", 10),
    ("refused as stale", 200),
    ("outcomes unknown", 50),
];

#[test]
fn no_fault_breaks_the_promise() {
    let seeds: Vec<u64> = env::var("FENCEGATE_CHAOS_SEED").map_or_else(
        |_| SEEDS.to_vec(),
        |text| text.split(',').map(|seed| seed.parse().unwrap()).collect(),
    );
    let kills = env::var("FENCEGATE_CHAOS_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let start = Instant::now();
    let mut counts = Counts::default();
    let mut violations = Vec::new();
    for seed in &seeds {
        let history = Ground::new(*seed).run(*seed, kills, &mut counts);
        let found = check::check(&history);
        violations.extend(found.iter().map(|found| format!("seed {seed}: {found}")));
    }
    let text: Vec<String> = counts
        .0
        .iter()
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    let seconds = start.elapsed().as_secs();
    println!("chaos: seeds {seeds:?}, {seconds} s: {}", text.join(", "));
    assert!(
        violations.is_empty(),
        "{} violations:\n{}",
        violations.len(),
        violations[..violations.len().min(10)].join("\n")
    );
    let done = counts.0["kills"];
    for (name, floor) in FLOOR {
        let count = counts.0.get(name).copied().unwrap_or(0);
        assert!(
            count * 100 >= floor * done,
            "only {count} {name}: too few to show anything"
        );
    }
}
