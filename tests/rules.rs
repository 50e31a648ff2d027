//! Black-box tests of the rules: each is named after the rule of the protocol, or the row of the
//! interface, that it would fail without. The gateway runs as a process before a recording upstream.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // tests wait in real time

mod support;

#[path = "rules/access_log.rs"]
mod access_log;
#[path = "rules/answered_early.rs"]
mod answered_early;
#[path = "rules/answers.rs"]
mod answers;
#[path = "rules/clients.rs"]
mod clients;
#[path = "rules/commands.rs"]
mod commands;
#[path = "rules/consent.rs"]
mod consent;
#[path = "rules/durability.rs"]
mod durability;
#[path = "rules/events.rs"]
mod events;
#[path = "rules/eviction.rs"]
mod eviction;
#[path = "rules/exchange.rs"]
mod exchange;
#[path = "rules/framing.rs"]
mod framing;
#[path = "rules/guard.rs"]
mod guard;
#[path = "rules/h2.rs"]
mod h2;
#[path = "rules/headers.rs"]
mod headers;
#[path = "rules/limits.rs"]
mod limits;
#[path = "rules/methods.rs"]
mod methods;
#[path = "rules/modes.rs"]
mod modes;
#[path = "rules/object_store.rs"]
mod object_store;
#[path = "rules/order.rs"]
mod order;
#[path = "rules/poison.rs"]
mod poison;
#[path = "rules/reach.rs"]
mod reach;
#[path = "rules/regressions.rs"]
mod regressions;
#[path = "rules/regressions_pool.rs"]
mod regressions_pool;
#[path = "rules/reload.rs"]
mod reload;
#[path = "rules/resources.rs"]
mod resources;
#[path = "rules/signing.rs"]
mod signing;
#[path = "rules/systemd.rs"]
mod systemd;
#[path = "rules/tls.rs"]
mod tls;
#[path = "rules/tokens.rs"]
mod tokens;
#[path = "rules/traces.rs"]
mod traces;
#[path = "rules/upstream.rs"]
mod upstream;
#[path = "rules/upstream_h2.rs"]
mod upstream_h2;
#[path = "rules/upstream_tls.rs"]
mod upstream_tls;
#[path = "rules/websocket.rs"]
mod websocket;
#[path = "rules/world.rs"]
mod world;
