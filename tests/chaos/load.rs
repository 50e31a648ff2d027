//! The lock service and its clients: threads that take locks, lose them, and write on regardless.

use crate::call::{Call, Caller, Ended};
use crate::plan::{Mix, PAIRS, Rng, Task};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// The lock service: one lock for each pair of resources, and a number that grows with each holder.
#[derive(Default)]
pub struct Locks([AtomicU64; PAIRS.len()]);

impl Locks {
    /// Gives the lock to a new holder, whatever the last one believes: the new token.
    pub fn grant(&self, pair: usize) -> u64 {
        self.0[pair].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The token of whoever holds the lock now.
    pub fn current(&self, pair: usize) -> u64 {
        self.0[pair].load(Ordering::SeqCst)
    }
}

/// Clients at work. What they know is gathered when they stop.
pub struct Load {
    /// The lock service.
    pub locks: Arc<Locks>,
    stop: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Call>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Sets so many writers to work.
    pub fn start(port: u16, seed: u64, writers: u64, mix: Mix) -> Self {
        let load = Self {
            locks: Arc::default(),
            stop: Arc::default(),
            calls: Arc::default(),
            threads: Vec::new(),
        };
        let spawn = |number| {
            let mut writer = Writer {
                name: format!("w{number}"),
                rng: Rng(seed ^ (number << 40)),
                mix,
                caller: Caller::new(port),
                locks: Arc::clone(&load.locks),
                mine: [0; PAIRS.len()],
            };
            let (stop, calls) = (Arc::clone(&load.stop), Arc::clone(&load.calls));
            thread::spawn(move || {
                let mut sent = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    sent += 1;
                    let call = writer.step(sent);
                    let Ended::Answer { own: false, .. } = call.end else {
                        // So that zombies do not take the machine for themselves.
                        thread::sleep(writer.rng.millis(10));
                        if call.end != Ended::Unsent {
                            calls.lock().push(call);
                        }
                        continue;
                    };
                    calls.lock().push(call);
                }
            })
        };
        Self {
            threads: (0..writers).map(spawn).collect(),
            ..load
        }
    }

    /// Lets every writer end what it is at. What they know of their requests.
    pub fn stop(self) -> Vec<Call> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut *self.calls.lock())
    }
}

struct Writer {
    name: String,
    rng: Rng,
    mix: Mix,
    caller: Caller,
    locks: Arc<Locks>,
    /// The last token that it was given for each pair: it may be long out of date.
    mine: [u64; PAIRS.len()],
}

impl Writer {
    fn step(&mut self, number: u64) -> Call {
        let pair = usize::try_from(self.rng.below(PAIRS.len() as u64)).unwrap();
        let token = match self.rng.below(100) {
            0..8 => self.take_lock(pair),
            8..65 => match self.locks.current(pair) {
                0 => self.take_lock(pair),
                token => token, // another thread of the holder
            },
            65..95 => match self.mine[pair] {
                0 => self.take_lock(pair),
                token => token,
            },
            95..98 => 1,
            _ => 0,
        };
        let tag = format!("{}-{number}", self.name);
        let token = (token > 0).then_some(token);
        let task = Task::next(&mut self.rng, tag, pair, token, self.mix);
        self.caller.call(&task)
    }

    fn take_lock(&mut self, pair: usize) -> u64 {
        self.mine[pair] = self.locks.grant(pair);
        self.mine[pair]
    }
}
