//! How the world moves: the shell around the gates, the disk, the upstream, and what goes wrong.
//!
//! Each action is one step that no other can interrupt; what the shell does without holding the
//! locks of all gates is a step of its own. A client that leaves while its write is in flight is no
//! action: the write runs on, so nothing changes.

use crate::action::Action;
use crate::world::{Commit, Mark, Phase, RESOURCES, Record, Rule, Setup, World, broken};
use fencegate::fence::crossing::{self, Crossing};
use fencegate::fence::{Effect, Gate, Kind, Origin, Token, WriteId};

fn write_id(request: usize) -> WriteId {
    WriteId(request as u64)
}

impl Setup {
    pub fn start(&self) -> World {
        let disk = self.origins.map(|fence| Record {
            fence: Token::new(0, fence),
            mark: if fence == 0 {
                Mark::Absent
            } else {
                Mark::Durable
            },
        });
        World {
            gates: disk.map(|record| open(record, false)),
            disk,
            queue: Vec::new(),
            reports: Vec::new(),
            phases: vec![Phase::Idle; self.requests.len()],
            top: [Token::NONE; RESOURCES],
            sealed: disk.map(|record| record.fence),
            unclean: false,
            crashes: self.crashes,
            commit_failures: self.commit_failures,
            broken: 0,
        }
    }

    pub fn step(&self, before: &World, action: &Action) -> World {
        let mut world = before.clone();
        match *action {
            Action::Arrive(i) => self.arrive(&mut world, i),
            Action::Proceed(i) => self.proceed(&mut world, i),
            Action::Leave(i) | Action::Abandon(i) => self.leave_gates(&mut world, i),
            Action::Apply(i, resource) => self.apply(&mut world, i, resource),
            Action::Answer(i) | Action::Settle(i) => self.settle(&mut world, i, false, Phase::Done),
            Action::Unsent(i) => {
                let next = if self.retries {
                    Phase::Idle
                } else {
                    Phase::Done
                };
                self.settle(&mut world, i, true, next);
            }
            Action::LoseSight(i) => self.lose_sight(&mut world, i, false),
            Action::Cut(i) => self.lose_sight(&mut world, i, true),
            Action::Sync(batches) => sync(&mut world, batches, true, true),
            Action::SyncFails { landed } => {
                world.commit_failures -= 1;
                let batches = world.queue.len();
                sync(&mut world, batches, landed, self.lacks(Rule::FailClosed));
            }
            Action::Report(which) => self.report(&mut world, which),
            Action::Crash(kept) => self.crash(&mut world, kept),
            Action::TakeOver => self.take_over(&mut world),
            Action::Evict(resource) => self.evict(&mut world, resource),
        }
        let restarted = matches!(action, Action::Crash(_));
        for r in 0..RESOURCES {
            let floor = if restarted {
                before.disk[r].fence
            } else {
                before.gates[r].fence()
            };
            let gate = &world.gates[r];
            let fell = gate.fence() < floor
                || gate.fence() < world.sealed[r]
                || world.disk[r].fence < before.disk[r].fence;
            if fell {
                world.broken |= broken::FENCE_FELL;
            }
        }
        world
    }

