//! What a writer does next: its request, how far it gets with it, and what the upstream is to do with
//! it. All of it comes from a seed; the upstream reads its part from a header.

use crate::support::upstream::{End, Plan, Seen};
use std::time::Duration;

/// The header that carries the upstream's plan.
pub const PLAN: &str = "X-Plan";
/// The header that names a request.
pub const TAG: &str = "X-Tag";
/// The port of the gateway in `Destination`; any would do, since it goes by the `Host` beside it.
const HOST: &str = "gateway.test";

/// The resources: two of each kind, under one lock, so that a MOVE between them shows one token.
pub const PAIRS: [[&str; 2]; 4] = [
    ["files/a", "files/b"],
    ["files/c", "files/d"],
    ["reads/a", "reads/b"],
    ["ends/a", "ends/b"],
];
/// The pair whose reads raise.
pub const READS: usize = 2;
/// The pair whose writes settle at the end of the response.
pub const ENDS: usize = 3;

/// A sequence of numbers that a seed fixes (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A time below so many milliseconds.
    pub fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name, unlike any other's.
    pub tag: String,
    /// The method.
    pub method: &'static str,
    /// Its path, without the slash before it: the resource too.
    pub path: &'static str,
    /// Where a MOVE goes.
    pub destination: Option<&'static str>,
    /// The token that it shows.
    pub token: Option<u64>,
    /// The body.
    pub body: Body,
    /// Where its client leaves, with RST.
    pub leaves: Option<Leaves>,
    /// What the upstream does with it.
    pub plan: Plan,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None.
    None,
    /// So many bytes, announced.
    Sized(usize),
    /// So many chunks of a thousand bytes with a pause between them.
    Chunked(u32, Duration),
}

/// Where a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// After the head, if there is a body, or at once.
    AtHead,
    /// With half of the body sent.
    Halfway,
    /// After so much waiting for the answer.
    Waiting(Duration),
}

/// What may happen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Everything.
    Wild,
    /// No client leaves, and no answer comes early: then each request has its answer.
    Answered,
}

impl Task {
    /// The next request for this pair with this token.
    pub fn next(rng: &mut Rng, tag: String, pair: usize, token: Option<u64>, mix: Mix) -> Self {
        let [one, other] = PAIRS[pair];
        let [path, other] = if rng.chance(50) {
            [one, other]
        } else {
            [other, one]
        };
        let mut task = Self {
            tag,
            method: "PUT",
            path,
            destination: None,
            token,
            body: Body::None,
            leaves: None,
            plan: plan(rng, pair == ENDS, mix),
        };
        match rng.below(100) {
            0..12 => {
                task.method = "MOVE";
                task.destination = Some(other);
            }
            12..18 => task.method = "DELETE",
            18..40 if pair == READS => task.method = "GET",
            _ => task.body = body(rng, mix),
        }
        if mix == Mix::Wild && rng.chance(14) {
            task.leaves = Some(match rng.below(3) {
                0 => Leaves::AtHead,
                1 => Leaves::Halfway,
                _ => Leaves::Waiting(rng.millis(20)),
            });
        }
        task
    }

    /// Its headers.
    pub fn headers(&self) -> String {
        let Self { method, path, .. } = self;
        let mut head = format!("{method} /{path} HTTP/1.1\r\nHost: {HOST}\r\n");
        let mut add = |name: &str, value: &str| head.extend([name, ": ", value, "\r\n"]);
        add(TAG, &self.tag);
        add(PLAN, &to_text(&self.plan));
        if let Some(token) = self.token {
            add("Fencing-Token", &token.to_string());
        }
        if let Some(to) = self.destination {
            add("Destination", &format!("http://{HOST}/{to}"));
        }
        match self.body {
            Body::None => {}
            Body::Sized(size) => add("Content-Length", &size.to_string()),
            Body::Chunked(..) => add("Transfer-Encoding", "chunked"),
        }
        head + "\r\n"
    }
}

fn body(rng: &mut Rng, mix: Mix) -> Body {
    match rng.below(100) {
        0..50 => Body::Sized(64),
        50..80 => Body::Sized(usize::try_from(1 + rng.below(2000)).unwrap()),
        80..86 if mix == Mix::Wild => Body::Sized(300_000),
        _ => Body::Chunked(2 + u32::try_from(rng.below(4)).unwrap(), rng.millis(25)),
    }
}

/// What the upstream does: mostly its work, and now and then everything that it may do wrong.
fn plan(rng: &mut Rng, ends: bool, mix: Mix) -> Plan {
    let late = |rng: &mut Rng| rng.chance(70).then(|| rng.millis(55));
    let mut plan = Plan {
        hold: rng.millis(8),
        ..Plan::answer(200)
    };
    match rng.below(100) {
        0..45 => {}
        45..57 => plan.hold = rng.millis(120),
        57..60 => plan.hold = Duration::from_millis(340), // beyond the response_timeout
        60..70 => {
            plan.apply = late(rng);
            plan.end = if rng.chance(50) {
                End::Reset
            } else {
                End::Close
            };
        }
        70..74 => {
            plan.early = mix == Mix::Wild;
            plan.apply = late(rng);
            plan.end = End::Reset;
        }
        74..81 => {
            plan.apply = rng.chance(50).then_some(Duration::ZERO);
            plan.end = End::Answer(500);
        }
        81..88 => {
            plan.apply = late(rng);
            plan.end = End::Answer(if rng.chance(50) { 503 } else { 202 });
        }
        88..93 if mix == Mix::Wild => {
            plan.early = true;
            plan.end = End::Answer(if rng.chance(50) { 200 } else { 413 });
            plan.apply = (plan.end == End::Answer(200)).then_some(Duration::ZERO);
        }
        _ if ends => {
            let rest = rng.millis(80);
            plan.apply = Some(plan.hold + rest.mul_f64(0.9));
            plan.end = End::Trickle(200, rest);
        }
        _ => {}
    }
    plan
}

fn to_text(plan: &Plan) -> String {
    let micros = |time: Duration| time.as_micros().to_string();
    let apply = plan.apply.map_or("-".into(), micros);
    let (end, rest) = match plan.end {
        End::Answer(status) => (status.to_string(), Duration::ZERO),
        End::Trickle(status, rest) => (format!("trickle{status}"), rest),
        End::Close => ("close".into(), Duration::ZERO),
        End::Reset => ("reset".into(), Duration::ZERO),
    };
    let early = if plan.early { "early" } else { "whole" };
    format!(
        "{early} {apply} {} {end} {}",
        micros(plan.hold),
        micros(rest)
    )
}

/// The plan that came with a request; plain work where there is none.
pub fn of(seen: &Seen) -> Plan {
    let Some(text) = seen.header(PLAN) else {
        return Plan::answer(200);
    };
    let words: Vec<&str> = text.split(' ').collect();
    let [early, apply, hold, end, rest] = words[..] else {
        panic!("not a plan: {text}")
    };
    let time = |text: &str| Duration::from_micros(text.parse().unwrap());
    Plan {
        early: early == "early",
        apply: (apply != "-").then(|| time(apply)),
        hold: time(hold),
        end: match (end, end.strip_prefix("trickle")) {
            ("close", _) => End::Close,
            ("reset", _) => End::Reset,
            (_, Some(status)) => End::Trickle(status.parse().unwrap(), time(rest)),
            _ => End::Answer(end.parse().unwrap()),
        },
    }
}
