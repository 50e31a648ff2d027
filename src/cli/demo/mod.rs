//! `fencegate demo`: the scene of the lock literature, without and with the gateway.
//!
//! A holder pauses, its lock goes to another, it wakes and writes. Everything is real and in this one
//! process: a file service that knows nothing of tokens, a gateway on its own store, two workers.

mod service;
mod worker;

use super::Failure;
use crate::app::Gateway;
use crate::clock::{self, Time};
use crate::config;
use crate::lifecycle::{Manager, Stop};
use crate::listen::Passed;
use crate::store::RocksStore;
use anyhow::{Context, anyhow, ensure};
use service::Service;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

const PAUSE: Duration = Duration::from_millis(300);

pub(super) fn run() -> Result<(), Failure> {
    let folder = Folder::make()?;
    let service = Service::start()?;
    let gateway = Running::start(&folder.0, service.address())?;
    println!(
        "A file service that knows nothing of tokens: {}",
        service.address()
    );
    println!(
        "fencegate in front of it:                    {}",
        gateway.address
    );
    without_gateway(&service)?;
    with_gateway(&service, &gateway)?;
    half_way(&service, &gateway)?;
    gateway.stop()?;
    println!(
        "\nThe lock alone lost a write; with its token checked at the gateway, none was lost."
    );
    Ok(())
}

/// A lock without a check at the resource.
fn without_gateway(service: &Service) -> anyhow::Result<()> {
    let act = Act::begin("1. Without a gateway: the service takes whatever comes");
    let file = "/files/plain";
    let (a, b) = (
        Worker::new(service.address(), file, 33),
        Worker::new(service.address(), file, 34),
    );
    act.pauses_with_the_lock();
    act.says(
        "B",
        &format!("PUT {file}, token 34: {}", b.put("B's report")?.status),
    );
    act.says("A", "wakes, and believes that it still holds the lock");
    act.says(
        "A",
        &format!("PUT {file}, token 33: {}", a.put("A's old report")?.status),
    );
    let stored = service.content(file);
    act.ends(&stored, "B's write is lost");
    ensure!(
        stored == "A's old report",
        "the service should have taken the old write: {stored:?}"
    );
    Ok(())
}

/// The same, with the token checked on the way.
fn with_gateway(service: &Service, gateway: &Running) -> anyhow::Result<()> {
    let act = Act::begin("2. Through the gateway: the zombie is refused");
    let file = "/files/fenced";
    let (a, b) = (
        Worker::new(gateway.address, file, 33),
        Worker::new(gateway.address, file, 34),
    );
    act.pauses_with_the_lock();
    let answer = b.put("B's report")?;
    act.says("B", &format!("PUT {file}, token 34: {answer}"));
    ensure!(answer.status == 200, "the new holder was refused: {answer}");
    act.says("A", "wakes, and believes that it still holds the lock");
    let answer = a.put("A's old report")?;
    act.says("A", &format!("PUT {file}, token 33: {answer}"));
    ensure!(answer.status == 412, "the zombie was not refused: {answer}");
    let stored = service.content(file);
    act.ends(&stored, "nothing is lost");
    ensure!(
        stored == "B's report",
        "the zombie's write was applied: {stored:?}"
    );
    Ok(())
}

/// The harder one: the zombie's write passed the check before the new holder came.
fn half_way(service: &Service, gateway: &Running) -> anyhow::Result<()> {
    let act = Act::begin("3. The harder one: A's upload is half-way when B arrives");
    let file = "/files/half";
    let (a, b) = (
        Worker::new(gateway.address, file, 33),
        Worker::new(gateway.address, file, 34),
    );
    act.says("lock", "A holds it, token 33");
    let upload = a.put_half("A's old report")?;
    service
        .wait_for_upload(file, Duration::from_secs(5))
        .context("A's upload did not arrive")?;
    act.says(
        "A",
        &format!("PUT {file}, token 33: sends one half, and pauses"),
    );
    std::thread::sleep(PAUSE);
    act.says("lock", "A's lease ends; B holds it, token 34");
    let answer = b.put("B's report")?;
    act.says("B", &format!("PUT {file}, token 34: {answer}"));
    ensure!(answer.status == 200, "the new holder was refused: {answer}");
    let answer = upload.finish()?;
    act.says("A", &format!("wakes, sends the other half: {answer}"));
    ensure!(answer.status == 412, "the zombie was not cut: {answer}");
    let stored = service.content(file);
    act.ends(&stored, "A was cut before B's write went out, and settled");
    ensure!(
        stored == "B's report",
        "the zombie's write was applied: {stored:?}"
    );
    Ok(())
}

/// A part of the scene, told with the time since it began.
struct Act(Time);

impl Act {
    fn begin(title: &str) -> Self {
        println!("\n{title}");
        Self(clock::now())
    }

    fn says(&self, who: &str, what: &str) {
        let at = clock::now().since(self.0);
        println!("  {:6.3} s  {who:<5} {what}", at.as_secs_f64());
    }

    fn pauses_with_the_lock(&self) {
        self.says("lock", "A holds it, token 33");
        self.says(
            "A",
            "prepares its report, and pauses (a long collection, a sleeping laptop)",
        );
        std::thread::sleep(PAUSE);
        self.says("lock", "A's lease ends; B holds it, token 34");
    }

    fn ends(&self, stored: &str, verdict: &str) {
        self.says("=>", &format!("the file holds \"{stored}\": {verdict}"));
    }
}

/// A gateway on threads of this process.
struct Running {
    address: SocketAddr,
    stop: Stop,
    thread: JoinHandle<Result<(), crate::app::Error>>,
}

impl Running {
    fn start(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        let text = format!(
            r#"
            [server]
            listen = ["127.0.0.1:0"]
            workers = 1
            [admin]
            listen = "127.0.0.1:0"
            [store]
            path = {path:?}
            cache = "8MiB"
            [upstreams.files]
            url = "http://{upstream}"
            settle = "200ms"
            [[routes]]
            name = "files"
            path = "/files/{{*key}}"
            upstream = "files"
            resource = "files/{{key}}"
            "#,
            path = folder.to_string_lossy(),
        );
        let settings = config::load(&text)
            .map_err(|faults| anyhow!("{faults:?}"))?
            .settings;
        RocksStore::init(folder)?;
        let gateway = Gateway::open(settings, Passed::default())?;
        let address = gateway.addresses().next().context("no address")?;
        let stop = Stop::default();
        let ours = stop.clone();
        let thread =
            std::thread::Builder::new().spawn(move || gateway.serve(&ours, &Manager::default()))?;
        Ok(Self {
            address,
            stop,
            thread,
        })
    }

    fn stop(self) -> anyhow::Result<()> {
        self.stop.ask();
        self.thread
            .join()
            .map_err(|_| anyhow!("the gateway panicked"))??;
        Ok(())
    }
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("fencegate-demo-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is a small folder among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
