//! A journey through a real Apache httpd with `mod_dav`: which conditions it honours, what the guard makes of its
//! `ETag`s, and the late write that it refuses itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use support::holding::Holding;
use support::{Client, Config, Gateway, Response, free_port, wait_until};
use tempfile::TempDir;

/// Makes an `ETag` of the content: the only kind that Apache has which is strong at once.
const DIGEST: &str = "FileETag Digest";
/// Debian's number for `nobody`: Apache does not serve as root.
const NOBODY: u32 = 65534;

/// An Apache of our own: one process, nothing outside its folder.
struct Apache {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl Apache {
    /// Starts one with these settings besides.
    fn start(settings: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("fencegate-apache-")
            .tempdir()
            .unwrap();
        let port = free_port();
        let base = folder.path().display();
        let module = |name: &str| {
            format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
        };
        let modules: String = ["mpm_event", "authz_core", "reqtimeout", "dav", "dav_fs"]
            .map(module)
            .concat();
        let config = format!(
            "{modules}
            ServerName 127.0.0.1
            Listen 127.0.0.1:{port}
            ServerRoot {base}
            DefaultRuntimeDir {base}
            PidFile {base}/httpd.pid
            ErrorLog {base}/error.log
            LogLevel error
            LogFormat \"%{{X-Tag}}i %>s %{{If-Match}}i %{{If-None-Match}}i\" conditions
            CustomLog {base}/access.log conditions
            DocumentRoot {base}/root
            DavLockDB {base}/locks/db
            <Directory {base}/root>
                Dav On
                Require all granted
            </Directory>
            {settings}\n"
        );
        let file = folder.path().join("httpd.conf");
        fs::write(&file, config).unwrap();
        for name in ["root", "root/files", "locks"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let mut command = Command::new("/usr/sbin/apache2");
        command.args(["-X", "-f"]).arg(&file).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            for name in ["", "root/files", "locks"] {
                chown(folder.path().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command.spawn().unwrap_or_else(|e| {
            panic!("cannot start Apache httpd ({e}); to install it: tools/need.sh test")
        });
        let mut apache = Self {
            port,
            folder,
            child,
        };
        wait_until("Apache httpd", || {
            if let Some(status) = apache.child.try_wait().unwrap() {
                panic!("Apache httpd ended with {status}; what it said stands above");
            }
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        apache
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        Client::connect(self.port).request(method, path, headers, body)
    }

    /// Puts a file past the gateway.
    fn put(&self, path: &str, body: &[u8]) {
        let status = self.send("PUT", path, &[], body).status;
        assert!(matches!(status, 201 | 204), "{status}");
    }

    /// The `ETag` of what is there.
    fn etag(&self, path: &str) -> Option<String> {
        let seen = self.send("HEAD", path, &[], b"");
        seen.header("ETag").map(str::to_owned)
    }

    /// What is on its disk.
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join("root").join(&path[1..])).ok()
    }

    /// Lets a file be changed that much earlier or later than it was.
    fn changed(&self, path: &str, by: Duration, later: bool) {
        let file = self.folder.path().join("root").join(&path[1..]);
        let file = File::options().write(true).open(file).unwrap();
        let was = file.metadata().unwrap().modified().unwrap();
        let is = if later { was + by } else { was - by };
        file.set_modified(is).unwrap();
    }

    /// Waits until it has logged the answer to the request of that tag (`X-Tag`). Gives its status and its conditions,
    /// `-` where there is none: `If-Match` and `If-None-Match`.
    fn logged(&self, tag: &str) -> (u16, String, String) {
        let start = format!("{tag} ");
        let mut found = None;
        wait_until("Apache's log", || {
            let log = fs::read_to_string(self.folder.path().join("access.log")).unwrap();
            let mut lines = log.lines().filter_map(|line| line.strip_prefix(&start));
            found = lines.next().map(str::to_owned);
            found.is_some()
        });
        // A quotation mark has a backslash before it there.
        let found = found.unwrap().replace('\\', "");
        let words: Vec<_> = found.split(' ').collect();
        (words[0].parse().unwrap(), words[1].into(), words[2].into())
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("error.log"));
            eprintln!("Apache httpd said:\n{}", log.unwrap_or_default());
        }
    }
}

/// A route with the guard, before that port.
fn guarded(port: u16, guard: &str) -> Config {
    Config::new(port)
        .upstream("probe", "\"/files/probe\"")
        .route("guard", &format!("\"{guard}\""))
}

/// Sends a write of that tag with a token.
fn tagged(gateway: &Gateway, method: &str, path: &str, token: u64, tag: &str) -> Response {
    let headers = [("Fencing-Token", &*token.to_string()), ("X-Tag", tag)];
    let body: &[u8] = if method == "PUT" { tag.as_bytes() } else { b"" };
    gateway.client().request(method, path, &headers, body)
}

fn metric(gateway: &Gateway, name: &str) -> u64 {
    let page = Client::connect(gateway.admin_port).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let line = format!("{name}{{route=\"files\"}} ");
    let found = page.lines().find_map(|found| found.strip_prefix(&line));
    found.unwrap().parse().unwrap()
}

fn conflicts(gateway: &Gateway) -> u64 {
    metric(gateway, "fencegate_guard_conflicts_total")
}

fn gaps(gateway: &Gateway) -> u64 {
    metric(gateway, "fencegate_guard_gaps_total")
}

#[test]
fn the_probe_finds_every_condition_honoured_where_etags_are_strong_at_once() {
    let apache = Apache::start(DIGEST);
    let required = guarded(apache.port, "etag").route("guard_required", "true");
    let gateway = Gateway::start(required);
    let (code, said) = gateway.command(&["check", "--probe"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("probe of route files: guarded: every condition is honoured"),
        "{said}"
    );
    let left = fs::read_dir(apache.folder.path().join("root/files")).unwrap();
    assert_eq!(left.count(), 0, "the probe takes its objects away again");
}

#[test]
fn each_write_names_what_the_last_one_left() {
    let apache = Apache::start(DIGEST);
    let gateway = Gateway::start(guarded(apache.port, "etag"));
    let path = "/files/a";
    let mut left = "-".to_owned();
    // In quick succession: with the default the ETags would be weak.
    for (token, body) in [(5, "one"), (5, "two"), (5, "three"), (6, "four"), (6, "6")] {
        let answer = tagged(&gateway, "PUT", path, token, body);
        let (status, matches, differs) = apache.logged(body);
        answer.answered(status);
        assert_eq!(answer.header("ETag"), None, "it would save the question");
        assert_eq!((matches, differs == "*"), (left.clone(), left == "-"));
        assert_eq!(apache.read(path).as_deref(), Some(body));
        left = apache.etag(path).unwrap();
    }
    gateway.put(path, 5, b"late").refused(412, "stale");
    assert_eq!(metric(&gateway, "fencegate_guard_questions_total"), 5);
    assert_eq!((conflicts(&gateway), gaps(&gateway)), (0, 0));
}

#[test]
fn what_was_deleted_is_created_again_and_both_carry_their_condition() {
    let apache = Apache::start(DIGEST);
    let gateway = Gateway::start(guarded(apache.port, "etag"));
    let path = "/files/a";
    gateway.put(path, 5, b"first").answered(201);
    let etag = apache.etag(path).unwrap();
    tagged(&gateway, "DELETE", path, 5, "gone").answered(204);
    assert_eq!(apache.read(path), None);
    assert_eq!(apache.logged("gone"), (204, etag, "-".into()));
    assert_eq!(gaps(&gateway), 1, "an older creation may be on its way");
    tagged(&gateway, "PUT", path, 5, "back").answered(201);
    assert_eq!(apache.read(path).as_deref(), Some("back"));
    assert_eq!(apache.logged("back"), (201, "-".into(), "*".into()));
}

#[test]
fn a_write_past_the_gateway_is_told_to_a_holder_that_has_read() {
    let apache = Apache::start(DIGEST);
    let config = guarded(apache.port, "etag").route("raise_on_read", "true");
    let gateway = Gateway::start(config);
    let path = "/files/a";
    gateway.put(path, 5, b"first").answered(201);
    gateway.send("GET", path, 5, b"").answered(200);
    apache.put(path, b"past");
    let told = gateway.put(path, 5, b"first, and more");
    told.refused(503, "conflict");
    assert!(told.header("Retry-After").is_some());
    assert_eq!(apache.read(path).as_deref(), Some("past"));
    assert_eq!(conflicts(&gateway), 1);
    gateway.put(path, 5, b"past, and more").answered(204);
    assert_eq!(apache.read(path).as_deref(), Some("past, and more"));
    assert_eq!(conflicts(&gateway), 1);
    // The answer to a write names no state, so that the next one asks for it, and takes what it finds.
    apache.put(path, b"past again");
    gateway.put(path, 5, b"over it").answered(204);
    assert_eq!(apache.read(path).as_deref(), Some("over it"));
    assert_eq!((conflicts(&gateway), gaps(&gateway)), (1, 0));
}

#[test]
fn a_client_may_name_the_state_that_it_has_read() {
    let apache = Apache::start(DIGEST);
    let gateway = Gateway::start(guarded(apache.port, "etag"));
    let path = "/files/a";
    gateway.put(path, 5, b"first").answered(201);
    let read = gateway.get(path);
    let etag = read.header("ETag").unwrap();
    let put = |body: &[u8]| {
        let headers = [("Fencing-Token", "5"), ("If-Match", etag)];
        gateway.client().request("PUT", path, &headers, body)
    };
    put(b"second").answered(204);
    put(b"third").answered(412); // in Apache's own words
    assert_eq!(apache.read(path).as_deref(), Some("second"));
    assert_eq!(conflicts(&gateway), 0);
}

/// Apache's default makes an `ETag` of the time of the change, and calls it weak until a second after that.
#[test]
fn with_the_default_etags_a_young_file_is_written_without_a_condition() {
    let apache = Apache::start("");
    let gateway = Gateway::start(guarded(apache.port, "etag"));
    let path = "/files/a";
    gateway.put(path, 5, b"first").answered(201);
    assert_eq!(gaps(&gateway), 0);
    apache.changed(path, Duration::from_hours(1), true);
    let etag = apache.etag(path).unwrap();
    assert!(etag.starts_with("W/"), "{etag} is strong");
    let own = [("If-Match", &*etag)];
    assert_eq!(apache.send("PUT", path, &own, b"no").status, 412);
    tagged(&gateway, "PUT", path, 5, "young").answered(204);
    assert_eq!(apache.logged("young"), (204, "-".into(), "-".into()));
    assert_eq!((conflicts(&gateway), gaps(&gateway)), (0, 1));
    apache.changed(path, Duration::from_hours(1), false);
    let etag = apache.etag(path).unwrap();
    tagged(&gateway, "PUT", path, 5, "settled").answered(204);
    assert_eq!(apache.logged("settled"), (204, etag, "-".into()));
    assert_eq!(apache.read(path).as_deref(), Some("settled"));
}

/// `If-Match` is of the source where a file is moved or copied: a guard of the destination it is not.
#[test]
fn a_move_fences_both_ends_and_goes_without_a_guard() {
    let apache = Apache::start(DIGEST);
    for host_header in ["\"keep\"", "\"upstream\""] {
        let config = guarded(apache.port, "etag").upstream("host_header", host_header);
        let gateway = Gateway::start(config);
        let (from, to) = ("/files/from", "/files/to");
        let destination = format!("http://127.0.0.1:{}{to}", gateway.port);
        let transfer = |method: &str, token: &str| {
            let headers = [("Fencing-Token", token), ("Destination", &destination)];
            gateway.client().request(method, from, &headers, b"")
        };
        gateway.put(from, 5, b"moves").answered(201);
        gateway.put(to, 9, b"stays").answered(201);
        transfer("MOVE", "8").refused(412, "stale");
        assert_eq!(apache.read(to).as_deref(), Some("stays"));
        assert_eq!(gaps(&gateway), 0);
        transfer("COPY", "10").answered(204);
        transfer("MOVE", "11").answered(204);
        assert_eq!(
            (apache.read(from), apache.read(to).as_deref()),
            (None, Some("moves"))
        );
        assert!(gaps(&gateway) > 0);
        gateway.put(from, 10, b"late").refused(412, "stale");
        gateway.put(to, 10, b"late").refused(412, "stale");
        gateway.put(to, 11, b"mine").answered(204);
        gateway.send("DELETE", to, 11, b"").answered(204);
    }
}

/// A write that goes out and is held back on its way to Apache.
fn held(gateway: &Gateway, way: &Holding, method: &'static str, path: &str) -> JoinHandle<()> {
    way.hold("late");
    let (port, path) = (gateway.port, path.to_owned());
    let held = thread::spawn(move || {
        let body: &[u8] = if method == "PUT" { b"zombie" } else { b"" };
        let length = body.len().to_string();
        let headers = [
            ("Fencing-Token", "33"),
            ("X-Tag", "late"),
            ("Content-Length", &*length),
        ];
        let mut client = Client::connect(port);
        client.send_head(method, &path, &headers);
        client.send(body);
        let _ = client.stream().read(&mut [0; 1]); // the gateway is killed
    });
    way.awaits("late");
    held
}

/// The window that no proxy can close: the gateway is killed with a write of the old holder under way, a new one admits
/// the newer holder, which writes, and then the old one's arrives. What Apache answers it, and what is there then.
fn late_write(guard: &str, first: Option<&str>, method: &'static str) -> (u16, Option<String>) {
    let apache = Apache::start(DIGEST);
    let way = Holding::before(apache.port);
    let path = "/files/a";
    let config = match guard {
        "none" => Config::new(way.port),
        guard => guarded(way.port, guard).route("guard_required", "true"),
    };
    // Its settle is not kept.
    let mut gateway = Gateway::start(config.upstream("settle", "\"10ms\""));
    if let Some(first) = first {
        gateway.put(path, 33, first.as_bytes()).answered(201);
    }
    let zombie = held(&gateway, &way, method, path);
    gateway.kill();
    gateway.start_again();
    let newer = gateway.put(path, 34, b"newer");
    newer.answered(if first.is_some() { 204 } else { 201 });
    let status = way.release("late");
    zombie.join().unwrap();
    (status, apache.read(path))
}

#[test]
fn a_late_write_fails_at_apache() {
    for (guard, first, method) in [
        ("etag", Some("first"), "PUT"),
        ("etag", None, "PUT"),
        ("create-only", None, "PUT"),
        ("etag", Some("first"), "DELETE"),
    ] {
        let (status, left) = late_write(guard, first, method);
        let what = format!("{guard}, {method} over {first:?}");
        assert_eq!((status, left.as_deref()), (412, Some("newer")), "{what}");
    }
}

#[test]
fn without_a_guard_it_takes_effect() {
    let (status, left) = late_write("none", Some("first"), "PUT");
    assert_eq!((status, left.as_deref()), (204, Some("zombie")));
    let (status, left) = late_write("none", Some("first"), "DELETE");
    assert_eq!((status, left), (204, None));
}

/// A PUT of six bytes whose condition holds, past the gateway, of which half the body has come. Apache asks for the body
/// when it has looked at the condition.
fn stalled(apache: &Apache, path: &str) -> Client {
    apache.put(path, b"first");
    let etag = apache.etag(path).unwrap();
    let mut client = Client::connect(apache.port);
    let headers = [
        ("X-Tag", "stalled"),
        ("If-Match", &*etag),
        ("Expect", "100-continue"),
        ("Content-Length", "6"),
    ];
    client.send_head("PUT", path, &headers);
    assert_eq!(client.head().0, 100);
    client.send(b"zom");
    let newer = apache.send("PUT", path, &[("If-Match", &etag)], b"newer");
    assert_eq!(newer.status, 204);
    client
}

/// What the guard does not close here: Apache looks at the condition when the head has come.
#[test]
fn a_write_whose_body_stalls_can_land_late() {
    let apache = Apache::start(DIGEST);
    let path = "/files/a";
    let mut client = stalled(&apache, path);
    client.send(b"bie");
    assert_eq!(client.response("PUT").status, 204);
    assert_eq!(
        apache.read(path).as_deref(),
        Some("zombie"),
        "Apache looks at the condition at the end, by now: the pages say that it does not"
    );
}

/// And what bounds that.
#[test]
fn a_body_that_stalls_too_long_or_is_cut_has_no_effect() {
    let path = "/files/a";
    let apache = Apache::start(&format!("{DIGEST}\nRequestReadTimeout body=1"));
    let mut client = stalled(&apache, path);
    assert_eq!(client.response("PUT").status, 408);
    assert_eq!(apache.read(path).as_deref(), Some("newer"));
    let apache = Apache::start(DIGEST);
    drop(stalled(&apache, path));
    let (status, ..) = apache.logged("stalled");
    assert!(status >= 400, "{status}");
    assert_eq!(apache.read(path).as_deref(), Some("newer"));
}
