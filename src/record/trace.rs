//! Where a request stands in a trace (W3C Trace Context), and the spans that the gateway adds to it.

use http::HeaderValue;
use opentelemetry::{SpanId, TraceFlags, TraceId};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

/// The trace that a request came with: what a `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: TraceId,
    /// The sender's own span.
    pub span: SpanId,
    /// Whether the sender records it.
    pub sampled: bool,
}

/// What a `traceparent` names: version 00, and those that extend it. `None` where it is malformed.
#[must_use]
pub fn parent(traceparent: &[u8]) -> Option<Parent> {
    let text = std::str::from_utf8(traceparent).ok()?;
    let mut parts = text.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let flags = parts.next()?;
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let sound = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16);
    if !sound || !hex(flags, 2) || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    (trace != TraceId::INVALID && span != SpanId::INVALID).then(|| Parent {
        trace,
        span,
        sampled: flags.is_sampled(),
    })
}

/// The spans of one request: its own, from its head to its response's end, and below that its way to the
/// upstream and back.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    /// The trace that they belong to.
    pub trace: TraceId,
    /// The sender's span, where it named one.
    pub parent: Option<SpanId>,
    /// The request's own span.
    pub own: SpanId,
    /// That of its way to the upstream.
    pub onward: SpanId,
    /// Whether they are recorded.
    pub sampled: bool,
}

impl Trace {
    /// Goes on with the trace of the sender, recorded if the sender does; or begins one, which `chosen` tells
    /// from its id whether to record.
    #[must_use]
    pub fn begin(parent: Option<Parent>, chosen: impl FnOnce(TraceId) -> bool) -> Self {
        let ids = RandomIdGenerator::default();
        let trace = parent.map_or_else(|| ids.new_trace_id(), |parent| parent.trace);
        Self {
            trace,
            parent: parent.map(|parent| parent.span),
            own: ids.new_span_id(),
            onward: ids.new_span_id(),
            sampled: parent.map_or_else(|| chosen(trace), |parent| parent.sampled),
        }
    }

    /// The `traceparent` that the upstream gets.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        let text = format!(
            "00-{}-{}-{:02x}",
            self.trace,
            self.onward,
            u8::from(self.sampled)
        );
        HeaderValue::try_from(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn a_trace_is_known_by_its_form() {
        let right = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let found = parent(right.as_bytes()).unwrap();
        assert_eq!(found.trace.to_string(), TRACE);
        assert_eq!(found.span.to_string(), "00f067aa0ba902b7");
        assert!(found.sampled);
        let later = format!("cc-{TRACE}-00f067aa0ba902b7-02-more");
        assert!(!parent(later.as_bytes()).unwrap().sampled);
        for wrong in [
            String::new(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b-01"),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
        ] {
            assert_eq!(parent(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn the_upstream_is_told_of_the_span_that_leads_to_it() {
        let came = parent(format!("00-{TRACE}-00f067aa0ba902b7-01").as_bytes());
        let trace = Trace::begin(came, |_| false);
        let told = parent(trace.header().unwrap().as_bytes()).unwrap();
        assert_eq!((told.trace, told.span), (came.unwrap().trace, trace.onward));
        assert!(told.sampled, "the sender records it");
        assert_ne!(trace.own, trace.onward);
        let first = Trace::begin(None, |_| false);
        assert!(first.parent.is_none() && !first.sampled);
    }
}
