//! What can happen in a state of the world.

use crate::world::{Mark, Phase, RESOURCES, Setup, World};

/// One step. Numbers name requests and resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client's request reaches the gates (or an unsent one comes again).
    Arrive(usize),
    /// A client leaves while its request waits, or the wait times out.
    Leave(usize),
    /// A request that a gate called ready tries to go.
    Proceed(usize),
    /// A request that one gate refused leaves its other gates.
    Abandon(usize),
    /// The upstream applies a write at a resource.
    Apply(usize, usize),
    /// The upstream has answered a write.
    Answer(usize),
    /// No byte of a write reached the upstream.
    Unsent(usize),
    /// A time-out, a lost connection, an unsettled status.
    LoseSight(usize),
    /// The cut that a gate asked for; a write that was whole is spared and goes another way.
    Cut(usize),
    /// The settle of a write with an unknown outcome has passed.
    Settle(usize),
    /// The first batches reach the disk with one sync.
    Sync(usize),
    /// The sync of all batches fails; `landed`: the disk has them all the same.
    SyncFails { landed: bool },
    /// A gate hears of one of its commits.
    Report(usize),
    /// kill -9 and a restart; for each resource, whether its unsynced mark survives.
    Crash([bool; RESOURCES]),
    /// The settle after a crash has passed.
    TakeOver,
    /// A gate leaves memory and is loaded again.
    Evict(usize),
}

impl Setup {
    pub fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        for (i, phase) in world.phases.iter().enumerate() {
            self.possible_for(i, *phase, actions);
        }
        actions.extend((1..=world.queue.len()).map(Action::Sync));
        if !world.queue.is_empty() && world.commit_failures > 0 {
            actions.push(Action::SyncFails { landed: false });
            actions.push(Action::SyncFails { landed: true });
        }
        actions.extend((0..world.reports.len()).map(Action::Report));
        if world.unclean {
            actions.push(Action::TakeOver);
        }
        if world.crashes > 0 {
            let unsure = |r: usize| world.disk[r].mark == Mark::Unsynced;
            for kept in [[false; 2], [true, false], [false, true], [true; 2]] {
                if (0..RESOURCES).all(|r| unsure(r) || !kept[r]) {
                    actions.push(Action::Crash(kept));
                }
            }
        }
        if self.evictions {
            actions.extend((0..RESOURCES).map(Action::Evict));
        }
    }

    fn possible_for(&self, i: usize, phase: Phase, actions: &mut Vec<Action>) {
        match phase {
            Phase::Idle => actions.push(Action::Arrive(i)),
            Phase::Waiting { ready } => {
                actions.push(Action::Leave(i));
                if ready {
                    actions.push(Action::Proceed(i));
                }
            }
            Phase::Refused { .. } => actions.push(Action::Abandon(i)),
            Phase::Flight { applied, cut } => {
                actions.extend([Action::Answer(i), Action::LoseSight(i)]);
                if applied == 0 {
                    actions.push(Action::Unsent(i));
                }
                if cut {
                    actions.push(Action::Cut(i));
                }
            }
            Phase::Lingering { .. } => actions.push(Action::Settle(i)),
            Phase::Orphan { .. } | Phase::Outlived | Phase::Done => {}
        }
        if let Some(applied) = phase.may_apply() {
            for (resource, _) in self.requests[i].touches() {
                if applied & (1 << resource) == 0 {
                    actions.push(Action::Apply(i, resource));
                }
            }
        }
    }
}
