//! The composition root: the only place that names a concrete store, and the life of a gateway from
//! configuration to last request.

mod encryption;
mod error;
mod plan;
pub mod probing;
pub mod rebuild;
pub mod records;
mod reload;

pub use encryption::Encryption;
pub use error::Error;

use crate::admin;
use crate::admit::{Gates, Tenure};
use crate::clock;
use crate::config::Settings;
use crate::guard::Guards;
use crate::journey::{Plan, Worker};
use crate::lifecycle::{Heart, Manager, Pulse, Stop};
use crate::listen::{self, BindError, Bound, Limits, Passed, Room};
use crate::record::Metrics;
use crate::stamp::Stamp;
use crate::store::{Observer, RocksStore};
use crate::tls::server;
use reload::Live;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

/// Threads of a serving thread's runtime that may block on the disk.
const BLOCKING_THREADS: usize = 16;
const SWEEP: Duration = Duration::from_millis(100);
const GATE_SWEEP: Duration = Duration::from_secs(10);
/// How soon a certificate that has changed on disk is noticed.
const TLS_LOOK: Duration = Duration::from_secs(1);

/// A gateway that holds its store and its addresses, and does not serve yet.
pub struct Gateway {
    live: Live,
    store: Arc<RocksStore>,
    listeners: Vec<Bound>,
    admin: Bound,
    room: Arc<Room>,
}

struct Watcher(Arc<Metrics>);

impl Observer for Watcher {
    fn committed(&self, took: Duration, raises: usize) {
        self.0.commit_seconds.observe(took.as_secs_f64());
        #[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
        self.0.commit_batch_size.observe(raises as f64);
    }

    fn failed(&self, op: &'static str) {
        tracing::warn!(
            op,
            "the fence store failed; while it is down, /readyz says why"
        );
        self.0.store_error(op);
    }
}

