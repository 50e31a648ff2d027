//! Single histories at the edges of the rules. A test is named after its rule.

use crate::shell::{MAX_WAITING, gate, rules, token};
use fencegate::fence::crossing::{self, Crossing};
use fencegate::fence::{Accept, Effect, Gate, Kind, Missing, Refusal, Rules, Token, WriteId};

/// One write asks one gate: whether it is forwarded at once.
pub fn ask(gate: &mut Gate, id: u64, shown: u64, rules: &Rules) -> Result<bool, Refusal> {
    let token = token(shown);
    let entry = crossing::arrive(
        &mut [Crossing { gate, token, rules }],
        WriteId(id),
        Kind::Write,
    );
    entry.map(|entry| entry.forwarded)
}

#[test]
fn missing_allow_until_fenced_ends_with_the_first_token() {
    let rules = Rules {
        missing: Missing::AllowUntilFenced,
        ..rules()
    };
    let mut gate = gate(0, false, false);
    assert_eq!(ask(&mut gate, 1, 0, &rules), Ok(true));
    assert_eq!(ask(&mut gate, 2, 5, &rules), Ok(false));
    assert_eq!(ask(&mut gate, 3, 0, &rules), Err(Refusal::Missing));
    gate.take_effects();
    gate.committed(token(5), false);
    assert_eq!(
        gate.take_effects(),
        [Effect::Cut(WriteId(1))],
        "it takes part in the drain"
    );
}

#[test]
fn accept_newer_refuses_a_token_whose_effect_a_later_unsent_write_shared() {
    let newer = Rules {
        accept: Accept::Newer,
        ..rules()
    };
    let mut gate = gate(4, true, false);
    assert_eq!(ask(&mut gate, 1, 5, &rules()), Ok(false));
    gate.committed(token(5), true);
    let crossing = Crossing {
        gate: &mut gate,
        token: token(5),
        rules: &rules(),
    };
    assert!(crossing::proceed(&mut [crossing], WriteId(1)));
    assert_eq!(ask(&mut gate, 2, 5, &rules()), Ok(true));
    gate.settled(WriteId(1), false);
    gate.settled(WriteId(2), true);
    assert_eq!(ask(&mut gate, 3, 5, &newer), Err(Refusal::Replayed));
}

#[test]
fn accept_newer_admits_again_a_token_whose_only_write_was_unsent() {
    let newer = Rules {
        accept: Accept::Newer,
        ..rules()
    };
    let mut gate = gate(4, true, false);
    assert_eq!(ask(&mut gate, 1, 4, &newer), Err(Refusal::Replayed));
    assert_eq!(ask(&mut gate, 2, 5, &newer), Ok(false));
    assert_eq!(ask(&mut gate, 3, 5, &newer), Err(Refusal::Replayed));
    gate.committed(token(5), true);
    let crossing = Crossing {
        gate: &mut gate,
        token: token(5),
        rules: &rules(),
    };
    assert!(crossing::proceed(&mut [crossing], WriteId(2)));
    assert_eq!(ask(&mut gate, 4, 5, &newer), Err(Refusal::Replayed));
    gate.settled(WriteId(2), true);
    assert_eq!(ask(&mut gate, 5, 5, &newer), Ok(true));
    gate.settled(WriteId(5), false);
    assert_eq!(ask(&mut gate, 6, 5, &newer), Err(Refusal::Replayed));
}

#[test]
fn waiting_is_bounded_at_an_open_gate_too() {
    let usual = rules();
    let mut open = gate(5, true, false);
    for id in 0..10 {
        let mut closed = gate(4, true, false);
        let mut crossings = [
            Crossing {
                gate: &mut open,
                token: token(5),
                rules: &usual,
            },
            Crossing {
                gate: &mut closed,
                token: token(5),
                rules: &usual,
            },
        ];
        let said = crossing::arrive(&mut crossings, WriteId(id), Kind::Write);
        assert_eq!(
            said.is_ok(),
            id < MAX_WAITING as u64,
            "each waits for the other gate"
        );
        assert_eq!(said.is_err(), closed == gate(4, true, false));
    }
}

#[test]
fn several_resources_are_judged_each_by_its_own_rules() {
    let lax = Rules {
        missing: Missing::Allow,
        ..rules()
    };
    let bounded = Rules {
        max_advance: Some(10),
        ..rules()
    };
    for (shown, refusal) in [(0, Refusal::Missing), (100, Refusal::TooFar)] {
        let (mut a, mut b) = (gate(4, true, false), gate(4, true, false));
        let mut crossings = [
            Crossing {
                gate: &mut a,
                token: token(shown),
                rules: &lax,
            },
            Crossing {
                gate: &mut b,
                token: token(shown),
                rules: &bounded,
            },
        ];
        let said = crossing::arrive(&mut crossings, WriteId(1), Kind::Write);
        assert_eq!(said, Err(refusal));
        assert_eq!(a, gate(4, true, false), "nothing was sealed");
    }
}

#[test]
fn missing_token_drains_as_token_0_after_a_wait_too() {
    let rules = Rules {
        missing: Missing::Allow,
        ..rules()
    };
    // It is not a write of the fence's holder.
    let newer = Rules {
        accept: Accept::Newer,
        ..rules.clone()
    };
    let mut raised = gate(4, true, false);
    raised.reserve(WriteId(2), token(5), Kind::Read, &rules);
    raised.reserve(WriteId(3), Token::NONE, Kind::Write, &rules);
    raised.committed(token(5), true);
    assert_eq!(raised.depart(WriteId(3)), Some(Kind::Write));
    assert_eq!(raised.check(token(5), Kind::Write, &newer), Ok(()));
}

#[test]
fn mode_observe_never_claims_a_drain() {
    let mut gate = gate(4, true, false);
    let crossing = Crossing {
        gate: &mut gate,
        token: token(5),
        rules: &rules(),
    };
    let (said, raised) = crossing::observe(&mut [crossing], WriteId(1), Kind::Write, None);
    assert!(said.is_ok() && raised);
    // A stale write may be forwarded at any time from now on.
    let commit = Effect::Commit {
        token: token(5),
        drained: false,
    };
    assert_eq!(gate.take_effects(), [commit]);
}

#[test]
fn commit_failure_of_an_overtaken_raise_leaves_the_next_alone() {
    let mut gate = gate(4, true, false);
    assert_eq!(ask(&mut gate, 1, 5, &rules()), Ok(false));
    assert_eq!(ask(&mut gate, 2, 6, &rules()), Ok(false));
    gate.take_effects();
    gate.commit_failed(token(5));
    assert_eq!(gate.take_effects(), []);
    gate.committed(token(6), true);
    assert_eq!(gate.take_effects(), [Effect::Ready(WriteId(2))]);
}

#[test]
fn commit_failure_keeps_the_seal_and_the_next_write_asks_again() {
    let mut gate = gate(4, true, false);
    assert_eq!(ask(&mut gate, 1, 5, &rules()), Ok(false));
    gate.take_effects();
    gate.commit_failed(token(5));
    let refused = Effect::Refuse(WriteId(1), Refusal::Store);
    assert_eq!(gate.take_effects(), [refused]);
    assert_eq!(ask(&mut gate, 2, 4, &rules()), Err(Refusal::Stale));
    assert_eq!(ask(&mut gate, 3, 5, &rules()), Ok(false));
    let commit = Effect::Commit {
        token: token(5),
        drained: true,
    };
    assert_eq!(gate.take_effects(), [commit]);
}
