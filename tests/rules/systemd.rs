//! Under systemd: what the service manager is told, and the sockets that it passes.

use crate::support::{Client, wait_until};
use crate::upstream::Script;
use crate::world::World;
use rustix::fs::fstat;
use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(15);

/// A service manager that listens.
struct Manager {
    socket: UnixDatagram,
    address: String,
}

impl Manager {
    /// At a path in the gateway's folder.
    fn new(w: &World) -> Self {
        let path = w.gw.path("notify");
        Self::on(UnixDatagram::bind(&path), path.display().to_string())
    }

    /// In the abstract namespace.
    fn abstract_one(w: &World) -> Self {
        let name = format!("fencegate test {}", w.gw.port);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        Self::on(UnixDatagram::bind_addr(&address), format!("@{name}"))
    }

    fn on(socket: std::io::Result<UnixDatagram>, address: String) -> Self {
        let socket = socket.unwrap();
        Self { socket, address }
    }

    fn env(&self) -> [(&str, &str); 1] {
        [("NOTIFY_SOCKET", &self.address)]
    }

    /// The next word, within that time.
    fn next(&self, within: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(within)).unwrap();
        let mut word = [0; 4096];
        let length = self.socket.recv(&mut word).ok()?;
        Some(String::from_utf8(word[..length].to_vec()).unwrap())
    }

    /// The next word that has a line which begins like that, and what came before it.
    #[track_caller]
    fn hears(&self, line: &str) -> (String, Vec<String>) {
        let mut before = Vec::new();
        while let Some(word) = self.next(PATIENCE) {
            if word.lines().any(|l| l.starts_with(line)) {
                return (word, before);
            }
            before.push(word);
        }
        panic!("the manager did not hear {line}, but {before:?}");
    }
}

/// Passes this as the first socket, under that many numbers.
fn passed(socket: impl Into<OwnedFd>, times: usize) -> (String, Stdio) {
    let numbers = ["", " 3<&0", " 3<&0 4<&0"][times];
    let names = "LISTEN_FDNAMES=web:again";
    let first =
        format!("export LISTEN_PID=$$ LISTEN_FDS={times} {names}; exec{numbers} </dev/null");
    (first, socket.into().into())
}

/// The descriptors that the gateway has of that socket, each with its flags.
fn descriptors(w: &World, socket: impl AsFd) -> Vec<u32> {
    let name = format!("socket:[{}]", fstat(socket).unwrap().st_ino);
    let folder = format!("/proc/{}", w.gw.pid());
    let all = fs::read_dir(format!("{folder}/fd")).unwrap();
    let numbers = all.filter_map(|entry| {
        let path = entry.unwrap().path();
        let same = fs::read_link(&path).is_ok_and(|to| to.as_os_str() == &*name);
        same.then(|| path.file_name().unwrap().to_owned())
    });
    let flags = |number: std::ffi::OsString| {
        let info = format!("{folder}/fdinfo/{}", number.display());
        let info = fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        u32::from_str_radix(flags.unwrap().trim(), 8).unwrap()
    };
    numbers.map(flags).collect()
}

#[test]
fn the_manager_hears_that_the_gateway_serves_and_stops() {
    let mut w = World::new();
    for (tag, manager) in [
        ("first", Manager::new(&w)),
        ("second", Manager::abstract_one(&w)),
    ] {
        assert!(w.gw.stop().success());
        w.gw.begin_again_by(":", &manager.env(), Stdio::null());
        let (word, before) = manager.hears("READY=1");
        assert!(word.contains("STATUS=serving"), "{word}");
        for word in before {
            assert!(word.starts_with("STATUS=opening the store"), "{word}");
            assert!(word.contains("\nEXTEND_TIMEOUT_USEC="), "{word}");
        }
        let ready = Client::connect(w.gw.admin_port).request("GET", "/readyz", &[], b"");
        assert_eq!(ready.status, 200);
        w.put(5).send().answered(200);
        w.up.script(tag, Script::hold());
        let held = w.put(5).tag(tag).start();
        w.up.whole_of(tag);
        w.gw.ask_to_stop();
        let (word, before) = manager.hears("STOPPING=1");
        assert!(before.is_empty(), "{before:?} before {word}");
        let (word, _) = manager.hears("STATUS=stopping: 1 writes");
        assert!(word.contains("\nEXTEND_TIMEOUT_USEC="), "{word}");
        w.up.release(tag);
        held.result().answered(200);
        manager.hears("STATUS=closing the store");
        assert!(w.gw.ended().success());
        w.gw.start_again();
    }
}

#[test]
fn a_start_that_fails_is_not_said_to_serve() {
    let mut w = World::new();
    assert!(w.gw.stop().success());
    let manager = Manager::new(&w);
    let taken = TcpListener::bind(("127.0.0.1", w.gw.port)).unwrap();
    w.gw.begin_again_by(":", &manager.env(), Stdio::null());
    assert_eq!(w.gw.ended().code(), Some(1));
    drop(taken);
    while let Some(word) = manager.next(Duration::from_millis(1)) {
        assert!(!word.contains("READY=1"), "{word}");
    }
}

