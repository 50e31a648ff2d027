//! The service manager (systemd), told how the gateway is doing: `sd_notify(3)`.
//!
//! Knows nothing of what it tells of. Where no manager waits to be told, it does nothing.

use super::pulse::Pulse;
use crate::clock;
use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// How long the manager is to wait for the next word while a start or a stop takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it hears something meanwhile.
const AT_START: Duration = Duration::from_secs(5);
const AT_STOP: Duration = Duration::from_secs(1);

/// How long it may take to take a word. It is told by the thread that keeps the time of a stop.
const TAKES: Duration = Duration::from_secs(1);

/// The service manager, or nobody.
#[derive(Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`. Where it
    /// cannot be reached that is logged.
    #[must_use]
    pub fn from_env() -> Self {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|value| !value.is_empty()) else {
            return Self::default();
        };
        let socket = connect(&address);
        if let Err(error) = &socket {
            tracing::warn!(?address, %error, "the service manager cannot be told anything");
        }
        let text = |name| env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
        Self {
            watchdog: watchdog.filter(|_| socket.is_ok()),
            socket: socket.ok(),
        }
    }

    /// Does what a start has to do, which may take long, and lets the manager wait for it.
    pub fn starting<T>(&self, start: impl FnOnce() -> T) -> T {
        if self.socket.is_none() {
            return start();
        }
        thread::scope(|scope| {
            let (done, wait) = sync_channel::<()>(0);
            let telling = move || {
                loop {
                    self.tell(&format!("STATUS=opening the store\n{}", extended()));
                    if wait.recv_timeout(AT_START) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            };
            let thread = thread::Builder::new().name("starting".into());
            if let Err(error) = thread.spawn_scoped(scope, telling) {
                tracing::warn!(%error, "the service manager is not asked to wait for the start");
            }
            let started = start();
            drop(done);
            started
        })
    }

    /// Says that the gateway serves, once all its threads do. From then on says that all is well, twice in
    /// the time that the manager asks for, as long as all of them go on. To be dropped at the stop.
    pub async fn serving(&self, pulse: &Pulse) -> Infallible {
        pulse.all_began().await;
        self.tell("READY=1\nSTATUS=serving");
        let Some(watchdog) = self.watchdog else {
            return pending().await;
        };
        let mut tick = clock::ticks(watchdog / 2);
        let mut last = pulse.count();
        loop {
            tick.tick().await;
            let now = pulse.count();
            if last.iter().zip(&now).all(|(last, now)| last != now) {
                self.tell("WATCHDOG=1");
            } else {
                tracing::warn!("a serving thread is stuck: the watchdog is not told otherwise");
            }
            last = now;
        }
    }

    /// Says that the gateway stops, and what is left to be done, for as long as this is polled.
    pub async fn stopping(&self, left: impl Fn() -> String) -> Infallible {
        self.tell("STOPPING=1");
        let mut tick = clock::ticks(AT_STOP);
        loop {
            tick.tick().await;
            self.tell(&format!("STATUS=stopping: {}\n{}", left(), extended()));
        }
    }

    /// Says that the store is being closed.
    pub fn closing(&self) {
        self.tell(&format!("STATUS=closing the store\n{}", extended()));
    }

    fn tell(&self, what: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(what.as_bytes()) {
            tracing::warn!(what, %error, "the service manager was not told");
        }
    }
}

fn extended() -> String {
    format!("EXTEND_TIMEOUT_USEC={}", PATIENCE.as_micros())
}

/// A path, or a name in the abstract namespace after an `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TAKES))?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    Ok(socket)
}

/// How often the manager wants to hear that all is well; `None` where it does not, or from another process.
fn watchdog(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let ours = |pid: String| pid.parse() == Ok(std::process::id());
    let micros = micros.filter(|_| pid.is_none_or(ours))?.parse().ok()?;
    (micros > 1).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_of_another_process_is_none() {
        let of =
            |micros: &str, pid: Option<&str>| watchdog(Some(micros.into()), pid.map(Into::into));
        let own = std::process::id().to_string();
        let second = Some(Duration::from_secs(1));
        assert_eq!(of("1000000", None), second);
        assert_eq!(of("1000000", Some(&own)), second);
        assert_eq!(of("1000000", Some("1")), None);
        assert_eq!(of("often", Some(&own)), None);
        assert_eq!(of("0", Some(&own)), None);
        assert_eq!(watchdog(None, None), None);
    }
}
