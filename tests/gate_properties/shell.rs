//! A shell that does at once what the gates ask for, and remembers what became of each request.
//!
//! Judges by what it saw itself, not by what the gates say.

use fencegate::fence::crossing::{self, Crossing};
use fencegate::fence::{
    Accept, Effect, Format, Gate, Kind, Missing, Origin, Refusal, Rules, Token, WriteId,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

pub const GATES: usize = 2;
pub const MAX_WAITING: usize = 2;

pub fn token(number: u64) -> Token {
    Token::new(0, number)
}

pub fn rules() -> Rules {
    Rules {
        accept: Accept::SameOrNewer,
        missing: Missing::Reject,
        preempt: true,
        max_waiting: MAX_WAITING,
        max_advance: None,
        first_max: None,
        format: Format::U64,
    }
}

/// A gate over a record.
pub fn gate(fence: u64, drained: bool, predecessor: bool) -> Gate {
    Gate::new(Origin {
        fence: token(fence),
        drained,
        predecessor,
    })
}

#[derive(Clone, Debug)]
pub struct Request {
    /// The token that it shows to each gate; `None` where it does not touch it.
    pub tokens: [Option<Token>; GATES],
    pub kind: Kind,
    pub rules: Rules,
}

impl Request {
    pub fn touches(&self) -> impl Iterator<Item = (usize, Token)> + '_ {
        let tokens = self.tokens.iter().enumerate();
        tokens.filter_map(|(gate, token)| token.map(|token| (gate, token)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Waiting,
    Flight,
    Settled { unsent: bool },
    Refused(Refusal),
    Left,
}

/// One event. Numbers choose among what there is, modulo its count.
#[derive(Clone, Debug)]
pub enum Event {
    Arrive(Request),
    Leave(usize),
    Settle(usize, bool),
    Commit(bool),
    TakeOver,
    /// Gates that are idle leave memory and are loaded again.
    Reload,
}

pub struct Shell {
    pub gates: [Gate; GATES],
    pub disk: [(Token, bool); GATES],
    pub predecessor: bool,
    pub requests: BTreeMap<WriteId, (Request, Fate)>,
    /// The fence with which each gate began.
    pub origins: [Token; GATES],
    commits: VecDeque<Vec<(usize, Token, bool)>>,
}

impl Shell {
    pub fn new(origins: [u64; GATES], drained: bool, predecessor: bool) -> Self {
        Self {
            gates: origins.map(|fence| gate(fence, drained, predecessor)),
            disk: origins.map(|fence| (token(fence), drained)),
            predecessor,
            requests: BTreeMap::new(),
            origins: origins.map(token),
            commits: VecDeque::new(),
        }
    }

    /// The requests that have this fate.
    pub fn having(&self, fate: Fate) -> Vec<WriteId> {
        let all = self.requests.iter();
        all.filter_map(|(id, (_, its))| (*its == fate).then_some(*id))
            .collect()
    }

    /// How many requests wait at a gate.
    pub fn waiting_at(&self, gate: usize) -> usize {
        let all = self.requests.values();
        all.filter(|(request, fate)| *fate == Fate::Waiting && request.tokens[gate].is_some())
            .count()
    }

    pub fn step(&mut self, event: &Event) {
        let before = self.gates.clone();
        match event {
            Event::Arrive(request) => {
                let _ = self.arrive(request);
            }
            Event::Leave(which) => {
                if let Some(id) = pick(&self.having(Fate::Waiting), *which) {
                    self.leave_gates(id);
                    self.set(id, Fate::Left);
                }
            }
            Event::Settle(which, unsent) => {
                if let Some(id) = pick(&self.having(Fate::Flight), *which) {
                    self.settle(id, *unsent);
                }
            }
            Event::Commit(success) => self.commit(*success),
            Event::TakeOver => self.take_over(),
            Event::Reload => self.reload(),
        }
        self.absorb();
        for (gate, before) in self.gates.iter().zip(&before) {
            assert!(gate.fence() >= before.fence(), "a fence fell");
        }
        for at in 0..GATES {
            assert!(self.waiting_at(at) <= MAX_WAITING, "too many wait");
        }
    }

    /// The verdict of the gates, and the name under which the request is remembered.
    pub fn arrive(&mut self, request: &Request) -> (WriteId, Result<crossing::Entry, Refusal>) {
        let id = WriteId(self.requests.len() as u64);
        let before = self.gates.clone();
        let mut crossings = crossings(&mut self.gates, request);
        let verdict = crossing::arrive(&mut crossings, id, request.kind);
        let fate = match verdict {
            Err(refusal) => {
                assert_eq!(self.gates, before, "a refusal changed a gate");
                Fate::Refused(refusal)
            }
            Ok(entry) if entry.forwarded => self.forwarded(request),
            Ok(_) => Fate::Waiting,
        };
        self.requests.insert(id, (request.clone(), fate));
        self.absorb();
        (id, verdict)
    }

    /// Ends all commits, flights and predecessors, again and again, until nothing is left to end.
    pub fn finish(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "it never ends");
            self.take_over();
            self.commit(true);
            for id in self.having(Fate::Flight) {
                self.settle(id, false);
            }
            if self.commits.is_empty() && self.having(Fate::Flight).is_empty() {
                return;
            }
        }
    }

    fn forwarded(&self, request: &Request) -> Fate {
        for (at, shown) in request.touches() {
            assert!(self.disk[at].0 >= shown, "forwarded before it was durable");
            let holders_own = shown == self.origins[at] && self.disk[at].1;
            assert!(
                !self.predecessor || holders_own || shown.is_none(),
                "forwarded while a predecessor's writes may be in flight"
            );
            let mut others = self.requests.values();
            let overtakes = others.any(|(other, fate)| {
                *fate == Fate::Flight && other.tokens[at].is_some_and(|lower| lower < shown)
            });
            assert!(!overtakes, "forwarded before a lower write was settled");
        }
        match request.kind {
            Kind::Read => Fate::Settled { unsent: true },
            Kind::Write => Fate::Flight,
        }
    }

    fn set(&mut self, id: WriteId, fate: Fate) {
        self.requests.get_mut(&id).expect("known").1 = fate;
    }

    fn leave_gates(&mut self, id: WriteId) {
        for gate in &mut self.gates {
            gate.abandon(id);
        }
    }

    fn settle(&mut self, id: WriteId, unsent: bool) {
        self.set(id, Fate::Settled { unsent });
        for gate in &mut self.gates {
            gate.settled(id, unsent);
        }
        self.absorb();
    }

    fn commit(&mut self, success: bool) {
        let Some(batch) = self.commits.pop_front() else {
            return;
        };
        for (at, fence, drained) in batch {
            if success && fence > self.disk[at].0 {
                self.disk[at] = (fence, drained);
            } else if success && fence == self.disk[at].0 {
                self.disk[at].1 |= drained;
            }
            if success {
                self.gates[at].committed(fence, drained);
            } else {
                self.gates[at].commit_failed(fence);
            }
        }
        self.absorb();
    }

    fn take_over(&mut self) {
        self.predecessor = false;
        for gate in &mut self.gates {
            gate.taken_over();
        }
        self.absorb();
    }

    fn reload(&mut self) {
        for (gate, (fence, drained)) in self.gates.iter_mut().zip(self.disk) {
            if gate.is_idle() {
                *gate = Gate::new(Origin {
                    fence,
                    drained,
                    predecessor: self.predecessor,
                });
            }
        }
    }

    fn absorb(&mut self) {
        let mut batch = Vec::new();
        while self.gates.iter().any(Gate::has_effects) {
            for at in 0..GATES {
                for effect in self.gates[at].take_effects() {
                    self.obey(at, &effect, &mut batch);
                }
            }
        }
        if !batch.is_empty() {
            self.commits.push_back(batch);
        }
    }

    fn obey(&mut self, at: usize, effect: &Effect, batch: &mut Vec<(usize, Token, bool)>) {
        match *effect {
            Effect::Commit { token, drained } => batch.push((at, token, drained)),
            Effect::Refuse(id, why) => {
                let (_, fate) = self.requests[&id];
                let again = matches!(fate, Fate::Refused(_)) && !self.gates[at].awaits(id);
                assert!(
                    fate == Fate::Waiting || again,
                    "refused in spite of {fate:?}"
                );
                self.set(id, Fate::Refused(why));
                self.leave_gates(id);
            }
            Effect::Ready(id) => {
                let request = self.requests[&id].0.clone();
                if crossing::proceed(&mut crossings(&mut self.gates, &request), id) {
                    assert_eq!(self.requests[&id].1, Fate::Waiting, "forwarded twice");
                    let fate = self.forwarded(&request);
                    self.set(id, fate);
                }
            }
            Effect::Cut(id) => assert_eq!(self.requests[&id].1, Fate::Flight),
            Effect::MarkDrained(fence) => {
                if self.disk[at].0 == fence {
                    self.disk[at].1 = true;
                }
            }
        }
    }
}

pub fn crossings<'a>(gates: &'a mut [Gate; GATES], request: &'a Request) -> Vec<Crossing<'a>> {
    let rules = &request.rules;
    let pairs = gates.iter_mut().zip(request.tokens);
    pairs
        .filter_map(|(gate, token)| token.map(|token| Crossing { gate, token, rules }))
        .collect()
}

fn pick(from: &[WriteId], which: usize) -> Option<WriteId> {
    (!from.is_empty()).then(|| from[which % from.len()])
}

/// Which requests come.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// They touch both gates, or only the first.
    pub both: bool,
    /// Some ask for a newer token.
    pub newer: bool,
    /// Some show no token, and are admitted until the resource is fenced.
    pub tokenless: bool,
}