impl Gateway {
    /// Opens the store and binds the addresses, but for those whose listeners were passed. From here on the store counts as unclean until
    /// [`Gateway::serve`] has ended well.
    ///
    /// # Errors
    /// [`Error`], with what to do about it. A store that was clean is left clean.
    pub fn open(settings: Settings, passed: Passed) -> Result<Self, Error> {
        let encryption = Encryption::open(&settings)?;
        let metrics = Metrics::new().map_err(|e| Error::System(e.to_string()))?;
        let metrics = Arc::new(metrics);
        let recorders = records::open(&settings, &metrics)?;
        let guards = Arc::new(Guards::default());
        let probe = probing::probe(&settings, &encryption.upstreams, &metrics, &guards);
        let tried = runtime()?.block_on(async {
            probing::credentials(&settings, &guards).await;
            probe.await
        });
        probing::required(&settings, &guards, &tried)?;
        probing::report(&settings, &tried);
        let watcher = Arc::new(Watcher(Arc::clone(&metrics)));
        let now = plan::in_force(&settings);
        let (store, handover) =
            RocksStore::open(&settings.store.path, settings.store.cache, now, watcher)?;
        // Only now is the store ours: whoever had it before has let go of its writes.
        let since = clock::now();
        if !handover.clean {
            tracing::warn!(
                settle = ?handover.before.settle,
                "the last run did not end clean: raises wait until its writes are settled"
            );
        }
        let before = handover.before;
        let tenure = Tenure::new(since, handover.clean, before.settle, before.lax);
        let left = store.take_left();
        let bound = bind(&settings, passed).map_err(Error::from);
        let ready = bound.and_then(|bound| Ok((bound, records::events(&settings, &metrics)?)));
        let ((listeners, admin), events) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                close(&store, !tenure.has_predecessor(), left)?;
                return Err(error);
            }
        };
        if let Some(left) = left {
            let objects = guards.take_up(&left, &settings);
            tracing::debug!(objects, "the last run has left what is known of objects");
        }
        let store = Arc::new(store);
        let gates = Gates::new(Arc::clone(&store) as _, tenure, Arc::clone(&metrics));
        let server = &settings.server;
        let room = Room::new(server.max_connections, server.max_connections_per_client);
        let plan = plan::first(
            settings,
            &*store,
            gates,
            metrics,
            guards,
            &encryption,
            (recorders, events),
        );
        probing::count(&plan.shared);
        Ok(Self {
            live: Live::new(plan, encryption, Arc::clone(&store)),
            store,
            listeners,
            admin,
            room,
        })
    }

    /// Reads its configuration again when that is asked for, and when the file changes. `text`: what was read
    /// from it, in that state.
    #[must_use]
    pub fn following(mut self, path: &Path, text: String, stamp: Stamp) -> Self {
        self.live.follow(path, text, stamp);
        self
    }

    /// The addresses that it serves on, with the ports that were given where 0 was asked for.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().map(|bound| bound.address)
    }

    /// The address of its admin pages.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Serves until `stop` asks for the end, finishes what is under way within `shutdown_timeout`, and
    /// closes the store: clean where nothing is unsettled. Tells `manager` how it goes.
    ///
    /// # Errors
    /// [`Error`] where a thread cannot start, or the store does not close in order.
    pub fn serve(mut self, stop: &Stop, manager: &Manager) -> Result<(), Error> {
        let workers = self.live.now().settings.server.workers;
        let mut threads = Vec::with_capacity(workers);
        let pulse = Pulse::new(workers);
        for number in 0..workers {
            let listeners = self
                .listeners
                .iter_mut()
                .filter_map(|bound| bound.listeners.pop());
            let listeners: Vec<_> = listeners.collect();
            let (live, tls, stop) = (self.live.watch(), self.live.clients_tls(), stop.clone());
            let (room, heart) = (Arc::clone(&self.room), pulse.of(number));
            let thread = thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(live, listeners, tls.as_ref(), &room, &stop, heart));
            threads.push(thread.map_err(|e| Error::System(e.to_string()))?);
        }
        let admin = self.admin.listeners.pop();
        self.watch(admin, stop, manager, &pulse)?;
        for thread in threads {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => return Err(Error::System("a serving thread panicked".into())),
            }
        }
        manager.closing();
        let last = self.live.now();
        let gates = &last.gates;
        let unsettled = gates.unsettled();
        let clean = unsettled == 0 && !gates.tenure().has_predecessor();
        if clean {
            tracing::info!("stopped clean");
        } else if unsettled > 0 {
            tracing::warn!(
                unsettled,
                "stopped inside a settle: the next start waits for it"
            );
        } else {
            tracing::warn!("stopped inside an unclean start's wait: the next start waits again");
        }
        close(&self.store, clean, last.guards.leave(&last.settings))
    }

    /// The admin pages and the housekeeping, on the calling thread, until the gateway has stopped
    /// serving.
    fn watch(
        &mut self,
        listener: Option<std::net::TcpListener>,
        stop: &Stop,
        manager: &Manager,
        pulse: &Pulse,
    ) -> Result<(), Error> {
        let runtime = runtime()?;
        let first = self.live.now();
        let state = admin::State {
            store: Arc::clone(&self.store) as _,
            metrics: Arc::clone(&first.metrics),
            events: Arc::clone(&first.events),
            raises_wait_until: first.gates.tenure().until(),
            stopping: stop.soft(),
        };
        runtime.block_on(async {
            if let Some(listener) = listener {
                let listener =
                    TcpListener::from_std(listener).map_err(|e| Error::System(e.to_string()))?;
                tokio::spawn(admin::serve(listener, state));
            }
            tokio::task::spawn_local(probing::again(self.live.watch()));
            let (gates, guards) = (Arc::clone(&first.gates), Arc::clone(&first.guards));
            drop(first);
            let mut tick = clock::ticks(GATE_SWEEP);
            let mut look = clock::ticks(TLS_LOOK);
            let mut serving = pin!(manager.serving(pulse));
            loop {
                tokio::select! {
                    _ = tick.tick() => {
                        gates.sweep();
                        guards.sweep();
                    }
                    _ = look.tick() => self.live.look(),
                    () = stop.reload_asked() => self.live.reload(),
                    () = stop.asked() => break,
                    never = &mut serving => match never {},
                }
            }
            let (patience, workers) = {
                let server = &self.live.now().settings.server;
                (server.shutdown_timeout, server.workers)
            };
            let deadline = clock::now().after(patience);
            let left = || {
                let (writes, clients) = (gates.unsettled(), self.room.taken());
                format!("{writes} writes under way or inside their settle, {clients} connections")
            };
            tokio::select! {
                () = stop.done(workers) => {}
                () = stop.hard() => {}
                () = clock::sleep_until(deadline) => {
                    tracing::warn!("shutdown_timeout has passed: cutting what is still under way");
                }
                never = manager.stopping(left) => match never {},
            }
            stop.ask_hard();
            Ok(())
        })
    }
}

