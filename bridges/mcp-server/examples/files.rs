//! Read-only file tools of a directory, for any client of the Model Context Protocol.
//!
//! ```text
//! files DIR               over standard input and output, as clients start their servers
//! files DIR --http PORT   over HTTP, at http://127.0.0.1:PORT/mcp; port 0 takes a free one
//! ```
//!
//! Sessions are kept in memory; a runtime with a store keeps a record of each call.

#![allow(
    clippy::print_stderr,
    reason = "an example talks to its terminal; standard output is the protocol's"
)]

use std::{env, process::ExitCode};

use entourage_core::{Error, ErrorKind, Result, tool::Tools};
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_tools::fs::Workspace;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (directory, port) = match arguments.as_slice() {
        [directory] => (*directory, None),
        [directory, "--http", port] => (*directory, Some(port.parse::<u16>().map_err(|_| usage())?)),
        _ => return Err(usage()),
    };
    let tools = Tools::new(Workspace::open(directory)?.read_tools())?;
    let server = ToolServer::new("files", &Runtime::in_memory())
        .toolset(tools)
        .instructions("Find and read the files of one directory. Paths are relative to it.");
    let Some(port) = port else { return server.serve_stdio().await };

    let failed =
        |error| Error::new(ErrorKind::Io, "the port cannot be opened; try another one").caused_by(error);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(failed)?;
    eprintln!("http://{}/mcp", listener.local_addr().map_err(failed)?);
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        stop.cancel();
    });
    server.serve_http(listener, shutdown).await
}

fn usage() -> Error {
    Error::new(ErrorKind::InvalidInput, "usage: files DIR [--http PORT]")
}
