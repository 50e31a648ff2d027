//! What the answer to a guarded write says: of the object's state, and of whose condition did not hold.

use super::condition::{Test, Whose};
use super::pin::{ETag, Pin};
use super::question;
use http::{HeaderMap, StatusCode};
use roxmltree::Document;

/// How much of a body that reports a result is read.
pub(super) const REPORT: usize = 64 << 10;

/// What the answer to a write is to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is passed on, and says what it says.
    Passes,
    /// It is passed on; the write had no effect, since a condition did not hold.
    Refused,
    /// It is not: the gateway's own condition did not hold.
    Conflict,
}

/// What an answer makes of what is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) told: Told,
    /// Somebody wrote past the gateway.
    pub(super) past: bool,
    /// The state from now on; `None`: as it was.
    pub(super) pin: Option<Pin>,
}

/// What a write does, as far as its answer must be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It puts a state there whose validator the answer may name.
    Puts,
    /// It changes the object, and what the answer names may be another's validator.
    Changes,
    /// It takes the object away.
    Removes,
    /// Its result stands in the answer's body.
    Reports,
    /// Nothing to the object.
    Nothing,
}

/// What went out with a condition: whose, and what it is about. `None`: it went without.
pub(super) type Carried = Option<(Whose, Test)>;

/// Judges the head of a final answer. `unsettled`: its status says nothing of what became of the write.
pub(super) fn of_head(
    does: Does,
    carried: Carried,
    status: StatusCode,
    unsettled: bool,
    headers: &HeaderMap,
) -> Verdict {
    let told = |told, past, pin| Verdict { told, past, pin };
    let unknown = Some(Pin::Unknown);
    if unsettled {
        return told(Told::Passes, false, unknown);
    }
    match (status, carried) {
        (StatusCode::PRECONDITION_FAILED, Some((Whose::Ours { alone: true }, _))) => {
            told(Told::Conflict, true, unknown)
        }
        // It may be another condition of the client's that does not hold.
        (StatusCode::PRECONDITION_FAILED, Some((Whose::Ours { alone: false }, _))) => {
            told(Told::Refused, false, unknown)
        }
        (StatusCode::PRECONDITION_FAILED, Some((Whose::Clients { pinned }, _))) => {
            told(Told::Refused, pinned, unknown.filter(|_| pinned))
        }
        // Another write of the object is under way: it may be tried again.
        (StatusCode::CONFLICT, Some(_)) => told(Told::Refused, false, unknown),
        // Some stores say so where a condition names a state and there is none. An upload that is gone is another.
        (StatusCode::NOT_FOUND, Some((Whose::Ours { .. }, Test::Match))) if does == Does::Puts => {
            told(Told::Conflict, true, unknown)
        }
        (StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT, _) => {
            told(Told::Passes, false, unknown)
        }
        (status, _) if status.is_client_error() => told(Told::Passes, false, None),
        (status, _) if status.is_success() && status != StatusCode::ACCEPTED => {
            let named = || question::etag(headers).map_or(Pin::Unknown, Pin::At);
            let pin = match does {
                Does::Puts => Some(named()),
                Does::Removes => Some(Pin::Absent),
                Does::Changes | Does::Reports => unknown,
                Does::Nothing => None,
            };
            told(Told::Passes, false, pin)
        }
        _ => told(Told::Passes, false, unknown),
    }
}

