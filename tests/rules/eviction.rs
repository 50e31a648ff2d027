//! Gates leave memory, and never are there two for one key. Over the gates themselves, since nothing
//! outside of the process shows them.

use fencegate::admit::{Denial, Gates, Outcome, Policy, Settles, Tenure, Want};
use fencegate::clock;
use fencegate::fence::{Accept, Format, Kind, Missing, Refusal, ResourceKey, Rules, Token};
use fencegate::record::Metrics;
use fencegate::store::{InForce, Observer, RocksStore};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

struct Deaf;
impl Observer for Deaf {}

struct House {
    gates: Arc<Gates>,
    policy: Arc<Policy>,
    store: Arc<RocksStore>,
    folder: TempDir,
}

/// What is forwarded for each key: the highest token so far, and the tokens in flight.
type Ground = Arc<Vec<Mutex<(u64, Vec<u64>)>>>;

impl House {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        RocksStore::init(folder.path()).unwrap();
        Self::open(folder)
    }

    fn open(folder: TempDir) -> Self {
        let settle = Duration::from_millis(1);
        let now = InForce { settle, lax: false };
        let (store, _) = RocksStore::open(folder.path(), 8 << 20, now, Arc::new(Deaf)).unwrap();
        let store = Arc::new(store);
        let metrics = Arc::new(Metrics::new().unwrap());
        let policy = Policy {
            rules: Rules {
                accept: Accept::SameOrNewer,
                missing: Missing::Reject,
                preempt: true,
                max_waiting: 1024,
                max_advance: None,
                first_max: None,
                format: Format::U64,
            },
            observe: false,
            drain_timeout: Duration::from_secs(20),
            settles: Settles {
                whole: Some(settle),
                incomplete: Some(settle),
            },
            budget: None,
            ancestors: Vec::new(),
            handover: None,
            metrics: metrics.route("r"),
        };
        let tenure = Tenure::new(clock::now(), true, settle, false);
        Self {
            gates: Gates::new(Arc::clone(&store) as _, tenure, metrics),
            policy: Arc::new(policy),
            store,
            folder,
        }
    }

    fn want<'a>(&'a self, key: &'a ResourceKey, token: u64) -> Want<'a> {
        Want {
            key,
            token: Token::new(0, token),
            policy: &self.policy,
        }
    }

    /// Admits a write and ends it as answered. Says whether it was admitted.
    fn write(&self, on: &Runtime, name: u64, token: u64) -> bool {
        let admitted = on.block_on(self.gates.admit(
            &[self.want(&key(name), token)],
            Kind::Write,
            &self.policy,
            Vec::new(),
        ));
        match admitted {
            Ok(pass) => {
                pass.finish(Outcome::Answered);
                true
            }
            Err(denied) => {
                assert_eq!(denied.why, Denial::Refused(Refusal::Stale));
                false
            }
        }
    }
}

impl House {
    /// Admits a write, and checks against the ground that no lower one comes after it or beside it.
    fn write_on(&self, on: &Runtime, ground: &Ground, name: u64, token: u64) {
        let key = key(name);
        let wants = [self.want(&key, token)];
        let admit = self
            .gates
            .admit(&wants, Kind::Write, &self.policy, Vec::new());
        let Ok(pass) = on.block_on(admit) else {
            return;
        };
        let ground = &ground[usize::try_from(name).unwrap()];
        {
            let mut ground = ground.lock();
            assert!(token >= ground.0, "{token} after {} on k{name}", ground.0);
            let alone = ground.1.iter().all(|other| *other == token);
            assert!(alone, "{token} beside {:?} on k{name}", ground.1);
            ground.0 = token;
            ground.1.push(token);
        }
        thread::sleep(Duration::from_micros(token % 4 * 100));
        ground.lock().1.retain(|other| *other != token);
        pass.finish(Outcome::Answered);
        thread::sleep(Duration::from_micros(token % 3 * 300));
    }
}

fn key(name: u64) -> ResourceKey {
    ResourceKey::new("default", format!("k{name}").as_bytes()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn idle_gates_leave_memory_and_the_fence_holds() {
    let house = House::new();
    let on = runtime();
    for name in 0..500 {
        assert!(house.write(&on, name, 5));
    }
    assert_eq!(house.gates.len(), 500);
    let held = on.block_on(house.gates.admit(
        &[house.want(&key(7), 5)],
        Kind::Write,
        &house.policy,
        Vec::new(),
    ));
    house.gates.sweep(); // all were touched since
    assert_eq!(house.gates.len(), 500);
    house.gates.sweep();
    assert_eq!(
        house.gates.len(),
        1,
        "a gate with a write in flight must stay, the others go"
    );
    for name in 0..500 {
        assert!(!house.write(&on, name, 4), "k{name} forgot its fence");
        assert!(house.write(&on, name, 5));
    }
    let held = held.unwrap_or_else(|denied| panic!("{denied:?}"));
    // Inside a runtime, which must outlive the settle.
    on.block_on(async {
        held.finish(Outcome::Unknown {
            whole: true,
            since: clock::now(),
        });
    });
    house.gates.sweep();
    house.gates.sweep();
    assert!(house.gates.len() <= 1, "only what is unsettled may stay");
    on.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    house.gates.sweep();
    house.gates.sweep();
    assert!(house.gates.is_empty());
    // And from the disk.
    let House {
        gates,
        store,
        folder,
        ..
    } = house;
    drop(gates);
    store.close(true).unwrap();
    let house = House::open(folder);
    assert!(!house.write(&on, 7, 4));
    assert!(house.write(&on, 7, 5));
}

#[test]
fn two_gates_for_one_key_are_impossible() {
    const KEYS: u64 = 6;
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 12;
    let house = Arc::new(House::new());
    let ground: Ground = Arc::new((0..KEYS).map(|_| Mutex::default()).collect());
    let clock = Arc::new(AtomicU64::new(2));
    let meet = Arc::new(Barrier::new(usize::try_from(WRITERS).unwrap() + 1));
    let over = Arc::new(AtomicBool::new(false));
    let sweeper = {
        let (house, over) = (Arc::clone(&house), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                house.gates.sweep();
                thread::sleep(Duration::from_micros(200));
            }
        })
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (house, ground) = (Arc::clone(&house), Arc::clone(&ground));
            let (clock, meet) = (Arc::clone(&clock), Arc::clone(&meet));
            thread::spawn(move || {
                let on = runtime();
                for _ in 0..ROUNDS {
                    for turn in 0..12 {
                        let name = (writer + turn * 5) % KEYS;
                        // Now and then an old token, mostly a fresh one.
                        let token = clock.fetch_add(1, Ordering::Relaxed);
                        let token = if turn % 7 == 3 { token / 2 } else { token };
                        house.write_on(&on, &ground, name, token);
                    }
                    meet.wait(); // nothing is under way
                    meet.wait(); // and nothing is in memory
                }
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        meet.wait();
        house.gates.sweep();
        house.gates.sweep();
        assert!(house.gates.is_empty());
        meet.wait();
    }
    over.store(true, Ordering::Relaxed);
    sweeper.join().unwrap();
    for writer in writers {
        writer.join().unwrap();
    }
    let on = runtime();
    for name in 0..KEYS {
        let highest = ground[usize::try_from(name).unwrap()].lock().0;
        assert!(!house.write(&on, name, highest - 1));
        assert!(house.write(&on, name, highest));
    }
}
