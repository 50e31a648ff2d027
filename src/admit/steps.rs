//! Events to the gates, under their locks, and what the gates want done about them.

use super::cell::{Cell, Core};
use super::ticket::{Stop, Ticket};
use super::{Budget, Denial, Denied, Gates};
use crate::clock::{self, Time};
use crate::fence::crossing::{self, Crossing, Entry};
use crate::fence::{Effect, Kind, Refusal, ResourceKey, Token};
use crate::store::{Raise, Record};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::sync::Arc;

/// What remains to be done once the locks are released.
enum Task {
    Proceed(Arc<Ticket>),
    Leave(Arc<Ticket>),
    MarkDrained(ResourceKey, Token),
    Commit {
        cell: Arc<Cell>,
        token: Token,
        drained: bool,
    },
}

type Cores<'a> = SmallVec<[MutexGuard<'a, Core>; 1]>;

/// A request arrives at its gates. Refused: nothing has changed.
pub(super) fn arrive(gates: &Arc<Gates>, ticket: &Arc<Ticket>, now: Time) -> Result<Entry, Denied> {
    let mut tasks = Vec::new();
    let mut cores = lock(ticket);
    take_over_where_due(gates, &mut cores);
    let verdict = enter(ticket, &mut cores, now);
    collect(ticket, &mut cores, &mut tasks);
    drop(cores);
    if verdict.as_ref().is_ok_and(|entry| entry.raised) {
        ticket.policy.metrics.raises.inc();
    }
    run(gates, tasks, Some(ticket));
    let entry = verdict?;
    if ticket
        .stops
        .iter()
        .any(|stop| gates.reaches.cover(stop.cell.key.as_bytes()))
    {
        turn_back(gates, ticket, entry);
        return Err(Refusal::Busy.into());
    }
    Ok(entry)
}

/// The step itself, under the locks of every gate.
fn enter(ticket: &Arc<Ticket>, cores: &mut Cores<'_>, now: Time) -> Result<Entry, Denied> {
    take_budget(ticket, cores)?;
    let before: SmallVec<[Token; 1]> = cores.iter().map(|core| core.gate.fence()).collect();
    let verdict = crossing::arrive(&mut crossings(ticket, cores), ticket.id, ticket.kind);
    match verdict {
        Ok(entry) => {
            register(ticket, cores, entry, &before, now);
            Ok(entry)
        }
        Err(why) => {
            give_back_budget(ticket, cores, ticket.stops.len());
            Err(describe(ticket, cores, why))
        }
    }
}

/// Takes a request out again that came below another one's reach. A fence that it raised stays.
fn turn_back(gates: &Arc<Gates>, ticket: &Arc<Ticket>, entry: Entry) {
    if entry.forwarded || leave(gates, ticket) == Some(Ok(())) {
        settled(gates, ticket, true);
    }
}

/// A request is forwarded whatever its gates say. Returns what they say, and whether it raised.
pub(super) fn observe(gates: &Arc<Gates>, ticket: &Arc<Ticket>) -> (Result<(), Refusal>, bool) {
    let mut tasks = Vec::new();
    let mut cores = lock(ticket);
    take_over_where_due(gates, &mut cores);
    let before: SmallVec<[Token; 1]> = cores.iter().map(|core| core.gate.fence()).collect();
    let veto = take_budget(ticket, &cores).err().map(|_| Refusal::TooFar);
    let (verdict, raised) = crossing::observe(
        &mut crossings(ticket, &mut cores),
        ticket.id,
        ticket.kind,
        veto,
    );
    if verdict.is_err() && veto.is_none() {
        give_back_budget(ticket, &cores, ticket.stops.len());
    }
    let entry = Entry {
        forwarded: true,
        raised,
    };
    register(ticket, &mut cores, entry, &before, clock::now());
    collect(ticket, &mut cores, &mut tasks);
    drop(cores);
    if raised {
        ticket.policy.metrics.raises.inc();
    }
    run(gates, tasks, Some(ticket));
    (verdict, raised)
}

/// What a predecessor left in flight is settled.
pub(super) fn take_over(gates: &Arc<Gates>, ticket: &Arc<Ticket>) {
    on_each(gates, ticket, take_over_core);
}

/// A request stops waiting. `None`: it stood in line until now. Else the verdict that came first.
pub(super) fn leave(gates: &Arc<Gates>, ticket: &Arc<Ticket>) -> Option<Result<(), Refusal>> {
    let mut tasks = Vec::new();
    let mut cores = lock(ticket);
    // The verdict is given under the locks, so it cannot come in between.
    if let Some(verdict) = ticket.decided() {
        return Some(verdict);
    }
    for core in &mut cores {
        core.gate.abandon(ticket.id);
        core.remove(ticket.id);
    }
    collect(ticket, &mut cores, &mut tasks);
    drop(cores);
    run(gates, tasks, None);
    None
}

