//! Looks for violations of the invariants in what the upstream saw, what the clients were told, and
//! what the gateway remembered after each crash. Knows nothing of how these came about.

use crate::call::{Call, Ended};
use crate::plan::TAG;
use crate::support::upstream::{Seen, UNSETTLED};
use std::collections::BTreeMap;
use std::fmt;

/// Tokens by resource.
pub type Tokens = BTreeMap<String, u64>;

/// All that is known of a run.
#[derive(Clone, Default)]
pub struct History {
    /// What the upstream saw, in the order of heads.
    pub seen: Vec<Seen>,
    /// What the clients know.
    pub calls: Vec<Call>,
    /// The starts of the gateway.
    pub restarts: Vec<Restart>,
}

/// A start of the gateway after a crash.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    /// The highest token of which the upstream had seen a byte by then, for each resource.
    pub seen: Tokens,
    /// The fences that the gateway has now.
    pub fences: Tokens,
}

/// A violation.
pub struct Violation {
    /// What is violated: an invariant, or the promise.
    pub rule: &'static str,
    /// How, with what happened around it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What the gateway says of a request of which it forwarded nothing.
const NEVER_SENT: [&str; 10] = [
    "stale",
    "replayed",
    "missing",
    "malformed",
    "forbidden",
    "unrouted",
    "draining",
    "store",
    "busy",
    "unsent",
];

/// A request at the upstream, as the checks need it.
struct Item<'a> {
    seen: &'a Seen,
    token: u64,
    keys: Vec<&'a str>,
}

impl Item<'_> {
    fn is_write(&self) -> bool {
        self.seen.method != "GET"
    }

    /// Whether the request could take effect no more at that moment, as far as the upstream can prove
    /// the contrary. After an early answer it cannot.
    fn is_settled_at(&self, at: u64) -> bool {
        if let Some((answered, status)) = self.seen.answered {
            let early = self.seen.whole_at.is_none_or(|whole| answered < whole);
            if early || (answered <= at && !UNSETTLED.contains(&status)) {
                return true;
            }
        }
        !self.was_open_at(at)
    }

    /// Whether the gateway cannot have let go of the request a settle before that moment.
    fn was_open_at(&self, at: u64) -> bool {
        let (whole, incomplete) = self.seen.settles;
        let settle = if self.seen.whole_at.is_some() {
            whole
        } else {
            incomplete
        };
        self.seen.open_at.is_some_and(|open| open + settle > at)
    }
}

/// The resources that a request changes (or raises, a read).
pub fn keys_of(seen: &Seen) -> Vec<&str> {
    let mut keys = vec![seen.target.trim_start_matches('/')];
    if let Some(to) = seen.header("Destination") {
        keys.extend(to.splitn(4, '/').nth(3));
    }
    keys
}

/// The token that a request shows; 0 without one.
pub fn token_of(seen: &Seen) -> u64 {
    seen.header("Fencing-Token")
        .map_or(0, |token| token.parse().unwrap())
}

/// Checks a run. Empty: no violation.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let items: Vec<Item> = history
        .seen
        .iter()
        .map(|seen| Item {
            seen,
            token: token_of(seen),
            keys: keys_of(seen),
        })
        .collect();
    let mut by_key: BTreeMap<&str, Vec<&Item>> = BTreeMap::new();
    for item in items.iter().filter(|item| item.token > 0) {
        for key in &item.keys {
            by_key.entry(key).or_default().push(item);
        }
    }
    for (key, items) in &by_key {
        effects(key, items, &mut found);
        heads(key, items, &mut found);
    }
    answers(history, &mut found);
    restarts(&history.restarts, &mut found);
    found
}

/// The promise: effects in the order of tokens.
fn effects(key: &str, items: &[&Item], found: &mut Vec<Violation>) {
    let mut applied: Vec<(u64, &Item)> = items
        .iter()
        .filter(|item| item.is_write())
        .filter_map(|item| Some((item.seen.applied?, *item)))
        .collect();
    applied.sort_by_key(|(order, _)| *order);
    for pair in applied.windows(2) {
        let [(_, before), (_, after)] = pair else {
            continue;
        };
        if after.token < before.token {
            let what = format!(
                "{key}: {} took effect after {}",
                name(after.seen),
                name(before.seen)
            );
            found.push(violation("promise", &what, items, after.seen.order));
        }
    }
}

