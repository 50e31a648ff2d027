//! Which conditions of which calls an upstream honours. Public stores differ, call by call.

use super::condition::Condition;
use crate::config::{Guard, Kind};
use parking_lot::RwLock;

/// A call that can carry a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// An object is put there.
    Put,
    /// An upload in parts is completed.
    Complete,
    /// An object is copied there.
    Copy,
    /// An object is taken away.
    Delete,
}

impl Call {
    const ALL: [Self; 4] = [Self::Put, Self::Complete, Self::Copy, Self::Delete];

    const fn word(self) -> &'static str {
        match self {
            Self::Put => "PUT",
            Self::Complete => "CompleteMultipartUpload",
            Self::Copy => "CopyObject",
            Self::Delete => "DELETE",
        }
    }
}

/// What is known of one upstream, call by call: for `If-None-Match: *` and for `If-Match`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known([[Option<bool>; 2]; 4]);

/// The same, as it is learned while requests go on.
#[derive(Debug, Default)]
pub struct Honours(RwLock<Known>);

impl Known {
    /// What an operator vouches for: all of it.
    pub(super) const fn all() -> Self {
        Self([[Some(true); 2]; 4])
    }

    pub(super) fn of(self, call: Call, condition: &Condition) -> Option<bool> {
        self.0[call as usize][usize::from(*condition != Condition::Create)]
    }

    /// Whether a state that is named in such a call is ignored, so that there is no use in knowing it.
    pub(super) fn ignores(self, call: Call) -> bool {
        self.0[call as usize][1] == Some(false)
    }

    pub(super) fn note(&mut self, call: Call, condition: &Condition, honoured: bool) {
        self.0[call as usize][usize::from(*condition != Condition::Create)] = Some(honoured);
    }

    /// Whether writes under this guard are refused where they come late: those that put an object there, whole or
    /// in parts.
    #[must_use]
    pub fn closes(self, guard: Guard, kind: Kind) -> bool {
        let [put, complete, ..] = self.0;
        let calls: &[[Option<bool>; 2]] = match kind {
            Kind::S3 => &[put, complete],
            Kind::Http => &[put],
        };
        calls.iter().all(|[create, matches]| match guard {
            Guard::None => false,
            Guard::CreateOnly => *create == Some(true),
            Guard::Etag => *create == Some(true) && *matches == Some(true),
        })
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
    use crate::guard::pin::ETag;

    #[test]
    fn a_guard_closes_where_every_way_of_putting_is_honoured() {
        let etag = Condition::Match(ETag::strong(b"\"a\"").unwrap());
        let mut known = Known::default();
        let closes = |known: Known, guard| known.closes(guard, Kind::S3);
        assert!(!closes(known, Guard::CreateOnly) && known.ignored(Guard::Etag).is_empty());
        known.note(Call::Put, &Condition::Create, true);
        assert!(known.closes(Guard::CreateOnly, Kind::Http));
        assert!(!closes(known, Guard::CreateOnly) && !known.closes(Guard::Etag, Kind::Http));
        known.note(Call::Complete, &Condition::Create, true);
        assert!(closes(known, Guard::CreateOnly) && !closes(known, Guard::Etag));
        known.note(Call::Put, &etag, true);
        known.note(Call::Complete, &etag, true);
        known.note(Call::Delete, &etag, false);
        assert!(closes(known, Guard::Etag) && !closes(known, Guard::None));
        assert_eq!(known.ignored(Guard::Etag), ["DELETE"]);
        assert!(known.ignored(Guard::CreateOnly).is_empty());
        assert!(closes(Known::all(), Guard::Etag));
    }
}