#[test]
fn the_watchdog_hears_nothing_while_a_serving_thread_is_stuck() {
    let mut w = World::with(|c| c.server("workers", "2"));
    assert!(w.gw.stop().success());
    let manager = Manager::new(&w);
    let env = [manager.env()[0], ("WATCHDOG_USEC", "1000000")];
    w.gw.begin_again_by("export WATCHDOG_PID=$$", &env, Stdio::null());
    manager.hears("READY=1");
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    let tasks = fs::read_dir(format!("/proc/{}/task", w.gw.pid())).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let stuck = tasks.find(|task| fs::read_to_string(task.join("comm")).unwrap() == "worker-1\n");
    // It holds the thread up where it waits, and lets it go when it ends.
    let mut holder = Command::new("strace")
        .args([
            "-qq",
            "-e",
            "inject=?epoll_wait,?epoll_pwait:delay_enter=60s",
        ])
        .arg("-p")
        .arg(stuck.unwrap().file_name().unwrap())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + PATIENCE;
    while manager.next(Duration::from_secs(3)).is_some() {
        assert!(Instant::now() < end, "a stuck thread was not noticed");
    }
    assert!(w.gw.log().contains("a serving thread is stuck"));
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&holder),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    holder.wait().unwrap();
    manager.hears("WATCHDOG=1");
}

#[test]
fn a_restart_with_a_passed_socket_loses_no_connection() {
    let mut w = World::with(|c| c.server("workers", "2"));
    assert!(w.gw.stop().success());
    let socket = TcpListener::bind(("127.0.0.1", w.gw.port)).unwrap();
    let start = |w: &mut World| {
        let (first, stdin) = passed(socket.try_clone().unwrap(), 1);
        w.gw.begin_again_by(&first, &[], stdin);
    };
    start(&mut w);
    w.gw.wait_ready();
    w.put(5).send().answered(200);
    let flags = descriptors(&w, &socket);
    assert_eq!(flags.len(), 2, "one for each thread");
    for flags in flags {
        assert_eq!(
            flags & 0o2_004_000,
            0o2_004_000,
            "CLOEXEC, NONBLOCK: {flags:o}"
        );
    }
    w.up.script("held", Script::hold());
    let held = w.put(5).tag("held").start();
    w.up.whole_of("held");
    w.gw.ask_to_stop();
    wait_until("the old process to let go of the socket", || {
        descriptors(&w, &socket).is_empty()
    });
    let connect = |w: &World, tag: &str| {
        let ask = w.put(5).tag(tag).header("Content-Length", "4");
        let mut client = ask.open();
        client.send(b"data");
        client
    };
    let during = connect(&w, "during");
    w.up.release("held");
    held.result().answered(200);
    assert!(w.gw.ended().success());
    let between = connect(&w, "between");
    assert_eq!(w.up.count("during"), 0);
    start(&mut w);
    for mut client in [during, between] {
        client.response("PUT").answered(200);
    }
    assert_eq!((w.up.count("during"), w.up.count("between")), (1, 1));
}

#[test]
fn the_admin_socket_may_be_passed_alone() {
    let mut w = World::new();
    assert!(w.gw.stop().success());
    let socket = TcpListener::bind(("127.0.0.1", w.gw.admin_port)).unwrap();
    let (first, stdin) = passed(socket.try_clone().unwrap(), 1);
    w.gw.begin_again_by(&first, &[], stdin);
    w.gw.wait_ready();
    assert_eq!(descriptors(&w, &socket).len(), 1);
    w.put(5).send().answered(200);
}

#[test]
fn a_passed_socket_that_fits_nothing_stops_the_start() {
    let mut w = World::new();
    assert!(w.gw.stop().success());
    let any = ("127.0.0.1", 0);
    let other = TcpListener::bind(any).unwrap();
    let address = other.local_addr().unwrap().to_string();
    let own = TcpListener::bind(("127.0.0.1", w.gw.port)).unwrap();
    let connection = TcpStream::connect(other.local_addr().unwrap()).unwrap();
    let datagrams = UdpSocket::bind(any).unwrap();
    for ((first, stdin), parts) in [
        (
            passed(other.try_clone().unwrap(), 1),
            ["(web)", &*address, "server.listen", "admin.listen"],
        ),
        (passed(own, 2), ["(again)", "another", "listens on", ""]),
        (passed(connection, 1), ["(web)", "does not listen", "", ""]),
        (passed(datagrams, 1), ["(web)", "not a valid tcp", "", ""]),
    ] {
        let before = w.gw.log().len();
        w.gw.begin_again_by(&first, &[], stdin);
        assert_eq!(w.gw.ended().code(), Some(2));
        let said = w.gw.log().split_off(before);
        for part in parts {
            assert!(said.contains(part), "no {part} in {said}");
        }
    }
    // What was passed to another process is none of its business.
    let (first, stdin) = passed(other, 1);
    let first = first.replace("$$", "1");
    w.gw.begin_again_by(&first, &[], stdin);
    w.gw.wait_ready();
    assert!(!w.gw.log().contains("did not end clean"));
}
