//! A journey through a real nginx with WebDAV: tokens guard files on its disk, and a body of a
//! gibibyte passes whole without being held in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use support::{Client, Config, Gateway, Response, free_port, wait_until};
use tempfile::TempDir;

const BLOCK: usize = 64 * 1024;
const MIB: u64 = 1024 * 1024;

/// An nginx of our own: no daemon, no worker processes, nothing outside its folder.
struct Nginx {
    port: u16,
    folder: TempDir,
    child: Child,
}

impl Nginx {
    fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("fencegate-nginx-")
            .tempdir()
            .unwrap();
        let port = free_port();
        let base = folder.path().display();
        let temp = |kind: &str| format!("{kind}_temp_path {base}/temp-{kind};\n");
        let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(temp)
            .concat();
        let config = format!(
            "daemon off; master_process off; pid {base}/nginx.pid; error_log stderr crit;
            events {{ worker_connections 256; }}
            http {{
                access_log off;
                {temps}
                server {{
                    listen 127.0.0.1:{port};
                    root {base}/root;
                    client_max_body_size 0;
                    location / {{
                        dav_methods PUT DELETE MKCOL COPY MOVE;
                        create_full_put_path on;
                    }}
                }}
            }}"
        );
        fs::create_dir(folder.path().join("root")).unwrap();
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"];
        let program = program
            .into_iter()
            .find(|p| fs::exists(p).unwrap_or(false))
            .unwrap_or("nginx");
        let child = Command::new(program)
            .args(["-e", "stderr", "-p"])
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| {
                panic!("cannot start nginx ({e}); to install it: tools/need.sh test")
            });
        let mut nginx = Self {
            port,
            folder,
            child,
        };
        wait_until("nginx", || {
            if let Some(status) = nginx.child.try_wait().unwrap() {
                panic!("nginx ended with {status}; what it said stands above");
            }
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        nginx
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("root/files").join(name)
    }

    /// What is on its disk under that name.
    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name)).ok()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Moves or copies to an address on this host.
#[track_caller]
fn transfer(
    method: &str,
    gateway: &Gateway,
    from: &str,
    to: &str,
    token: u64,
    host: &str,
) -> Response {
    let host = format!("{host}:{}", gateway.port);
    let headers = [
        ("Host", &*host),
        ("Fencing-Token", &*token.to_string()),
        ("Destination", &*format!("http://{host}{to}")),
    ];
    gateway.client().request(method, from, &headers, b"")
}

#[test]
fn a_stale_write_leaves_the_file_as_it_is() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(Config::new(nginx.port));
    let first = gateway.put("/files/a", 5, b"five");
    assert_eq!(first.answered(201).header("Fencing-Status"), Some("raised"));
    gateway.put("/files/a", 4, b"four").refused(412, "stale");
    gateway
        .send("DELETE", "/files/a", 4, b"")
        .refused(412, "stale");
    assert_eq!(nginx.read("a").as_deref(), Some("five"));
    let again = gateway.put("/files/a", 5, b"five again");
    assert_eq!(
        again.answered(204).header("Fencing-Status"),
        Some("admitted")
    );
    assert_eq!(nginx.read("a").as_deref(), Some("five again"));
    assert_eq!(gateway.get("/files/a").answered(200).body, b"five again");

    gateway.send("DELETE", "/files/a", 6, b"").answered(204);
    assert_eq!(nginx.read("a"), None);
    gateway
        .put("/files/a", 5, b"back from the dead")
        .refused(412, "stale");
    assert_eq!(nginx.read("a"), None);
    gateway.get("/files/a").answered(404);
}

#[test]
fn a_crash_forgets_no_fence() {
    let nginx = Nginx::start();
    let mut gateway = Gateway::start(Config::new(nginx.port));
    gateway.put("/files/a", 7, b"seven").answered(201);
    gateway.kill();
    gateway.start_again();
    gateway.put("/files/a", 6, b"six").refused(412, "stale");
    assert_eq!(nginx.read("a").as_deref(), Some("seven"));
    gateway.put("/files/a", 7, b"seven again").answered(204);
    assert!(gateway.stop().success());
}

#[test]
fn a_move_fences_both_ends() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(Config::new(nginx.port));
    gateway.put("/files/a", 5, b"from a").answered(201);
    gateway.put("/files/b", 9, b"from b").answered(201);
    transfer("MOVE", &gateway, "/files/a", "/files/b", 7, "127.0.0.1").refused(412, "stale");
    assert_eq!(nginx.read("a").as_deref(), Some("from a"));
    assert_eq!(nginx.read("b").as_deref(), Some("from b"));
    let nowhere = transfer("MOVE", &gateway, "/files/a", "/elsewhere/a", 7, "127.0.0.1");
    nowhere.refused(404, "unrouted");
    assert_eq!(nginx.read("a").as_deref(), Some("from a"));

    transfer("MOVE", &gateway, "/files/a", "/files/c", 7, "127.0.0.1").answered(204);
    assert_eq!(
        (nginx.read("a"), nginx.read("c").as_deref()),
        (None, Some("from a"))
    );
    gateway.put("/files/a", 6, b"late").refused(412, "stale");
    gateway.put("/files/c", 6, b"late").refused(412, "stale");
    assert_eq!(
        (nginx.read("a"), nginx.read("c").as_deref()),
        (None, Some("from a"))
    );
    gateway.put("/files/c", 7, b"still mine").answered(204);
}

