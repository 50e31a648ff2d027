//! Lock holders that are processes of their own, so that they can be paused with SIGSTOP: they wake
//! up, know nothing of the time that has passed, and go on writing.
//!
//! The process is this test program again, at the one test that is a holder where it is told so.

use crate::call::{Call, Caller, Ended};
use crate::load::Locks;
use crate::plan::{Mix, Rng, Task};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const TOLD: &str = "FENCEGATE_CHAOS_HOLDER";
const MARK: &str = "@holder ";

/// The other side of [`Holder`]: does nothing unless it was told to be one.
#[test]
fn holder_process() {
    let Ok(told) = env::var(TOLD) else { return };
    let words: Vec<u64> = told.split(' ').map(|word| word.parse().unwrap()).collect();
    let [port, number, pair, seed] = words[..] else {
        panic!("not told who to be: {told}")
    };
    let token = Arc::new(AtomicU64::new(0));
    let given = Arc::clone(&token);
    let stdin = thread::spawn(move || {
        for line in std::io::stdin().lines() {
            given.store(line.unwrap().parse().unwrap(), Ordering::SeqCst);
        }
    });
    let mut caller = Caller::new(u16::try_from(port).unwrap());
    let (mut rng, mut sent) = (Rng(seed), 0);
    while !stdin.is_finished() {
        let token = token.load(Ordering::SeqCst);
        if token == 0 {
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        sent += 1;
        let tag = format!("h{number}-{sent}");
        let pair = usize::try_from(pair).unwrap();
        let task = Task::next(&mut rng, tag, pair, Some(token), Mix::Wild);
        let call = caller.call(&task);
        if call.end != Ended::Unsent {
            println!("\n{MARK}{}", to_line(&call));
        }
        if !matches!(call.end, Ended::Answer { own: false, .. }) {
            thread::sleep(rng.millis(10));
        }
    }
}

fn to_line(call: &Call) -> String {
    let end = match &call.end {
        Ended::Answer {
            status,
            word,
            own,
            whole,
        } => format!("{status} {word:?} {own} {whole}"),
        other => format!("{other:?}"),
    };
    let token = call.token.unwrap_or(0);
    format!("{} {} {token} {end}", call.tag, call.read)
}

fn from_line(line: &str) -> Option<Call> {
    let words: Vec<&str> = line.strip_prefix(MARK)?.split(' ').collect();
    let end = match words[3..] {
        [status, word, own, whole] => Ended::Answer {
            status: status.parse().unwrap(),
            word: word.trim_matches('"').into(),
            own: own == "true",
            whole: whole == "true",
        },
        ["Left"] => Ended::Left,
        _ => Ended::Lost,
    };
    Some(Call {
        tag: words[0].into(),
        read: words[1] == "true",
        token: Some(words[2].parse().unwrap()),
        end,
    })
}

/// A lock holder in a process of its own.
pub struct Holder {
    pair: usize,
    child: Child,
    orders: ChildStdin,
    calls: Arc<Mutex<Vec<Call>>>,
    reader: JoinHandle<()>,
}

impl Holder {
    /// Starts one for that pair. It does nothing before it has a lock.
    pub fn start(port: u16, number: u64, pair: usize, seed: u64) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "holder::holder_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(TOLD, format!("{port} {number} {pair} {seed}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let output = BufReader::new(child.stdout.take().unwrap());
        let into = Arc::clone(&calls);
        let reader = thread::spawn(move || {
            for line in output.lines() {
                into.lock().extend(from_line(&line.unwrap()));
            }
        });
        Self {
            pair,
            orders: child.stdin.take().unwrap(),
            child,
            calls,
            reader,
        }
    }

    /// Gives it the lock, lets it write, pauses it, gives the lock to another, and wakes it up.
    pub fn turn_zombie(&mut self, locks: &Locks, rng: &mut Rng) {
        let token = locks.grant(self.pair);
        writeln!(self.orders, "{token}").unwrap();
        thread::sleep(Duration::from_millis(20) + rng.millis(60));
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        locks.grant(self.pair);
        thread::sleep(Duration::from_millis(20) + rng.millis(120));
        kill_process(pid, Signal::CONT).unwrap();
        thread::sleep(Duration::from_millis(20) + rng.millis(60));
    }

    /// Lets it end. What it knows of its requests.
    pub fn stop(mut self) -> Vec<Call> {
        drop(self.orders);
        assert!(self.child.wait().unwrap().success(), "a holder failed");
        self.reader.join().unwrap();
        std::mem::take(&mut *self.calls.lock())
    }
}
