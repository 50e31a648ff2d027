//! Every interleaving of a few writers, two gates, a disk and an upstream, with a crash and a failed
//! commit: the invariants I1 to I6 hold in all of them, and each falls when its rule is taken out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod action;
mod checks;
mod driver;
mod world;

use checks::{
    ALL_OR_NONE, CUT, DRAINED, DRAINING, DURABLE, FAIL_CLOSED, FENCE, MOVED, ORDER, ORPHANED,
    OUTLIVED, PROGRESS, PROMISE, SEAL, STORE, SUPERSEDED, TRUTH,
};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use world::{Request, Rule, Setup};

/// Three writers with three tokens, the second of which moves between the two resources.
fn three_writers() -> Setup {
    Setup {
        requests: vec![Request::first(1), Request::both(2), Request::second(3)],
        origins: [0, 0],
        crashes: 1,
        commit_failures: 1,
        retries: true,
        evictions: true,
        without: None,
        shows: &[
            DRAINING, DRAINED, CUT, SUPERSEDED, STORE, MOVED, ORPHANED, OUTLIVED,
        ],
    }
}

fn explore(name: &str, setup: Setup) {
    let checker = setup.checker().spawn_bfs().join();
    println!(
        "{name}: {} states, {} steps, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
    assert!(checker.is_done(), "{name}: not every state was visited");
}

/// Takes one rule out, and asserts that the properties which rest on it fall.
fn breaks(rule: Rule, setup: Setup, properties: &[&'static str]) {
    let setup = Setup {
        without: Some(rule),
        shows: &[],
        ..setup
    };
    let wanted: BTreeSet<_> = properties.iter().copied().collect();
    let checker = setup
        .checker()
        .finish_when(HasDiscoveries::AllOf(wanted))
        .spawn_bfs()
        .join();
    for property in properties {
        let path = checker.assert_any_discovery(property);
        println!(
            "without {rule:?}, {property}: broken by {:?}",
            path.into_actions()
        );
    }
}

#[test]
fn a_move_between_two_writers() {
    explore("a move between two writers", three_writers());
}

#[test]
fn a_move_among_four_writers() {
    explore(
        "a move among four writers",
        Setup {
            requests: vec![
                Request::first(1),
                Request::second(1),
                Request::both(2),
                Request::first(3),
                Request::second(3),
            ],
            commit_failures: 0,
            evictions: false,
            shows: &[
                DRAINING, DRAINED, CUT, SUPERSEDED, MOVED, ORPHANED, OUTLIVED,
            ],
            ..three_writers()
        },
    );
}

#[test]
fn three_moves() {
    explore(
        "three moves",
        Setup {
            requests: vec![
                Request::both(1),
                Request::both(2),
                Request::both(3),
                Request::first(2),
            ],
            ..three_writers()
        },
    );
}

#[test]
fn one_holder_with_several_writes() {
    explore(
        "one holder with several writes",
        Setup {
            requests: vec![
                Request::first(1),
                Request::both(2),
                Request::first(2),
                Request::both(2),
                Request::second(3),
            ],
            origins: [1, 0],
            evictions: false,
            ..three_writers()
        },
    );
}

#[test]
fn a_read_that_raises() {
    explore(
        "a read that raises",
        Setup {
            requests: vec![
                Request::both(1),
                Request::first(2).reading(),
                Request::both(2),
                Request::first(3).uncuttable(),
                Request::first(3).reading(),
            ],
            origins: [1, 1],
            ..three_writers()
        },
    );
}

#[test]
fn writes_without_a_token() {
    explore(
        "writes without a token",
        Setup {
            requests: vec![
                Request::first(0),
                Request::both(0),
                Request::both(1),
                Request::both(2).uncuttable(),
            ],
            ..three_writers()
        },
    );
}

#[test]
fn two_crashes_in_a_row() {
    explore(
        "two crashes in a row",
        Setup {
            requests: vec![
                Request::first(1),
                Request::first(2),
                Request::both(2),
                Request::first(3),
            ],
            origins: [1, 1],
            crashes: 2,
            commit_failures: 2,
            ..three_writers()
        },
    );
}

#[test]
fn without_the_seal_a_lower_write_starts_late() {
    breaks(Rule::Seal, three_writers(), &[SEAL]);
}

#[test]
fn without_the_commit_a_write_goes_out_before_its_fence() {
    breaks(Rule::Commit, three_writers(), &[DURABLE, PROMISE]);
}

#[test]
fn without_the_drain_a_zombie_overtakes() {
    breaks(Rule::Drain, three_writers(), &[ORDER, PROMISE]);
}

#[test]
fn without_the_settle_a_lost_write_comes_late() {
    breaks(Rule::Settle, three_writers(), &[ORDER, PROMISE]);
}

#[test]
fn without_the_drained_mark_a_crash_forgets_the_drain() {
    breaks(Rule::DrainedMark, three_writers(), &[ORDER, PROMISE]);
}

#[test]
fn without_the_wait_after_a_crash_an_orphan_comes_late() {
    breaks(Rule::UncleanStart, three_writers(), &[ORDER, PROMISE]);
}

#[test]
fn without_agreement_a_move_goes_out_by_halves() {
    breaks(Rule::Agreement, three_writers(), &[ALL_OR_NONE, ORDER]);
}

#[test]
fn without_failing_closed_a_failed_commit_lets_a_write_out() {
    breaks(Rule::FailClosed, three_writers(), &[FAIL_CLOSED, TRUTH]);
}

#[test]
fn without_staying_in_memory_a_gate_forgets_its_seal() {
    breaks(Rule::Eviction, three_writers(), &[FENCE, PROGRESS]);
}
