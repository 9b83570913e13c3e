//! Running task graphs: order, attempts, changes, pauses and restarts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used,
    reason = "a test may panic, in its helpers too"
)]

#[path = "../../../agent-runtime/tests/it/common.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod common;

mod at_event;
mod attempts;
mod cascade;
mod cascade_attack;
mod changes;
mod cost;
mod crash;
mod crew;
mod decided;
mod elsewhere;
mod faults;
mod figures;
mod given;
mod lives;
mod mail_attack;
mod order;
mod places;
mod planned;
mod prefix;
mod random;
mod refused;
mod restart;
mod scopes;
mod shapes;
mod team;
mod team_attack;
mod team_ends;
mod twins;