/// I3 and I4, as each head came. The order of heads alone says little: one may lie unread while its
/// connection is long closed.
fn heads(key: &str, items: &[&Item], found: &mut Vec<Violation>) {
    for (at, item) in items.iter().enumerate() {
        let before = &items[..at];
        let began_late = before.iter().find(|above| {
            item.is_write() && above.token > item.token && item.was_open_at(above.seen.head_at)
        });
        if let Some(above) = began_late {
            let what = format!(
                "{key}: {} began after {}",
                name(item.seen),
                name(above.seen)
            );
            found.push(violation("I3", &what, items, item.seen.order));
        }
        let lower = before
            .iter()
            .filter(|lower| lower.token < item.token && lower.is_write());
        for lower in lower.filter(|lower| !lower.is_settled_at(item.seen.head_at)) {
            let what = format!(
                "{key}: {} came while {} was not settled",
                name(item.seen),
                name(lower.seen)
            );
            found.push(violation("I4", &what, items, item.seen.order));
        }
    }
}

/// I6, and what the clients were told against what the upstream saw.
fn answers(history: &History, found: &mut Vec<Violation>) {
    let mut by_tag: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for seen in &history.seen {
        by_tag
            .entry(seen.header(TAG).unwrap_or_default())
            .or_default()
            .push(seen);
    }
    let mut fault = |rule, call: &Call, seen: &[&Seen], why: &str| {
        let what = format!("{why}: {call:?}\n  at the upstream: {seen:#?}");
        found.push(Violation { rule, what });
    };
    for call in &history.calls {
        let seen = by_tag.get(&*call.tag).map_or(&[][..], Vec::as_slice);
        if seen.len() > 1 {
            fault("I6", call, seen, "sent more than once");
        }
        let Ended::Answer {
            status,
            word,
            own,
            whole,
        } = &call.end
        else {
            continue;
        };
        if *own {
            if NEVER_SENT.contains(&&**word) && !seen.is_empty() {
                fault("refusal", call, seen, "refused, and forwarded all the same");
            }
            if word == "superseded" && seen.iter().any(|seen| seen.whole_at.is_some()) {
                fault("cut", call, seen, "cut although it was whole");
            }
            continue;
        }
        let Some(seen_one) = seen.first() else {
            fault(
                "answer",
                call,
                seen,
                "answered by an upstream that never saw it",
            );
            continue;
        };
        if *whole && seen_one.answered.is_none_or(|(_, said)| said != *status) {
            fault("answer", call, seen, "not what the upstream answered");
        }
        let done = *whole && !call.read && *status < 300 && !UNSETTLED.contains(status);
        if done && seen_one.applied.is_none() {
            fault("answer", call, seen, "called done, without effect");
        }
    }
}

/// I1, I2 and I8, after each crash.
fn restarts(restarts: &[Restart], found: &mut Vec<Violation>) {
    let mut before = Tokens::new();
    for (number, restart) in restarts.iter().enumerate() {
        let fence = |key: &str| restart.fences.get(key).copied().unwrap_or(0);
        for (key, token) in &restart.seen {
            if fence(key) < *token {
                let what = format!(
                    "start {number}: {key} is at {}, and the upstream had seen {token}",
                    fence(key)
                );
                found.push(Violation { rule: "I2", what });
            }
        }
        for (key, token) in &before {
            if fence(key) < *token {
                let what = format!("start {number}: {key} fell from {token} to {}", fence(key));
                found.push(Violation { rule: "I1", what });
            }
        }
        before.clone_from(&restart.fences);
    }
}

fn name(seen: &Seen) -> String {
    let tag = seen.header(TAG).unwrap_or("?");
    format!("{tag} (token {})", token_of(seen))
}

/// A violation with the requests around it.
fn violation(rule: &'static str, what: &str, items: &[&Item], order: u64) -> Violation {
    let at = items.partition_point(|item| item.seen.order < order);
    let around = &items[at.saturating_sub(8)..items.len().min(at + 4)];
    let lines = around.iter().map(|item| {
        let seen = item.seen;
        format!(
            "\n    {:>6} {} {} head {} whole {:?} open {:?} answered {:?} applied {:?} plan {:?}",
            seen.order,
            name(seen),
            seen.method,
            seen.head_at,
            seen.whole_at,
            seen.open_at,
            seen.answered,
            seen.applied,
            seen.header(crate::plan::PLAN)
        )
    });
    let what = format!("{what}{}", lines.collect::<String>());
    Violation { rule, what }
}