/// A write in flight can no longer change its resources.
pub(super) fn settled(gates: &Arc<Gates>, ticket: &Arc<Ticket>, unsent: bool) {
    on_each(gates, ticket, |core| {
        core.gate.settled(ticket.id, unsent);
        core.remove(ticket.id);
    });
}

/// Whether the request's token is still the fence of every gate that it touches.
pub(super) fn is_current(ticket: &Arc<Ticket>) -> bool {
    !ticket.is_cut()
        && ticket.stops.iter().all(|Stop { cell, token, .. }| {
            token.is_none() || cell.lock().is_some_and(|core| core.gate.fence() == *token)
        })
}

/// A refusal with what the gates know about it.
pub(super) fn denied(ticket: &Arc<Ticket>, why: Refusal) -> Denied {
    describe(ticket, &lock(ticket), why)
}

fn describe(ticket: &Ticket, cores: &[MutexGuard<'_, Core>], why: Refusal) -> Denied {
    let against = ticket
        .stops
        .iter()
        .zip(cores)
        .find(|(stop, core)| match why {
            Refusal::Stale | Refusal::Superseded => stop.token < core.gate.fence(),
            _ => true,
        });
    let Some((stop, core)) = against else {
        return why.into();
    };
    let age = core
        .last_raise
        .filter(|(before, _)| why == Refusal::Stale && stop.token <= *before)
        .map(|(_, at)| clock::now().since(at));
    Denied {
        why: Denial::Refused(why),
        fence: core.gate.fence(),
        age,
        of: Some((stop.cell.key.clone(), stop.token)),
    }
}

/// Locks every gate of a request, in key order.
fn lock(ticket: &Ticket) -> Cores<'_> {
    // A ticket is made of loaded cells only, so that none is left out.
    ticket
        .stops
        .iter()
        .filter_map(|stop| stop.cell.lock())
        .collect()
}

fn crossings<'a>(
    ticket: &'a Ticket,
    cores: &'a mut [MutexGuard<'_, Core>],
) -> SmallVec<[Crossing<'a>; 1]> {
    let stops = cores.iter_mut().zip(&ticket.stops);
    stops
        .map(|(core, stop)| Crossing {
            gate: &mut core.gate,
            token: stop.token,
            rules: &stop.policy.rules,
        })
        .collect()
}

/// Takes room for each resource that the request would create. Refused: nothing is taken.
fn take_budget(ticket: &Ticket, cores: &[MutexGuard<'_, Core>]) -> Result<(), Denied> {
    for (at, (stop, core)) in ticket.stops.iter().zip(cores).enumerate() {
        if let Some(budget) = new_budget(stop, core)
            && !budget.take()
        {
            give_back_budget(ticket, cores, at);
            return Err(Denied {
                why: Denial::TooManyResources,
                ..Refusal::TooFar.into()
            });
        }
    }
    Ok(())
}

/// Gives back what was taken for the first `count` stops.
fn give_back_budget(ticket: &Ticket, cores: &[MutexGuard<'_, Core>], count: usize) {
    for (stop, core) in ticket.stops.iter().zip(cores).take(count) {
        if let Some(budget) = new_budget(stop, core) {
            budget.give_back();
        }
    }
}

/// The bound that counts a resource, where the request would create it.
fn new_budget<'a>(stop: &'a Stop, core: &Core) -> Option<&'a Budget> {
    let new = !stop.token.is_none() && core.gate.fence().is_none();
    stop.policy.budget.as_deref().filter(|_| new)
}

fn take_over_where_due(gates: &Gates, cores: &mut Cores<'_>) {
    if !gates.tenure.has_predecessor() {
        for core in cores {
            take_over_core(core);
        }
    }
}

fn register(
    ticket: &Arc<Ticket>,
    cores: &mut Cores<'_>,
    entry: Entry,
    before: &[Token],
    now: Time,
) {
    for (core, before) in cores.iter_mut().zip(before) {
        if core.gate.fence() > *before {
            core.last_raise = Some((*before, now));
        }
        if !(entry.forwarded && ticket.kind == Kind::Read) {
            core.tickets.push(Arc::clone(ticket));
        }
    }
}

fn take_over_core(core: &mut Core) {
    if core.gate.has_predecessor() {
        core.gate.taken_over();
    }
}

