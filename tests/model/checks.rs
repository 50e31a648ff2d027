//! What must be true of every state, and what some state must show.

use crate::action::Action;
use crate::world::{Phase, RESOURCES, Setup, World, broken};
use fencegate::fence::{Token, WriteId};
use stateright::{Model, Property};

pub const FENCE: &str = "I1 the fence never falls";
pub const DURABLE: &str = "I2 nothing goes out before its fence is on disk";
pub const SEAL: &str = "I3 no write below the fence starts after the seal";
pub const ORDER: &str = "I4 what goes out finds every lower write settled";
pub const PROMISE: &str = "the promise: applied tokens never decrease";
pub const FAIL_CLOSED: &str = "I5 a failed commit lets nothing out";
pub const ONCE: &str = "I6 a write is sent at most once";
pub const ONE_ANSWER: &str = "I7 no write is refused twice, or refused and forwarded";
pub const ALL_OR_NONE: &str = "a write is forwarded in all its gates or in none";
pub const TRUTH: &str = "a gate never believes more than the disk holds";
pub const PROGRESS: &str = "nobody waits for nothing";

pub const DRAINING: &str = "a raise waits for the drain";
pub const DRAINED: &str = "a raise goes out after a lower write took effect";
pub const CUT: &str = "a write is cut";
pub const SUPERSEDED: &str = "a waiter is superseded";
pub const MOVED: &str = "a write to both resources goes out";
pub const STORE: &str = "a waiter is refused for a failed commit";
pub const ORPHANED: &str = "a raise waits for a write from before the crash";
pub const OUTLIVED: &str = "a raise goes out after a write from before the crash";

/// Every property of the safety of the gate.
fn always() -> Vec<Property<Setup>> {
    vec![
        Property::always(FENCE, |_, w: &World| !w.broke(broken::FENCE_FELL)),
        Property::always(DURABLE, |_, w: &World| !w.broke(broken::NOT_DURABLE)),
        Property::always(SEAL, |_, w: &World| !w.broke(broken::BELOW_SEAL)),
        Property::always(ORDER, |_, w: &World| !w.broke(broken::OVERTOOK)),
        Property::always(PROMISE, |_, w: &World| !w.broke(broken::PROMISE)),
        Property::always(FAIL_CLOSED, |_, w: &World| !w.broke(broken::FAILED_OPEN)),
        Property::always(ONCE, |_, w: &World| !w.broke(broken::SENT_TWICE)),
        Property::always(ONE_ANSWER, |_, w: &World| !w.broke(broken::ANSWERED_TWICE)),
        Property::always(ALL_OR_NONE, all_or_none),
        Property::always(TRUTH, |_, w: &World| {
            (0..RESOURCES).all(|r| w.gates[r].durable() <= w.disk[r].fence)
        }),
        Property::always(PROGRESS, progress),
    ]
}

/// What a configuration can show, by name.
fn sometimes(name: &'static str) -> Property<Setup> {
    Property::sometimes(
        name,
        match name {
            DRAINING => {
                |m: &Setup, w: &World| waits_for(m, w, |p| matches!(p, Phase::Flight { .. }))
            }
            ORPHANED => {
                |m: &Setup, w: &World| waits_for(m, w, |p| matches!(p, Phase::Orphan { .. }))
            }
            DRAINED => |m: &Setup, w: &World| went_after(m, w, Phase::Done),
            OUTLIVED => |m: &Setup, w: &World| went_after(m, w, Phase::Outlived),
            CUT => |_, w: &World| has(w, |p| matches!(p, Phase::Lingering { cut: true, .. })),
            SUPERSEDED => |_, w: &World| has(w, |p| p == Phase::Refused { superseded: true }),
            STORE => |_, w: &World| has(w, |p| p == Phase::Refused { superseded: false }),
            MOVED => |m: &Setup, w: &World| {
                let mut both = w.phases.iter().zip(&m.requests);
                both.any(|(phase, request)| {
                    matches!(phase, Phase::Flight { .. }) && request.touches().count() > 1
                })
            },
            _ => panic!("no such property: {name}"),
        },
    )
}

fn has(world: &World, what: impl Fn(Phase) -> bool) -> bool {
    world.phases.iter().any(|phase| what(*phase))
}

fn all_or_none(model: &Setup, world: &World) -> bool {
    world.phases.iter().enumerate().all(|(i, phase)| {
        let awaited = |(r, _): (usize, Token)| world.gates[r].awaits(WriteId(i as u64));
        let mut touches = model.requests[i].touches();
        match phase {
            Phase::Waiting { .. } => touches.all(awaited),
            Phase::Refused { .. } => true,
            _ => !touches.any(awaited),
        }
    })
}

/// A request that waits is called later: something is under way that it can wait for.
fn progress(_: &Setup, world: &World) -> bool {
    let under_way = world.unclean
        || !world.queue.is_empty()
        || !world.reports.is_empty()
        || has(world, |p| {
            p.may_apply().is_some()
                || p == Phase::Waiting { ready: true }
                || matches!(p, Phase::Refused { .. })
        });
    under_way || !has(world, |p| p == Phase::Waiting { ready: false })
}

/// A raise is on disk, and waits while a lower write is as `lower` says.
fn waits_for(model: &Setup, world: &World, lower: fn(Phase) -> bool) -> bool {
    pairs(model, world).any(|(r, (high, token), (low, _))| {
        matches!(high, Phase::Waiting { .. }) && world.gates[r].durable() == token && lower(low)
    })
}

/// A raise is in flight, and the last write that took effect is a lower one which is now `lower`.
fn went_after(model: &Setup, world: &World, lower: Phase) -> bool {
    pairs(model, world).any(|(r, (high, _), (low, token))| {
        matches!(high, Phase::Flight { applied: 0, .. }) && world.top[r] == token && low == lower
    })
}

type Seen = (Phase, Token);

/// Each resource, and each two of its requests where the first shows the higher token.
fn pairs<'a>(model: &'a Setup, world: &'a World) -> impl Iterator<Item = (usize, Seen, Seen)> + 'a {
    let on = move |r: usize| {
        let both = world.phases.iter().zip(&model.requests);
        both.filter_map(move |(phase, request)| request.tokens[r].map(|token| (*phase, token)))
    };
    (0..RESOURCES).flat_map(move |r| {
        on(r).flat_map(move |high| {
            on(r)
                .filter(move |low| low.1 < high.1)
                .map(move |low| (r, high, low))
        })
    })
}

impl Model for Setup {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.possible(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = self.step(world, &action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let shown = self.shows.iter().map(|name| sometimes(name));
        always().into_iter().chain(shown).collect()
    }
}
