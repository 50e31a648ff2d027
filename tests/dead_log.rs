//! What must not stop a gateway: a log that nobody reads any more, and a hangup.

mod support;

use support::upstream::{Plan, Settles, Upstream};
use support::{Config, Gateway};

#[test]
fn a_dead_log_stops_nothing() {
    let upstream = Upstream::new(|_| Plan::answer(200));
    let port = upstream.listen(Settles::default());
    let mut gateway = Gateway::start(Config::new(port));
    gateway.kill(); // so that the next start has something to warn of
    gateway.start_again_without_log();
    gateway.put("/files/a", 5, b"x").answered(200);
    gateway.put("/files/a", 4, b"x").refused(412, "stale");
    assert!(gateway.stop().success());
}

#[test]
fn a_hangup_changes_nothing() {
    let upstream = Upstream::new(|_| Plan::answer(200));
    let port = upstream.listen(Settles::default());
    let mut gateway = Gateway::start(Config::new(port));
    gateway.put("/files/a", 5, b"x").answered(200);
    rustix::process::kill_process(gateway.pid(), rustix::process::Signal::HUP).unwrap();
    gateway.put("/files/a", 5, b"x").answered(200);
    assert!(gateway.stop().success(), "it stops in order all the same");
}
