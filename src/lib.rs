//! fencegate: a reverse proxy that keeps zombies from writing.
//!
//! A lock holder that paused and lost its lock may still write. The cure is a fencing token, a number
//! that grows each time the lock changes hands, checked by the resource; fencegate checks it for
//! resources that cannot.
//!
//! # The map
//! Read [`journey`] first: a request's way, one stage a line. The rules are in [`fence`], a pure
//! state machine; [`admit`] is its async shell, [`store`] its memory, [`forward`] the only way out,
//! which takes a write only with a [`Pass`](admit::Pass); [`guard`] gives it a condition by which the
//! resource itself refuses it where it comes late. [`route`] and [`extract`] say what a request
//! is and which token it shows; [`refusal`] has every answer of the gateway's own. [`app`] puts it all
//! together.
//!
//! # The invariants
//! - **I1** The fence of a resource never decreases.
//! - **I2** Durable before forward: no byte of a write goes upstream before its fence is on disk.
//! - **I3** No write below the fence starts upstream after the seal.
//! - **I4** When a write is forwarded, every lower write that was ever forwarded is settled.
//! - **I5** Fail closed: when the store cannot answer or commit, no fenced write is forwarded.
//! - **I6** A write is sent at most once.
//! - **I7** Each refusal is counted once.
//! - **I8** A raise is not lost by a client that goes away.
//!
//! docs/protocol.md has the reasons, and docs/architecture.md where each is kept and tested.

pub mod admin;
pub mod admit;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod event;
pub mod extract;
pub mod fence;
pub mod fetch;
pub mod forward;
pub mod guard;
pub mod journey;
pub mod lifecycle;
pub mod listen;
pub mod record;
pub mod refusal;
pub mod route;
pub mod sign;
pub mod socket;
pub mod stamp;
pub mod store;
pub mod tls;