#[test]
fn a_copy_fences_its_destination_only() {
    let nginx = Nginx::start();
    let gateway = Gateway::start(Config::new(nginx.port));
    gateway.put("/files/a", 5, b"from a").answered(201);
    gateway.put("/files/b", 9, b"from b").answered(201);
    transfer("COPY", &gateway, "/files/a", "/files/b", 8, "127.0.0.1").refused(412, "stale");
    assert_eq!(nginx.read("b").as_deref(), Some("from b"));
    transfer("COPY", &gateway, "/files/a", "/files/b", 20, "127.0.0.1").answered(204);
    assert_eq!(nginx.read("b").as_deref(), Some("from a"));
    gateway.put("/files/b", 19, b"late").refused(412, "stale");
    gateway
        .put("/files/a", 5, b"the source is as it was")
        .answered(204);
}

/// nginx compares the host of `Destination` with `Host`, so the two must be rewritten together.
#[test]
fn the_destination_follows_the_host() {
    let nginx = Nginx::start();
    for (name, host_header) in [("kept", "\"keep\""), ("rewritten", "\"upstream\"")] {
        let gateway = Gateway::start(Config::new(nginx.port).upstream("host_header", host_header));
        let (from, to) = (format!("/files/{name}"), format!("/files/{name}-moved"));
        gateway.put(&from, 1, b"moves").answered(201);
        transfer("MOVE", &gateway, &from, &to, 2, "localhost").answered(204);
        assert_eq!(nginx.read(name), None);
        assert_eq!(
            nginx.read(&format!("{name}-moved")).as_deref(),
            Some("moves")
        );
    }
    let apart = [
        ("Host", "127.0.0.1"),
        ("Destination", "http://localhost/files/elsewhere"),
    ];
    let direct = Client::connect(nginx.port).request("MOVE", "/files/kept-moved", &apart, b"");
    assert_eq!(
        direct.status, 400,
        "nginx no longer minds: this test shows nothing then"
    );
}

#[test]
fn a_gibibyte_passes_in_flat_memory() {
    let nginx = Nginx::start();
    let patient = Config::new(nginx.port).upstream("response_timeout", "\"30s\"");
    let gateway = Gateway::start(patient.route("drain_timeout", "\"40s\""));
    gateway
        .put("/files/warm", 1, &vec![b'x'; 2 * BLOCK])
        .answered(201);
    let before = gateway.peak_memory();
    for (name, size, chunked) in [("sized", 1024 * MIB, false), ("chunked", 256 * MIB, true)] {
        let sent = upload(&gateway, name, size, chunked);
        assert_eq!(fs::metadata(nginx.file(name)).unwrap().len(), size);
        assert_eq!(
            hash_of(File::open(nginx.file(name)).unwrap()),
            sent,
            "{name}: other bytes on disk"
        );
        let growth = gateway.peak_memory().saturating_sub(before);
        assert!(
            growth < 64 * MIB,
            "{name}: the gateway grew by {} MiB",
            growth / MIB
        );
        fs::remove_file(nginx.file(name)).unwrap();
    }
}

/// Puts a body that is made while it is sent; its hash. No two blocks are equal.
#[track_caller]
fn upload(gateway: &Gateway, name: &str, size: u64, chunked: bool) -> Vec<u8> {
    let mut client = gateway.client();
    let length = if chunked {
        ("Transfer-Encoding", "chunked".to_owned())
    } else {
        ("Content-Length", size.to_string())
    };
    client.send_head(
        "PUT",
        &format!("/files/{name}"),
        &[("Fencing-Token", "1"), (length.0, &length.1)],
    );
    let mut block: Vec<u8> = (0..BLOCK)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0])
        .collect();
    let mut hash = Sha256::new();
    for number in 0..size / BLOCK as u64 {
        block[..8].copy_from_slice(&number.to_le_bytes());
        hash.update(&block);
        if chunked {
            client.send_chunk(&block);
        } else {
            client.send(&block);
        }
    }
    if chunked {
        client.send_chunk(b"");
    }
    client.response("PUT").answered(201);
    hash.finalize().to_vec()
}

fn hash_of(mut source: impl Read) -> Vec<u8> {
    let (mut hash, mut block) = (Sha256::new(), vec![0; BLOCK]);
    loop {
        let length = source.read(&mut block).unwrap();
        if length == 0 {
            return hash.finalize().to_vec();
        }
        hash.update(&block[..length]);
    }
}