/// Applies an event to each gate of a ticket, one after the other.
fn on_each(gates: &Arc<Gates>, ticket: &Arc<Ticket>, event: impl Fn(&mut Core)) {
    let mut tasks = Vec::new();
    for Stop { cell, .. } in &ticket.stops {
        if let Some(mut core) = cell.lock() {
            event(&mut core);
            collect_one(cell, &mut core, &mut tasks);
        }
    }
    run(gates, tasks, None);
}

fn collect(ticket: &Ticket, cores: &mut Cores<'_>, tasks: &mut Vec<Task>) {
    for (core, stop) in cores.iter_mut().zip(&ticket.stops) {
        collect_one(&stop.cell, core, tasks);
    }
}

/// Takes a gate's effects: signals go out at once, the rest waits until the locks are released.
fn collect_one(cell: &Arc<Cell>, core: &mut Core, tasks: &mut Vec<Task>) {
    if !core.gate.has_effects() {
        return;
    }
    for effect in core.gate.take_effects() {
        match effect {
            Effect::Commit { token, drained } => {
                tasks.push(Task::Commit {
                    cell: Arc::clone(cell),
                    token,
                    drained,
                });
            }
            Effect::Refuse(id, why) => {
                if let Some(ticket) = core.remove(id) {
                    ticket.decide(Err(why));
                    if ticket.stops.len() > 1 {
                        tasks.push(Task::Leave(ticket));
                    }
                }
            }
            Effect::Ready(id) => {
                tasks.extend(core.ticket(id).cloned().map(Task::Proceed));
            }
            Effect::Cut(id) => {
                if let Some(ticket) = core.ticket(id) {
                    ticket.cut();
                }
            }
            Effect::MarkDrained(token) => {
                tasks.push(Task::MarkDrained(cell.key.clone(), token));
            }
        }
    }
}

/// Does what is left to do, and what follows from that, without any lock held in between.
fn run(gates: &Arc<Gates>, mut tasks: Vec<Task>, raiser: Option<&Arc<Ticket>>) {
    let mut commits = Vec::new();
    while let Some(task) = tasks.pop() {
        match task {
            Task::Proceed(ticket) => proceed(&ticket, &mut tasks),
            Task::Leave(ticket) => {
                for Stop { cell, .. } in &ticket.stops {
                    if let Some(mut core) = cell.lock() {
                        core.gate.abandon(ticket.id);
                        core.remove(ticket.id);
                        collect_one(cell, &mut core, &mut tasks);
                    }
                }
            }
            Task::MarkDrained(key, token) => gates.store.mark_drained(key, token),
            Task::Commit {
                cell,
                token,
                drained,
            } => commits.push((cell, token, drained)),
        }
    }
    if let Some(raiser) = raiser
        && !commits.is_empty()
    {
        commit(gates, raiser, commits);
    }
}

fn proceed(ticket: &Arc<Ticket>, tasks: &mut Vec<Task>) {
    let mut cores = lock(ticket);
    if crossing::proceed(&mut crossings(ticket, &mut cores), ticket.id) {
        if ticket.kind == Kind::Read {
            for core in &mut cores {
                core.remove(ticket.id);
            }
        }
        ticket.decide(Ok(()));
    }
    collect(ticket, &mut cores, tasks);
}

/// Sends the raise to the committer: every fence of the request that is not on disk, in one batch,
/// those included whose commit another request has asked for already.
fn commit(gates: &Arc<Gates>, raiser: &Arc<Ticket>, mut due: Vec<(Arc<Cell>, Token, bool)>) {
    for Stop { cell, token, .. } in &raiser.stops {
        let asked = due.iter().any(|(other, ..)| Arc::ptr_eq(other, cell));
        let durable = cell.lock().is_none_or(|core| core.gate.durable() >= *token);
        if !asked && !durable {
            due.push((Arc::clone(cell), *token, false));
        }
    }
    let record = |(cell, token, drained): &(Arc<Cell>, Token, bool)| {
        (
            cell.key.clone(),
            Record {
                token: *token,
                drained: *drained,
            },
        )
    };
    let (shared, raiser) = (Arc::clone(gates), Arc::clone(raiser));
    gates.store.commit(Raise {
        fences: due.iter().map(record).collect(),
        counted_for: raiser.policy.budget.as_ref().map(|b| Arc::clone(b.route())),
        done: Box::new(move |result| {
            if result.is_ok() {
                raiser.durable(clock::now());
            }
            let mut tasks = Vec::new();
            for (cell, token, drained) in &due {
                if let Some(mut core) = cell.lock() {
                    match &result {
                        Ok(()) => core.gate.committed(*token, *drained),
                        Err(_) => core.gate.commit_failed(*token),
                    }
                    collect_one(cell, &mut core, &mut tasks);
                }
            }
            run(&shared, tasks, None);
        }),
    });
}
