//! The rules of the gate, each against many random histories. A test is named after its rule.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod edges;
mod shell;

use edges::ask;
use fencegate::fence::crossing::{self, Crossing};
use fencegate::fence::{Accept, Effect, Kind, Refusal, Rules, WriteId};
use proptest::prelude::*;
use shell::{
    Event, Fate, GATES, MAX_WAITING, Request, Shell, Traffic, events, gate, requests, rules, token,
};

const ONE_GATE: Traffic = Traffic {
    both: false,
    newer: true,
    tokenless: true,
};
const TWO_GATES: Traffic = Traffic {
    both: true,
    ..ONE_GATE
};

fn starts() -> impl Strategy<Value = ([u64; GATES], bool, bool)> {
    ([0..4u64, 0..4u64], any::<bool>(), prop::bool::weighted(0.3))
}

fn run(start: ([u64; GATES], bool, bool), events: &[Event]) -> Shell {
    let (fences, drained, predecessor) = start;
    let mut shell = Shell::new(fences, drained, predecessor);
    for event in events {
        shell.step(event);
    }
    shell
}

/// What one gate should say, from what the shell saw.
fn verdict(shell: &Shell, request: &Request) -> Result<(), Refusal> {
    let gate = &shell.gates[0];
    let shown = request.tokens[0].expect("it touches the first gate");
    let fence = gate.fence();
    if shown.is_none() {
        return if fence.is_none() {
            Ok(())
        } else {
            Err(Refusal::Missing)
        };
    }
    if shown < fence {
        return Err(Refusal::Stale);
    }
    if shown > fence {
        return Ok(());
    }
    let on_first = || {
        let all = shell.requests.values();
        all.filter_map(|(other, fate)| other.tokens[0].map(|token| (token, other.kind, *fate)))
    };
    let effective = on_first().any(|(token, kind, fate)| {
        let counts = matches!(
            fate,
            Fate::Waiting | Fate::Flight | Fate::Settled { unsent: false }
        );
        token == fence && kind == Kind::Write && counts
    });
    let newer = request.rules.accept == Accept::Newer && request.kind == Kind::Write;
    if newer && (effective || shell.origins[0] == fence) {
        return Err(Refusal::Replayed);
    }
    let (on_disk, drained) = shell.disk[0];
    let lower = on_first().any(|(token, _, fate)| fate == Fate::Flight && token < fence);
    let unknown = shell.predecessor && !(shell.origins[0] == fence && drained);
    let waits = on_disk < fence || lower || unknown;
    if waits && shell.waiting_at(0) >= MAX_WAITING {
        return Err(Refusal::Busy);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn invariants_hold_at_one_gate(start in starts(), events in events(ONE_GATE)) {
        run(start, &events);
    }

    #[test]
    fn invariants_hold_at_several_gates(start in starts(), events in events(TWO_GATES)) {
        run(start, &events);
    }

    #[test]
    fn waiting_ends_at_one_gate(start in starts(), events in events(ONE_GATE)) {
        let mut shell = run(start, &events);
        shell.finish();
        prop_assert_eq!(shell.having(Fate::Waiting), vec![]);
        prop_assert!(shell.gates.iter().all(|gate| gate.is_idle() || gate.fence() > gate.durable()));
    }

    #[test]
    fn waiting_ends_at_several_gates(start in starts(), events in events(TWO_GATES)) {
        let mut shell = run(start, &events);
        shell.finish();
        prop_assert_eq!(shell.having(Fate::Waiting), vec![]);
    }

    #[test]
    fn the_rules_decide_at_one_gate(
        start in starts(),
        events in events(ONE_GATE),
        request in requests(ONE_GATE),
    ) {
        // A gate that was loaded again has forgotten that its token was not used.
        let events: Vec<_> = events.into_iter().filter(|e| !matches!(e, Event::Reload)).collect();
        let mut shell = run(start, &events);
        let expected = verdict(&shell, &request);
        let (_, said) = shell.arrive(&request);
        prop_assert_eq!(said.map(|_| ()), expected);
    }

    #[test]
    fn waiting_is_bounded_but_never_for_a_raise(
        start in starts(),
        events in events(TWO_GATES),
        request in requests(TWO_GATES),
    ) {
        let mut shell = run(start, &events);
        let raises = request.touches().all(|(at, token)| token > shell.gates[at].fence());
        let (_, said) = shell.arrive(&request);
        prop_assert!(!raises || said.is_ok());
    }

    #[test]
    fn a_raise_supersedes_whoever_waits(start in starts(), events in events(ONE_GATE)) {
        let mut shell = run(start, &events);
        let waited = shell.having(Fate::Waiting);
        let raise = Request { tokens: [Some(token(99)), None], kind: Kind::Write, rules: rules() };
        prop_assert!(shell.arrive(&raise).1.is_ok());
        for id in waited {
            prop_assert_eq!(shell.requests[&id].1, Fate::Refused(Refusal::Superseded));
        }
        prop_assert_eq!(shell.gates[0].fence(), token(99));
    }

    #[test]
    fn poison_a_raise_too_far_leaves_no_trace(
        start in starts(),
        events in events(ONE_GATE),
        shown in 1..20u64,
        bound in 0..10u64,
    ) {
        let shell = run(start, &events);
        let mut gate = shell.gates[0].clone();
        let fence = gate.fence().sequence();
        let rules = Rules { max_advance: Some(bound), first_max: Some(bound), ..rules() };
        let before = gate.clone();
        let said = ask(&mut gate, 1000, shown, &rules);
        let too_far = shown > fence && shown - fence > bound;
        prop_assert_eq!(said == Err(Refusal::TooFar), too_far);
        prop_assert!(!too_far || gate == before);
    }

    #[test]
    fn several_resources_are_all_checked_before_any_seal(
        start in starts(),
        events in events(TWO_GATES),
        request in requests(TWO_GATES),
    ) {
        let mut shell = run(start, &events);
        let before = shell.gates.clone();
        // The shell itself asserts that a refusal changes nothing; here one gate refuses for sure.
        let stale = Request {
            tokens: [Some(token(99)), request.tokens[1]],
            ..request
        };
        if let (_, Err(_)) = shell.arrive(&stale) {
            prop_assert_eq!(shell.gates, before);
        } else {
            prop_assert!(shell.gates[0].fence() == token(99));
        }
    }

    #[test]
    fn eviction_an_idle_gate_loaded_again_behaves_the_same(
        start in starts(),
        before in events(Traffic { newer: false, ..ONE_GATE }),
        after in events(Traffic { newer: false, ..ONE_GATE }),
    ) {
        let mut shells = [run(start, &before), run(start, &before)];
        for shell in &mut shells {
            shell.finish();
        }
        shells[1].step(&Event::Reload);
        for event in after {
            for shell in &mut shells {
                shell.step(&event);
            }
            let [kept, loaded] = &shells;
            let fates = |shell: &Shell| shell.requests.values().map(|r| r.1).collect::<Vec<_>>();
            prop_assert_eq!(fates(kept), fates(loaded));
            prop_assert_eq!(kept.gates[0].fence(), loaded.gates[0].fence());
            prop_assert_eq!(kept.gates[0].durable(), loaded.gates[0].durable());
        }
    }

    #[test]
    fn mode_observe_never_waits_and_says_what_enforce_would(
        fence in 0..5u64,
        shown in prop::collection::vec(1..8u64, 1..20),
    ) {
        let mut gate = gate(fence, true, false);
        for (id, shown) in (0..).zip(shown) {
            let before = gate.fence();
            let rules = &rules();
            let crossing = Crossing { gate: &mut gate, token: token(shown), rules };
            let (said, raised) =
                crossing::observe(&mut [crossing], WriteId(id), Kind::Write, None);
            let stale = token(shown) < before;
            prop_assert_eq!(said, if stale { Err(Refusal::Stale) } else { Ok(()) });
            prop_assert_eq!(raised, token(shown) > before);
            prop_assert_eq!(gate.fence(), before.max(token(shown)));
            prop_assert!(!gate.awaits(WriteId(id)));
            for effect in gate.take_effects() {
                prop_assert!(matches!(effect, Effect::Commit { .. }), "{:?}", effect);
            }
        }
        prop_assert!(!gate.is_idle());
    }
}
