//! The guard: conditions by which the resource itself refuses a write that comes too late.
//!
//! A write that was let go of may land after the holder behind it has written. Where the resource honours
//! conditional requests (RFC 9110, section 13) it need not take effect then: each write names the state that it
//! is to change (`If-Match`), or that there is none yet (`If-None-Match: *`), and every later write moves that.
//! So the gateway keeps, for each object, the validator of its present state: a *pin*.
//!
//! A pin is a belief. Where it is wrong the resource refuses the write, and it is learned anew; so nothing of it
//! has to be durable at once: a clean stop leaves what is believed for the next start, and a crash forgets it. Knows
//! nothing of gates, of connections or of a request's journey.

mod answer;
mod condition;
mod honours;
mod left;
mod line;
mod pin;
mod probe;
mod question;
mod table;
mod turn;

pub use answer::Told;
pub use honours::{Honours, Known};
pub use line::{Crowded, Setting};
pub use probe::{Probe, Untried, error_code};
pub use question::Unlearnt;
pub use table::Guards;
pub use turn::{Turn, Unconditional};
