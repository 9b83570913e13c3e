//! Faults of servers on the connection, on every wire: each is scripted byte for byte on a raw loopback listener. Each
//! gives the right kind of error and retry advice, shows no secret, and leaves a working provider. `-- --nocapture`
//! shows the matrix.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic and print, in its helpers too"
)]

#[path = "faults/connection.rs"]
mod connection;
#[path = "faults/echo.rs"]
mod echo;
#[path = "faults/embeddings.rs"]
mod embeddings;
#[path = "faults/figures.rs"]
mod figures;
#[path = "faults/good.rs"]
mod good;
#[path = "faults/halves.rs"]
mod halves;
#[path = "faults/model.rs"]
mod model;
#[path = "faults/own_client.rs"]
mod own_client;
#[path = "faults/refusals.rs"]
mod refusals;
#[path = "faults/replies.rs"]
mod replies;
#[path = "faults/server.rs"]
mod server;
#[path = "faults/size.rs"]
mod size;
#[path = "faults/wires.rs"]
mod wires;