    fn crossings<'a>(&self, gates: &'a mut [Gate; RESOURCES], i: usize) -> Vec<Crossing<'a>> {
        let rules = self.requests[i].rules();
        let pairs = gates.iter_mut().zip(self.requests[i].tokens);
        pairs
            .filter_map(|(gate, token)| token.map(|token| Crossing { gate, token, rules }))
            .collect()
    }

    fn arrive(&self, world: &mut World, i: usize) {
        let request = &self.requests[i];
        if self.lacks(Rule::Seal) && self.slips_past(world, i) {
            for (r, token) in request.touches() {
                world.gates[r].launch(write_id(i), token, request.kind, request.preempt);
            }
            return self.forward(world, i);
        }
        let mut crossings = self.crossings(&mut world.gates, i);
        let entry = crossing::arrive(&mut crossings, write_id(i), request.kind);
        match entry {
            Err(_) => world.phases[i] = Phase::Done,
            Ok(entry) => {
                for (r, token) in request.touches() {
                    world.sealed[r] = world.sealed[r].max(token);
                }
                if entry.forwarded {
                    self.forward(world, i);
                } else {
                    world.phases[i] = Phase::Waiting { ready: false };
                }
            }
        }
        self.absorb(world);
    }

    /// Without the seal: the token is below the seal, but not below what the disk says.
    fn slips_past(&self, world: &World, i: usize) -> bool {
        let mut touches = self.requests[i].touches();
        touches.all(|(r, token)| {
            let gate = &world.gates[r];
            gate.durable() <= token && token < gate.fence()
        })
    }

    fn leave_gates(&self, world: &mut World, i: usize) {
        for (r, _) in self.requests[i].touches() {
            world.gates[r].abandon(write_id(i));
        }
        world.phases[i] = Phase::Done;
        self.absorb(world);
    }

    fn proceed(&self, world: &mut World, i: usize) {
        world.phases[i] = Phase::Waiting { ready: false };
        let mut crossings = self.crossings(&mut world.gates, i);
        if crossing::proceed(&mut crossings, write_id(i)) {
            self.forward(world, i);
        }
        self.absorb(world);
    }

    /// The write goes upstream: what must be true now is judged here, by the world and not by the gate.
    fn forward(&self, world: &mut World, i: usize) {
        if !matches!(world.phases[i], Phase::Idle | Phase::Waiting { .. }) {
            world.broken |= broken::SENT_TWICE;
        }
        let request = &self.requests[i];
        for (r, token) in request.touches() {
            if world.disk[r].fence < token {
                world.broken |= broken::NOT_DURABLE;
                if world.commit_failures < self.commit_failures {
                    world.broken |= broken::FAILED_OPEN;
                }
            }
            if token < world.sealed[r] {
                world.broken |= broken::BELOW_SEAL;
            }
            let overtaken = world
                .phases
                .iter()
                .zip(&self.requests)
                .any(|(phase, other)| {
                    phase.may_apply().is_some()
                        && other.tokens[r].is_some_and(|lower| lower < token)
                });
            if overtaken {
                world.broken |= broken::OVERTOOK;
            }
        }
        if request.kind == Kind::Read {
            world.phases[i] = Phase::Done;
            return;
        }
        world.phases[i] = Phase::Flight {
            applied: 0,
            cut: false,
        };
        if self.lacks(Rule::Drain) {
            self.tell_settled(world, i, false);
        }
    }

    fn apply(&self, world: &mut World, i: usize, resource: usize) {
        let token = self.requests[i].tokens[resource].expect("touched");
        if let Phase::Flight { applied, .. }
        | Phase::Lingering { applied, .. }
        | Phase::Orphan { applied } = &mut world.phases[i]
        {
            *applied |= 1 << resource;
        }
        if token < world.top[resource] {
            world.broken |= broken::PROMISE;
        }
        world.top[resource] = world.top[resource].max(token);
    }

    fn settle(&self, world: &mut World, i: usize, unsent: bool, next: Phase) {
        world.phases[i] = next;
        self.tell_settled(world, i, unsent);
    }

    fn tell_settled(&self, world: &mut World, i: usize, unsent: bool) {
        for (r, _) in self.requests[i].touches() {
            world.gates[r].settled(write_id(i), unsent);
        }
        self.absorb(world);
    }

    fn lose_sight(&self, world: &mut World, i: usize, cut: bool) {
        let applied = world.phases[i].may_apply().unwrap_or_default();
        world.phases[i] = Phase::Lingering { applied, cut };
        if self.lacks(Rule::Settle) {
            self.tell_settled(world, i, false);
        }
    }

    fn report(&self, world: &mut World, which: usize) {
        let (commit, done) = world.reports.remove(which);
        let gate = &mut world.gates[commit.resource];
        if done {
            gate.committed(commit.token, commit.drained);
        } else {
            gate.commit_failed(commit.token);
        }
        self.absorb(world);
    }

    fn crash(&self, world: &mut World, kept: [bool; RESOURCES]) {
        world.crashes -= 1;
        world.queue.clear();
        world.reports.clear();
        for phase in &mut world.phases {
            *phase = match *phase {
                // Its client sends it again.
                Phase::Waiting { .. } => Phase::Idle,
                Phase::Refused { .. } => Phase::Done,
                Phase::Flight { applied, .. } | Phase::Lingering { applied, .. } => {
                    Phase::Orphan { applied }
                }
                Phase::Idle | Phase::Orphan { .. } | Phase::Outlived | Phase::Done => *phase,
            };
        }
        for (record, kept) in world.disk.iter_mut().zip(kept) {
            if record.mark == Mark::Unsynced {
                record.mark = if kept { Mark::Durable } else { Mark::Absent };
            }
        }
        world.unclean = !self.lacks(Rule::UncleanStart);
        world.gates = world.disk.map(|mut record| {
            if self.lacks(Rule::DrainedMark) {
                record.mark = Mark::Durable;
            }
            open(record, world.unclean)
        });
        world.sealed = world.disk.map(|record| record.fence);
    }

    fn take_over(&self, world: &mut World) {
        world.unclean = false;
        for phase in &mut world.phases {
            if matches!(phase, Phase::Orphan { .. }) {
                *phase = Phase::Outlived;
            }
        }
        for gate in &mut world.gates {
            gate.taken_over();
        }
        self.absorb(world);
    }

    fn evict(&self, world: &mut World, resource: usize) {
        if world.gates[resource].is_idle() || self.lacks(Rule::Eviction) {
            world.gates[resource] = open(world.disk[resource], world.unclean);
        }
    }

    /// Does what the gates ask for, until they ask for nothing.
    fn absorb(&self, world: &mut World) {
        let mut batch = Vec::new();
        while world.gates.iter().any(Gate::has_effects) {
            for resource in 0..RESOURCES {
                for effect in world.gates[resource].take_effects() {
                    self.obey(world, resource, &effect, &mut batch);
                }
            }
        }
        if !batch.is_empty() {
            world.queue.push(batch);
        }
    }

    fn obey(&self, world: &mut World, resource: usize, effect: &Effect, batch: &mut Vec<Commit>) {
        match *effect {
            Effect::Commit { token, drained } => {
                batch.push(Commit {
                    resource,
                    token,
                    drained,
                });
                if self.lacks(Rule::Commit) {
                    world.gates[resource].committed(token, drained);
                }
            }
            Effect::Refuse(id, why) => match phase_of(world, id) {
                phase @ Phase::Waiting { .. } => {
                    *phase = Phase::Refused {
                        superseded: why == fencegate::fence::Refusal::Superseded,
                    };
                }
                // Another of its gates was first.
                Phase::Refused { .. } => {}
                _ => world.broken |= broken::ANSWERED_TWICE,
            },
            Effect::Ready(id) => {
                let phase = phase_of(world, id);
                if self.lacks(Rule::Agreement) {
                    let waits = matches!(phase, Phase::Waiting { .. });
                    world.gates[resource].depart(id);
                    if waits {
                        self.forward(world, usize::try_from(id.0).expect("small"));
                    }
                } else if let Phase::Waiting { ready } = phase {
                    *ready = true;
                }
            }
            Effect::Cut(id) => {
                if let Phase::Flight { cut, .. } = phase_of(world, id) {
                    *cut = true;
                }
            }
            Effect::MarkDrained(token) => {
                let record = &mut world.disk[resource];
                if record.fence == token && record.mark == Mark::Absent {
                    record.mark = Mark::Unsynced;
                }
            }
        }
    }
}

fn phase_of(world: &mut World, id: WriteId) -> &mut Phase {
    &mut world.phases[usize::try_from(id.0).expect("small")]
}

fn open(record: Record, predecessor: bool) -> Gate {
    Gate::new(Origin {
        fence: record.fence,
        drained: record.mark != Mark::Absent,
        predecessor,
    })
}

fn sync(world: &mut World, batches: usize, landed: bool, success: bool) {
    for commit in world.queue.drain(..batches).flatten() {
        let record = &mut world.disk[commit.resource];
        let mark = if commit.drained {
            Mark::Durable
        } else {
            Mark::Absent
        };
        if landed && commit.token > record.fence {
            *record = Record {
                fence: commit.token,
                mark,
            };
        } else if landed && commit.token == record.fence && commit.drained {
            record.mark = mark;
        }
        world.reports.push((commit, success));
    }
}
