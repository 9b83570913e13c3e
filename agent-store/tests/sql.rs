//! Plain SQL on a store's database: the views, the queries of the README, and the totals of a tree. The same text runs
//! on SQLite and, when `DATABASE_URL` names a server, on PostgreSQL.

#![cfg(feature = "sqlite")]
#![allow(clippy::indexing_slicing, clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

#[path = "sql/both.rs"]
mod both;
#[path = "sql/crew.rs"]
mod crew;
#[path = "sql/engines.rs"]
mod engines;
#[path = "sql/hostile.rs"]
mod hostile;
#[path = "sql/installed.rs"]
mod installed;
#[path = "sql/open.rs"]
mod open;
#[path = "sql/pending.rs"]
mod pending;
#[path = "sql/planner.rs"]
mod planner;
#[path = "sql/plans.rs"]
mod plans;
#[path = "sql/queries.rs"]
mod queries;
#[path = "sql/runners.rs"]
mod runners;
#[path = "sql/seed.rs"]
mod seed;
#[path = "sql/teams.rs"]
mod teams;
#[path = "sql/totals.rs"]
mod totals;
#[path = "sql/views.rs"]
mod views;