/// Judges a body that reports a result: the new validator, or the code of an error.
pub(super) fn of_report(carried: Carried, body: &[u8]) -> Verdict {
    let passes = |past, pin| Verdict {
        told: Told::Passes,
        past,
        pin: Some(pin),
    };
    let text = std::str::from_utf8(body).unwrap_or_default().trim();
    let Ok(document) = Document::parse(text) else {
        return passes(false, Pin::Unknown);
    };
    let child = |name: &str| {
        let mut all = document.root_element().children();
        all.find(|node| node.tag_name().name() == name)?.text()
    };
    match document.root_element().tag_name().name() {
        "Error" => {
            let failed = child("Code") == Some("PreconditionFailed");
            let pinned = matches!(
                carried,
                Some((
                    Whose::Ours { alone: true } | Whose::Clients { pinned: true },
                    _
                ))
            );
            passes(failed && pinned, Pin::Unknown)
        }
        "CompleteMultipartUploadResult" | "CopyObjectResult" => {
            let named = child("ETag").unwrap_or_default().trim();
            // Some leave the quotes out.
            let quoted = ETag::strong(named.as_bytes())
                .or_else(|| ETag::strong(format!("\"{named}\"").as_bytes()));
            let etag = quoted.filter(|_| !named.is_empty());
            passes(false, etag.map_or(Pin::Unknown, Pin::At))
        }
        _ => passes(false, Pin::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn at(text: &str) -> Option<Pin> {
        ETag::strong(text.as_bytes()).map(Pin::At)
    }

    fn judged(
        does: Does,
        carried: Carried,
        status: u16,
        etag: Option<&'static str>,
    ) -> (Told, bool, Option<Pin>) {
        let mut headers = HeaderMap::new();
        if let Some(etag) = etag {
            headers.insert("etag", HeaderValue::from_static(etag));
        }
        let status = StatusCode::from_u16(status).unwrap();
        let Verdict { told, past, pin } = of_head(does, carried, status, false, &headers);
        (told, past, pin)
    }

    const OURS: Carried = Some((Whose::Ours { alone: true }, Test::Match));
    const CREATE: Carried = Some((Whose::Ours { alone: true }, Test::Create));
    const BESIDE: Carried = Some((Whose::Ours { alone: false }, Test::Match));
    const PINNED: Carried = Some((Whose::Clients { pinned: true }, Test::Match));
    const FREE: Carried = Some((Whose::Clients { pinned: false }, Test::Match));

    #[test]
    fn a_condition_that_does_not_hold_is_told_by_whose_it_was() {
        let unknown = Some(Pin::Unknown);
        for (carried, status, expected) in [
            (OURS, 412, (Told::Conflict, true, unknown.clone())),
            (CREATE, 412, (Told::Conflict, true, unknown.clone())),
            (BESIDE, 412, (Told::Refused, false, unknown.clone())),
            (OURS, 404, (Told::Conflict, true, unknown.clone())),
            (CREATE, 404, (Told::Passes, false, unknown.clone())),
            (OURS, 409, (Told::Refused, false, unknown.clone())),
            (PINNED, 412, (Told::Refused, true, unknown.clone())),
            (FREE, 412, (Told::Refused, false, None)),
            (FREE, 409, (Told::Refused, false, unknown.clone())),
            (None, 412, (Told::Passes, false, None)),
            (None, 409, (Told::Passes, false, None)),
            (FREE, 404, (Told::Passes, false, unknown.clone())),
            (OURS, 403, (Told::Passes, false, None)),
            (OURS, 408, (Told::Passes, false, unknown.clone())),
            (OURS, 500, (Told::Passes, false, unknown.clone())),
            (OURS, 202, (Told::Passes, false, unknown.clone())),
            (OURS, 307, (Told::Passes, false, unknown.clone())),
        ] {
            let found = judged(Does::Puts, carried, status, Some("\"e\""));
            assert_eq!(found, expected, "{carried:?} {status}");
        }
        // An upload that is not there is no object that is not there.
        assert_eq!(judged(Does::Reports, OURS, 404, None).0, Told::Passes);
        // A balancer may have tried twice: the second time the condition did not hold.
        let headers = HeaderMap::new();
        let told = of_head(
            Does::Puts,
            OURS,
            StatusCode::PRECONDITION_FAILED,
            true,
            &headers,
        );
        assert_eq!((told.told, told.pin), (Told::Passes, unknown));
    }

    #[test]
    fn a_success_moves_the_pin_as_far_as_it_says_where() {
        for (does, etag, pin) in [
            (Does::Puts, Some("\"e\""), at("\"e\"")),
            (Does::Puts, Some("W/\"e\""), Some(Pin::Unknown)),
            (Does::Puts, None, Some(Pin::Unknown)),
            (Does::Changes, Some("\"e\""), Some(Pin::Unknown)),
            (Does::Removes, None, Some(Pin::Absent)),
            (Does::Reports, Some("\"e\""), Some(Pin::Unknown)),
            (Does::Nothing, Some("\"e\""), None),
        ] {
            assert_eq!(
                judged(does, OURS, 200, etag),
                (Told::Passes, false, pin),
                "{does:?} {etag:?}"
            );
        }
    }

    #[test]
    fn reads_the_result_out_of_a_body() {
        let done = b"  \n<?xml version=\"1.0\"?><CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Key>k</Key><ETag>&quot;e-2&quot;</ETag></CompleteMultipartUploadResult>";
        assert_eq!(of_report(OURS, done).pin, at("\"e-2\""));
        let bare = b"<CopyObjectResult><ETag>e</ETag></CopyObjectResult>";
        assert_eq!(of_report(OURS, bare).pin, at("\"e\""));
        let failed = b"<Error><Code>PreconditionFailed</Code></Error>";
        let said = |carried| of_report(carried, failed).past;
        assert!(said(OURS) && said(PINNED));
        assert!(!said(FREE) && !said(BESIDE) && !said(None));
        for odd in [
            &b""[..],
            b"<a",
            b"<Other/>",
            b"<CopyObjectResult/>",
            b"<CopyObjectResult><ETag/></CopyObjectResult>",
            b"\xff",
        ] {
            assert_eq!(of_report(OURS, odd).pin, Some(Pin::Unknown), "{odd:?}");
        }
    }
}
