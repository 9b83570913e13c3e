//! A process whose standard streams are sockets, as those of the children of Node are.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;

use crate::http::INITIALIZE;

/// More answers than fit into a socket.
const MANY: usize = 600;

/// Is this server, in a process of its own.
#[test]
#[ignore = "is started by the tests of this file"]
fn served_alone() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ended = runtime.block_on(ToolServer::new("test", &Runtime::in_memory()).serve_stdio());
    // As at the end of `main`: it waits for all that tokio cannot drop.
    drop(runtime);
    std::process::exit(i32::from(ended.is_err()) + 7);
}

/// Starts the server, with the ends of its streams.
fn start() -> (Child, UnixStream, UnixStream) {
    let (input, its_input) = UnixStream::pair().unwrap();
    let (output, its_output) = UnixStream::pair().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "streams::served_alone", "--ignored", "--nocapture"])
        .stdin(Stdio::from(OwnedFd::from(its_input)))
        .stdout(Stdio::from(OwnedFd::from(its_output)))
        .spawn()
        .unwrap();
    (child, input, output)
}

/// Returns the status of a process that ends. It fails for one that is there for ever.
fn ended(mut child: Child) -> Option<i32> {
    let (done, status) = channel();
    thread::spawn(move || done.send(child.wait().unwrap().code()));
    status.recv_timeout(Duration::from_secs(60)).unwrap()
}

fn lists(count: usize) -> String {
    let list = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"list-{id}\",\"method\":\"tools/list\"}}\n");
    (0..count).map(list).collect()
}

#[test]
fn a_server_over_sockets_answers_and_ends_with_its_input() {
    let (child, mut input, mut output) = start();
    input.write_all(format!("{INITIALIZE}\n{}", lists(MANY)).as_bytes()).unwrap();
    input.shutdown(Shutdown::Write).unwrap();
    let mut all = String::new();
    output.read_to_string(&mut all).unwrap();
    assert_eq!(all.matches("\"list-").count(), MANY);
    assert_eq!(ended(child), Some(7));
}

#[test]
fn a_server_over_sockets_ends_though_nothing_is_read() {
    let (child, mut input, output) = start();
    input.write_all(format!("{INITIALIZE}\n{}", lists(MANY)).as_bytes()).unwrap();
    input.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ended(child), Some(7));
    drop(output);
}

#[test]
fn a_server_over_sockets_ends_before_a_client_that_is_none() {
    let (child, mut input, output) = start();
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").unwrap();
    assert_eq!(ended(child), Some(8));
    drop((input, output));
}
