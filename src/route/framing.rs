//! Where the body of a request ends: said in one way, or the request goes no further.

use super::marks::Marks;
use http::header::TRANSFER_ENCODING;
use http::request::Parts;

/// Refuses what says in two ways, or in one that is not known here, where the body ends. That the
/// lengths themselves agree, the HTTP library has seen.
pub(super) fn check(parts: &Parts, marks: Marks) -> Result<(), &'static str> {
    if marks.framing_twin() {
        return Err("a header that frames the message is spelt with an underscore");
    }
    if marks.coded() {
        let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
        let first = codings.next().map(|coding| coding.as_bytes().trim_ascii());
        let chunked = first.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        if !chunked || codings.next().is_some() {
            return Err("a transfer coding other than chunked, once");
        }
    }
    Ok(())
}
