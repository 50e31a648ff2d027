//! Shows that the checks can see: a history with each violation is reported, and one without is not.

use crate::call::{Call, Ended};
use crate::check::{History, Restart, check};
use crate::plan::TAG;
use crate::support::upstream::Seen;

const SETTLE: u64 = 100;

/// A PUT of `files/a` whose tag is its token, whole and answered 200 before the next one comes.
fn seen(order: u64, token: u64) -> Seen {
    let at = order * 1000;
    Seen {
        order,
        method: "PUT".into(),
        target: "/files/a".into(),
        headers: vec![
            (TAG.into(), token.to_string()),
            ("Fencing-Token".into(), token.to_string()),
        ],
        head_at: at,
        whole_at: Some(at + 1),
        open_at: Some(at + 2),
        answered: Some((at + 3, 200)),
        applied: Some(order + 1),
        late: false,
        settles: (SETTLE, SETTLE),
    }
}

fn call(token: u64, status: u16, word: &str) -> Call {
    Call {
        tag: token.to_string(),
        read: false,
        token: Some(token),
        end: Ended::Answer {
            status,
            word: word.into(),
            own: status >= 400,
            whole: true,
        },
    }
}

/// Tokens 5 and 6, in order.
fn sound() -> History {
    History {
        seen: vec![seen(1, 5), seen(3, 6)],
        calls: vec![
            call(5, 200, "raised"),
            call(6, 200, "raised"),
            call(4, 412, "stale"),
        ],
        restarts: vec![restart(5, 5), restart(6, 6)],
    }
}

fn restart(seen: u64, fence: u64) -> Restart {
    Restart {
        seen: [("files/a".into(), seen)].into(),
        fences: [("files/a".into(), fence)].into(),
    }
}

/// The rules that are violated once the sound history was changed so.
fn rules(change: impl FnOnce(&mut History)) -> Vec<&'static str> {
    let mut history = sound();
    change(&mut history);
    check(&history).iter().map(|found| found.rule).collect()
}

#[test]
fn a_sound_history_has_no_violation() {
    assert_eq!(rules(|_| {}), [""; 0]);
}

#[test]
fn every_violation_is_seen() {
    let late = rules(|h| {
        h.seen[0].applied = Some(5);
        h.seen[0].answered = None;
    });
    assert_eq!(late, ["promise", "answer"], "a late effect");
    let after = rules(|h| h.seen.push(seen(5, 4)));
    assert_eq!(
        after,
        ["promise", "I3", "refusal"],
        "a stale write that went"
    );
    let unread = rules(|h| {
        h.seen.push(Seen {
            whole_at: None,
            open_at: None,
            answered: None,
            applied: None,
            ..seen(5, 5)
        });
        h.seen[2].headers[0].1 = "5b".into();
    });
    assert_eq!(unread, [""; 0], "read late, and cut long before");
    let in_flight = rules(|h| h.seen[0].answered = Some((3500, 200)));
    assert_eq!(
        in_flight, [""; 0],
        "settled: its connection closed long ago"
    );
    let in_flight = rules(|h| {
        h.seen[0].answered = Some((3500, 200));
        h.seen[0].open_at = Some(2950);
    });
    assert_eq!(in_flight, ["I4"], "a raise that did not wait");
    let unsettled = rules(|h| {
        h.seen[0].answered = Some((2950, 503));
        h.seen[0].open_at = Some(2950);
        h.calls[0] = call(5, 503, "outcome-unknown");
    });
    assert_eq!(unsettled, ["I4"], "a raise that took a 503 for an outcome");
    let incomplete = rules(|h| {
        h.seen[0].answered = None;
        h.seen[0].whole_at = None;
        h.seen[0].open_at = Some(2950);
        h.calls.remove(0);
    });
    assert_eq!(
        incomplete,
        ["I4"],
        "a raise that did not wait for a cut write"
    );
    let twice = rules(|h| h.seen.push(seen(5, 6)));
    assert_eq!(twice, ["I6"], "a write that was sent again");
    for word in ["stale", "missing", "store", "busy", "draining", "unsent"] {
        let refused = rules(|h| h.calls[1] = call(6, 412, word));
        assert_eq!(refused, ["refusal"], "refused as {word}, and forwarded");
    }
    let cut = rules(|h| h.calls[1] = call(6, 412, "superseded"));
    assert_eq!(cut, ["cut"], "a whole write that was cut");
    let invented = rules(|h| h.calls.push(call(7, 200, "raised")));
    assert_eq!(invented, ["answer"], "an answer from nowhere");
    let undone = rules(|h| h.seen[1].applied = None);
    assert_eq!(undone, ["answer"], "done without effect");
    let not_durable = rules(|h| h.restarts[1] = restart(6, 5));
    assert_eq!(not_durable, ["I2"], "a byte before its fence");
    let fallen = rules(|h| h.restarts[1] = restart(3, 4));
    assert_eq!(fallen, ["I1"], "a fence that fell");
}

#[test]
fn a_move_counts_at_both_ends() {
    let moved = rules(|h| {
        let to = ("Destination".into(), "http://host/files/b".into());
        h.seen[1].headers.push(to);
        h.seen.push(Seen {
            target: "/files/b".into(),
            ..seen(5, 4)
        });
        h.calls.clear();
    });
    assert_eq!(moved, ["promise", "I3"]);
}

#[test]
fn a_lower_read_harms_nothing() {
    let read = rules(|h| {
        h.seen.push(Seen {
            method: "GET".into(),
            ..seen(5, 4)
        });
        h.calls.clear();
    });
    assert_eq!(read, [""; 0]);
}