fn close(store: &RocksStore, clean: bool, leaving: Option<String>) -> Result<(), Error> {
    let closed = match leaving.filter(|_| clean) {
        Some(text) => store.close_leaving(text),
        None => store.close(clean),
    };
    closed.map_err(Error::Close)
}

fn bind(settings: &Settings, mut passed: Passed) -> Result<(Vec<Bound>, Bound), BindError> {
    let server = &settings.server;
    let listeners = server
        .listen
        .iter()
        .map(|address| listen::bind(*address, server.workers, passed.at(*address)));
    let listeners = listeners.collect::<Result<_, _>>()?;
    let admin = settings.admin.listen;
    Ok((listeners, listen::bind(admin, 1, passed.at(admin))?))
}

fn runtime() -> Result<LocalRuntime, Error> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build_local(LocalOptions::default())
        .map_err(|e| Error::System(e.to_string()))
}

/// One serving thread: its own runtime, listeners and upstream connections.
fn work(
    mut live: watch::Receiver<Plan>,
    listeners: Vec<std::net::TcpListener>,
    tls: Option<&Arc<server::Tls>>,
    room: &Arc<Room>,
    stop: &Stop,
    heart: Heart,
) -> Result<(), Error> {
    let runtime = runtime()?;
    let plan = live.borrow_and_update().clone();
    let shared = &plan.shared;
    let limits = Limits {
        header_timeout: shared.settings.server.header_timeout,
        max_header_bytes: shared.settings.server.max_header_bytes,
        max_headers: shared.settings.server.max_headers,
        h2c: shared.settings.server.h2c,
        max_streams: shared.settings.server.max_streams,
    };
    let gates = Arc::clone(&shared.gates);
    let metrics = Arc::clone(&shared.metrics);
    let worker = Rc::new(Worker::new(&plan));
    drop(plan); // or what comes after it would wait for ever
    let served = runtime.block_on(async {
        let mut serving = Vec::new();
        for listener in listeners {
            let listener =
                TcpListener::from_std(listener).map_err(|e| Error::System(e.to_string()))?;
            let worker = Rc::clone(&worker);
            let serve = listen::serve(
                listener,
                tls.cloned(),
                limits,
                Arc::clone(&metrics),
                Arc::clone(room),
                stop.soft(),
                worker,
            );
            serving.push(tokio::task::spawn_local(serve));
        }
        let renewed = Rc::clone(&worker);
        tokio::task::spawn_local(async move {
            while live.changed().await.is_ok() {
                let plan = live.borrow_and_update().clone();
                renewed.renew(&plan);
            }
        });
        let adopter = Rc::clone(&worker);
        tokio::task::spawn_local(async move { adopter.adopt().await });
        let sweeper = Rc::clone(&worker);
        tokio::task::spawn_local(async move {
            let mut tick = clock::ticks(SWEEP);
            loop {
                tick.tick().await;
                sweeper.sweep();
                heart.beat();
            }
        });
        let all = async {
            for serve in serving {
                let _ = serve.await;
            }
            // Writes whose clients have left run on, and so do settles.
            while gates.unsettled() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = all => {}
            () = stop.hard() => {}
        }
        Ok(())
    });
    stop.one_done();
    served
}
