//! Which conditions of which calls an upstream honours. Public stores differ, call by call.

use super::condition::Test;
use crate::config::{Guard, Kind};
use parking_lot::RwLock;

/// A call that can carry a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// An object is put there.
    Put,
    /// An object is changed in another way (PATCH, POST).
    Change,
    /// An upload in parts is completed.
    Complete,
    /// An object is copied there.
    Copy,
    /// An object is taken away.
    Delete,
}

impl Call {
    const ALL: [Self; 5] = [
        Self::Put,
        Self::Change,
        Self::Complete,
        Self::Copy,
        Self::Delete,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Change => "PATCH and POST",
            Self::Complete => "CompleteMultipartUpload",
            Self::Copy => "CopyObject",
            Self::Delete => "DELETE",
        }
    }
}

/// What is known of one upstream, call by call: for `If-None-Match: *` and for `If-Match`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known([[Option<bool>; 2]; 5]);

/// The same, as it is learned while requests go on.
#[derive(Debug, Default)]
pub struct Honours(RwLock<Known>);

impl Known {
    /// What an operator vouches for: all of it.
    pub(super) const fn all() -> Self {
        Self([[Some(true); 2]; 5])
    }

    pub(super) const fn of(self, call: Call, test: Test) -> Option<bool> {
        self.0[call as usize][test as usize]
    }

    /// Whether a state that is named in such a call is ignored, so that there is no use in knowing it.
    pub(super) fn ignores(self, call: Call) -> bool {
        self.0[call as usize][1] == Some(false)
    }

    pub(super) const fn note(&mut self, call: Call, test: Test, honoured: Option<bool>) {
        self.0[call as usize][test as usize] = honoured;
    }

    /// Whether anything is.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Whether writes under this guard are refused where they come late. `required`: calls whose condition is
    /// ignored do not go out, so that only those have to honour theirs by which objects are put there.
    #[must_use]
    pub fn closes(self, guard: Guard, kind: Kind, required: bool) -> bool {
        let puts: &[Call] = match kind {
            Kind::S3 => &[Call::Put, Call::Complete],
            Kind::Http => &[Call::Put],
        };
        let others: &[Call] = match kind {
            Kind::S3 => &[Call::Copy],
            Kind::Http => &[],
        };
        let honours = |call: &Call, test| self.of(*call, test) == Some(true);
        match guard {
            Guard::None => false,
            // What cannot carry the condition is refused.
            Guard::CreateOnly => puts.iter().all(|call| honours(call, Test::Create)),
            Guard::Etag => {
                let both = |call: &Call| honours(call, Test::Create) && honours(call, Test::Match);
                let rest = || others.iter().all(both) && honours(&Call::Delete, Test::Match);
                puts.iter().all(both) && (required || rest())
            }
        }
    }

    /// The calls that ignore a condition of this guard, for people.
    #[must_use]
    pub fn ignored(self, guard: Guard) -> Vec<&'static str> {
        let ignores = |call: &Call| match (guard, self.0[*call as usize]) {
            (Guard::Etag, [create, matches]) => create == Some(false) || matches == Some(false),
            (Guard::CreateOnly, [create, _]) => create == Some(false),
            (Guard::None, _) => false,
        };
        let calls = Call::ALL.into_iter().filter(ignores);
        calls.map(Call::word).collect()
    }
}

impl Honours {
    /// What is known.
    #[must_use]
    pub fn known(&self) -> Known {
        *self.0.read()
    }

    /// Takes what was found out.
    pub fn learn(&self, known: Known) {
        *self.0.write() = known;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_closes_where_every_way_of_putting_is_honoured() {
        let mut known = Known::default();
        let closes = |known: Known, guard| known.closes(guard, Kind::S3, false);
        assert!(!closes(known, Guard::CreateOnly) && known.ignored(Guard::Etag).is_empty());
        known.note(Call::Put, Test::Create, Some(true));
        assert!(known.closes(Guard::CreateOnly, Kind::Http, false));
        assert!(!closes(known, Guard::CreateOnly));
        known.note(Call::Complete, Test::Create, Some(true));
        assert!(closes(known, Guard::CreateOnly) && !closes(known, Guard::Etag));
        known.note(Call::Put, Test::Match, Some(true));
        known.note(Call::Complete, Test::Match, Some(true));
        known.note(Call::Delete, Test::Match, Some(false));
        assert!(known.closes(Guard::Etag, Kind::S3, true) && !closes(known, Guard::Etag));
        assert_eq!(known.ignored(Guard::Etag), ["DELETE"]);
        assert!(known.ignored(Guard::CreateOnly).is_empty());
        assert!(!known.closes(Guard::Etag, Kind::Http, false));
        known.note(Call::Delete, Test::Match, Some(true));
        assert!(known.closes(Guard::Etag, Kind::Http, false) && !closes(known, Guard::Etag));
        assert!(closes(Known::all(), Guard::Etag) && !closes(Known::all(), Guard::None));
    }
}
