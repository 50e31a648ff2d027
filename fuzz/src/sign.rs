//! The part of the product's `sign` that reads what clients sent: not its signer, which asks the network for
//! credentials.

#[path = "../../src/sign/chunks.rs"]
mod chunks;
#[expect(dead_code, reason = "some of it is for the rest of `sign`")]
#[path = "../../src/sign/claim.rs"]
mod claim;
#[path = "../../src/sign/clients.rs"]
mod clients;

pub use chunks::{Chunks, Forged};
pub use clients::{Clients, Identity};
