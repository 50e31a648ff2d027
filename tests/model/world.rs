//! What the model checker explores: two gates, a disk, an upstream, and a few requests.
//!
//! Knows what can be seen of the world, not how it moves: that is `driver`.

use fencegate::fence::{Accept, Format, Gate, Kind, Missing, Rules, Token};
use std::sync::OnceLock;

/// The resources: two, each with its gate.
pub const RESOURCES: usize = 2;

/// One request of a configuration.
#[derive(Clone, Debug)]
pub struct Request {
    /// The token that it shows to each resource; `None` where it does not touch it.
    pub tokens: [Option<Token>; RESOURCES],
    pub kind: Kind,
    pub preempt: bool,
}

impl Request {
    /// A write to the first resource.
    pub fn first(token: u64) -> Self {
        Self::with([Some(token), None])
    }

    /// A write to the second resource.
    pub fn second(token: u64) -> Self {
        Self::with([None, Some(token)])
    }

    /// A write to both, such as a MOVE.
    pub fn both(token: u64) -> Self {
        Self::with([Some(token), Some(token)])
    }

    pub fn reading(self) -> Self {
        Self {
            kind: Kind::Read,
            ..self
        }
    }

    pub fn uncuttable(self) -> Self {
        Self {
            preempt: false,
            ..self
        }
    }

    fn with(tokens: [Option<u64>; RESOURCES]) -> Self {
        Self {
            tokens: tokens.map(|t| t.map(|t| Token::new(0, t))),
            kind: Kind::Write,
            preempt: true,
        }
    }

    pub fn rules(&self) -> &'static Rules {
        static RULES: OnceLock<[Rules; 2]> = OnceLock::new();
        let both = RULES.get_or_init(|| {
            [false, true].map(|preempt| Rules {
                accept: Accept::SameOrNewer,
                missing: Missing::AllowUntilFenced,
                preempt,
                max_waiting: 8,
                max_advance: None,
                first_max: None,
                format: Format::U64,
            })
        });
        &both[usize::from(self.preempt)]
    }

    pub fn touches(&self) -> impl Iterator<Item = (usize, Token)> + '_ {
        let tokens = self.tokens.iter().enumerate();
        tokens.filter_map(|(resource, token)| token.map(|token| (resource, token)))
    }
}

/// A rule that a negative test takes out of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Refuse lower tokens from the moment that a raise is accepted, not from its commit.
    Seal,
    /// Nothing goes out before its fence is on disk.
    Commit,
    /// A failed commit is a refusal.
    FailClosed,
    /// A raise waits for the lower writes in flight.
    Drain,
    /// A write with an unknown outcome is in flight until its settle has passed.
    Settle,
    /// After a crash the fence's own token waits too, unless its drain is on record.
    DrainedMark,
    /// After a crash raises wait for what was in flight.
    UncleanStart,
    /// A write that touches several resources goes when every gate agrees.
    Agreement,
    /// A gate stays in memory while it knows more than the disk.
    Eviction,
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Setup {
    pub requests: Vec<Request>,
    /// The fences on disk at the start, drained; 0 for none.
    pub origins: [u64; RESOURCES],
    pub crashes: u8,
    pub commit_failures: u8,
    /// The gateway sends again what is unsent.
    pub retries: bool,
    /// Idle gates may leave memory, and come back.
    pub evictions: bool,
    pub without: Option<Rule>,
    /// The states that it must reach, by the name of their property.
    pub shows: &'static [&'static str],
}

impl Setup {
    pub fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }
}

/// Where one request is. `applied` holds one bit for each resource that it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its client has not sent it (or will send it again: no byte of it went upstream).
    Idle,
    /// It waits at its gates. `ready`: a gate said so, and nobody has tried since.
    Waiting { ready: bool },
    /// A gate refused it; its other gates have not heard yet.
    Refused { superseded: bool },
    /// It is forwarded. `cut`: a gate asked for the cut.
    Flight { applied: u8, cut: bool },
    /// Its connection is closed and its outcome unknown: it may still be applied.
    Lingering { applied: u8, cut: bool },
    /// The gateway that forwarded it has crashed: it may still be applied.
    Orphan { applied: u8 },
    /// It was an orphan, and can no longer be applied.
    Outlived,
    /// It is answered, refused or gone, and can no longer be applied.
    Done,
}

impl Phase {
    /// What it has changed so far, where it may still change something.
    pub fn may_apply(self) -> Option<u8> {
        match self {
            Self::Flight { applied, .. }
            | Self::Lingering { applied, .. }
            | Self::Orphan { applied } => Some(applied),
            _ => None,
        }
    }
}

/// The record of a resource on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub fence: Token,
    pub mark: Mark,
}

/// The `drained` field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    Absent,
    /// Written without a sync: a crash may lose it.
    Unsynced,
    Durable,
}

/// One fence in the committer's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    pub resource: usize,
    pub token: Token,
    pub drained: bool,
}

/// A property that a step has broken, as a bit of [`World::broken`].
pub mod broken {
    pub const FENCE_FELL: u16 = 1;
    pub const NOT_DURABLE: u16 = 1 << 1;
    pub const BELOW_SEAL: u16 = 1 << 2;
    pub const OVERTOOK: u16 = 1 << 3;
    pub const PROMISE: u16 = 1 << 4;
    pub const FAILED_OPEN: u16 = 1 << 5;
    pub const SENT_TWICE: u16 = 1 << 6;
    pub const ANSWERED_TWICE: u16 = 1 << 7;
}

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub gates: [Gate; RESOURCES],
    pub disk: [Record; RESOURCES],
    /// Batches that wait for the disk, in order.
    pub queue: Vec<Vec<Commit>>,
    /// What the committer has done and its gate does not know yet; `false`: it failed.
    pub reports: Vec<(Commit, bool)>,
    pub phases: Vec<Phase>,
    /// The highest token that the upstream has applied.
    pub top: [Token; RESOURCES],
    /// The highest raise that was accepted since the start of the gateway: the oracle of the seal.
    pub sealed: [Token; RESOURCES],
    /// The settle after a crash has not passed.
    pub unclean: bool,
    /// How many more crashes there may be.
    pub crashes: u8,
    /// How many more commits may fail.
    pub commit_failures: u8,
    pub broken: u16,
}

impl World {
    pub fn broke(&self, property: u16) -> bool {
        self.broken & property != 0
    }
}
