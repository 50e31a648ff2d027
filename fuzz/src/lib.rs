//! What the fuzz targets check, over the parts of the product that read what a client or a config's
//! author wrote: `config`, `fence`, `route`, `extract`, the headers that go upstream, and the signatures
//! and signed bodies in `sign`.
//!
//! Those are taken in as files, not as the library: it has the store in it, and to compile that with
//! the fuzzer's counters would take longer than the run. They stand at the root as they do there, so
//! that what they name as `crate::…` is found.

// All that they want of rustls is a type, which stands in a small crate of its own.
extern crate self as rustls;
pub use rustls_pki_types as pki_types;

#[path = "../../src/config/mod.rs"]
pub mod config;
#[path = "../../src/extract.rs"]
pub mod extract;
#[path = "../../src/fence/mod.rs"]
pub mod fence;
#[path = "../../src/forward/headers.rs"]
pub mod headers;
#[path = "../../src/route/mod.rs"]
pub mod route;
pub mod sign;
#[path = "../../src/stamp.rs"]
pub mod stamp;

pub mod models;
pub mod targets;