pub fn requests(traffic: Traffic) -> impl Strategy<Value = Request> {
    let lowest = u64::from(!traffic.tokenless);
    let tokens = (lowest..7, lowest..7, 0..4);
    let tokens = tokens.prop_map(move |(a, b, shape)| match shape {
        0 if traffic.both => [Some(a), Some(a)],
        1 if traffic.both => [Some(a), Some(b)],
        2 if traffic.both => [None, Some(b)],
        _ => [Some(a), None],
    });
    (tokens, 0..5, any::<(bool, bool)>()).prop_map(move |(tokens, kind, (preempt, newer))| {
        let reads = kind == 0 && !tokens.contains(&Some(0));
        Request {
            tokens: tokens.map(|t| t.map(token)),
            kind: if reads { Kind::Read } else { Kind::Write },
            rules: Rules {
                preempt,
                accept: if newer && traffic.newer {
                    Accept::Newer
                } else {
                    Accept::SameOrNewer
                },
                missing: Missing::AllowUntilFenced,
                ..rules()
            },
        }
    })
}

pub fn events(traffic: Traffic) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => requests(traffic).prop_map(Event::Arrive),
        1 => any::<usize>().prop_map(Event::Leave),
        3 => any::<(usize, bool)>().prop_map(|(which, unsent)| Event::Settle(which, unsent)),
        4 => prop::bool::weighted(0.8).prop_map(Event::Commit),
        1 => Just(Event::TakeOver),
        1 => Just(Event::Reload),
    ];
    prop::collection::vec(event, 0..40)
}
