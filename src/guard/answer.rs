//! What the answer to a guarded write says: of the object's state, and of whose condition did not hold.

use super::condition::Whose;
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

/// Judges the head of a final answer.
pub(super) fn of_head(
    does: Does,
    whose: Whose,
    status: StatusCode,
    headers: &HeaderMap,
) -> Verdict {
    let told = |told, past, pin| Verdict { told, past, pin };
    let unknown = Some(Pin::Unknown);
    let ours = matches!(whose, Whose::Ours);
    let conditional = !matches!(whose, Whose::Nobodys);
    match status {
        StatusCode::PRECONDITION_FAILED if ours => told(Told::Conflict, true, unknown),
        StatusCode::PRECONDITION_FAILED if conditional => {
            let pinned = matches!(whose, Whose::Clients { pinned: true });
            told(Told::Refused, pinned, unknown.filter(|_| pinned))
        }
        // Another write of the object is under way: it may be tried again.
        StatusCode::CONFLICT if conditional => told(Told::Refused, false, unknown),
        // Some stores say so where a condition names a state and there is none. An upload that is gone is another.
        StatusCode::NOT_FOUND if ours && does == Does::Puts => told(Told::Conflict, true, unknown),
        StatusCode::NOT_FOUND | StatusCode::REQUEST_TIMEOUT => told(Told::Passes, false, unknown),
        status if status.is_client_error() => told(Told::Passes, false, None),
        status if status.is_success() && status != StatusCode::ACCEPTED => {
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
pub(super) fn of_report(whose: Whose, body: &[u8]) -> Verdict {
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
            let holds = matches!(whose, Whose::Ours | Whose::Clients { pinned: true });
            passes(failed && holds, Pin::Unknown)
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
        whose: Whose,
        status: u16,
        etag: Option<&'static str>,
    ) -> (Told, bool, Option<Pin>) {
        let mut headers = HeaderMap::new();
        if let Some(etag) = etag {
            headers.insert("etag", HeaderValue::from_static(etag));
        }
        let status = StatusCode::from_u16(status).unwrap();
        let Verdict { told, past, pin } = of_head(does, whose, status, &headers);
        (told, past, pin)
    }

    #[test]
    fn a_condition_that_does_not_hold_is_told_by_whose_it_was() {
        let unknown = Some(Pin::Unknown);
        let clients = |pinned| Whose::Clients { pinned };
        for (whose, status, expected) in [
            (Whose::Ours, 412, (Told::Conflict, true, unknown.clone())),
            (Whose::Ours, 404, (Told::Conflict, true, unknown.clone())),
            (Whose::Ours, 409, (Told::Refused, false, unknown.clone())),
            (clients(true), 412, (Told::Refused, true, unknown.clone())),
            (clients(false), 412, (Told::Refused, false, None)),
            (clients(false), 409, (Told::Refused, false, unknown.clone())),
            (Whose::Nobodys, 412, (Told::Passes, false, None)),
            (Whose::Nobodys, 409, (Told::Passes, false, None)),
            (clients(false), 404, (Told::Passes, false, unknown.clone())),
            (Whose::Ours, 403, (Told::Passes, false, None)),
            (Whose::Ours, 408, (Told::Passes, false, unknown.clone())),
            (Whose::Ours, 500, (Told::Passes, false, unknown.clone())),
            (Whose::Ours, 202, (Told::Passes, false, unknown.clone())),
            (Whose::Ours, 307, (Told::Passes, false, unknown)),
        ] {
            assert_eq!(
                judged(Does::Puts, whose, status, Some("\"e\"")),
                expected,
                "{whose:?} {status}"
            );
        }
        // An upload that is not there is no object that is not there.
        assert_eq!(
            judged(Does::Reports, Whose::Ours, 404, None).0,
            Told::Passes
        );
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
                judged(does, Whose::Ours, 200, etag),
                (Told::Passes, false, pin),
                "{does:?} {etag:?}"
            );
        }
    }

    #[test]
    fn reads_the_result_out_of_a_body() {
        let done = b"  \n<?xml version=\"1.0\"?><CompleteMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Key>k</Key><ETag>&quot;e-2&quot;</ETag></CompleteMultipartUploadResult>";
        assert_eq!(of_report(Whose::Ours, done).pin, at("\"e-2\""));
        let bare = b"<CopyObjectResult><ETag>e</ETag></CopyObjectResult>";
        assert_eq!(of_report(Whose::Ours, bare).pin, at("\"e\""));
        let failed = b"<Error><Code>PreconditionFailed</Code></Error>";
        let said = |whose| of_report(whose, failed).past;
        assert!(said(Whose::Ours) && said(Whose::Clients { pinned: true }));
        assert!(!said(Whose::Clients { pinned: false }) && !said(Whose::Nobodys));
        for odd in [
            &b""[..],
            b"<a",
            b"<Other/>",
            b"<CopyObjectResult/>",
            b"<CopyObjectResult><ETag/></CopyObjectResult>",
            b"\xff",
        ] {
            assert_eq!(
                of_report(Whose::Ours, odd).pin,
                Some(Pin::Unknown),
                "{odd:?}"
            );
        }
    }
}
