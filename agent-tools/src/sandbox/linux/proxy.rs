//! The proxy through which commands reach the hosts of their sandbox, and no others.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener as StdListener, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    Error,
    permission::Scope,
    tool::{Access, Footprint, ToolSpec},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::Command,
    sync::Semaphore,
    task::{AbortHandle, JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::listener::PORT;
use crate::{address::first_closed, sandbox::enforced::Refused};

/// Most connections of a command at a time. More wait.
const CONNECTIONS: usize = 64;
/// Most hosts of a command that are looked up at a time.
const LOOKUPS: usize = 8;
/// Most bytes of the head of a request, and most fields in it.
const HEAD: usize = 16 << 10;
const FIELDS: usize = 100;
/// Time for a head to arrive, and for a host to be found and reached.
const HEAD_TIME: Duration = Duration::from_secs(10);
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// Time for which one side may be silent once the other one has said all, and bytes that are read from it at a time.
const SILENCE: Duration = Duration::from_secs(5);
const BUFFER: usize = 8 << 10;
/// Time and bytes for which a refused client may go on to send.
const LINGER: Duration = Duration::from_secs(1);
const LINGERING: u64 = 64 << 10;
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Sets the variables by which programs find the proxy.
pub(super) fn announce(command: &mut Command) {
    let address = format!("http://127.0.0.1:{PORT}");
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env(name, &address);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        command.env(name, "localhost,127.0.0.1,::1");
    }
}

/// A proxy that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Proxy(AbortHandle);

impl Drop for Proxy {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a proxy on `listener`, which does not block, to the hosts of `scope`. Must be called within a runtime.
pub(super) fn serve(listener: StdListener, scope: Scope, refused: Refused) -> Result<Proxy, Error> {
    let listener = TcpListener::from_std(listener)?;
    Ok(Proxy(tokio::spawn(accept(listener, Arc::new(Hosts::new(scope, refused)))).abort_handle()))
}

async fn accept(listener: TcpListener, hosts: Arc<Hosts>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < CONNECTIONS => match accepted {
                Ok((client, _)) => {
                    let hosts = Arc::clone(&hosts);
                    // An error is the end of a connection, which both its ends see.
                    open.spawn(async move { drop(relay(client, &hosts).await) });
                }
                Err(_) => sleep(PAUSE).await,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

/// Hosts that commands may reach.
#[derive(Debug)]
struct Hosts {
    scope: Scope,
    spec: ToolSpec,
    refused: Refused,
    lookups: Arc<Semaphore>,
}

impl Hosts {
    fn new(scope: Scope, refused: Refused) -> Self {
        let spec = ToolSpec::new("proxy", "", serde_json::Value::Null)
            .with_access(Access::NETWORK)
            .naming_subjects();
        Self { scope, spec, refused, lookups: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    fn admit(&self, footprint: &Footprint) -> bool {
        self.scope.admits(&self.spec, footprint).is_ok()
    }

    /// The name of the host that `text` stands for.
    fn named(&self, text: &str) -> Result<String, Refusal> {
        let footprint = Footprint::new(Access::NETWORK).naming_host(text);
        if footprint.unclear || !self.admit(&footprint) {
            let held =
                self.scope.hosts().into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Refusal::Forbidden(format!(
                "`{text}` is not a host of this sandbox, which has {held}"
            )));
        }
        footprint.hosts.into_iter().next().ok_or(Refusal::Malformed)
    }

    /// The first of a host's addresses that commands may not reach.
    fn closed(&self, found: &[SocketAddr]) -> Option<IpAddr> {
        let is_open =
            |address: IpAddr| self.admit(&Footprint::new(Access::NETWORK).talking_to(address.to_string()));
        first_closed(found.iter().map(SocketAddr::ip), is_open)
    }

    /// The addresses of a host. A lookup holds a thread of the runtime as long as name servers are silent, so a command
    /// has few at a time.
    async fn look_up(&self, host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let look = move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(permit);
            found
        };
        spawn_blocking(look).await?
    }

    /// Connects to a host that is admitted, at the addresses that were checked and no others.
    async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        let host = self.named(&target.host)?;
        let found = timeout(CONNECT_TIME, self.look_up(host.clone(), target.port))
            .await
            .map_err(|_| Refusal::Unreachable(format!("`{host}` was not found in time")))?
            .map_err(|error| Refusal::Unreachable(format!("`{host}` was not found: {error}")))?;
        if let Some(private) = self.closed(&found) {
            return Err(Refusal::Forbidden(format!(
                "`{host}` leads to {private}, which is not an address of another machine on the internet; list the address to allow it"
            )));
        }
        timeout(CONNECT_TIME, TcpStream::connect(found.as_slice()))
            .await
            .map_err(|_| Refusal::Unreachable(format!("`{host}` did not answer in time")))?
            .map_err(|error| Refusal::Unreachable(format!("`{host}` was not reached: {error}")))
    }
}

/// A reason for which a request goes nowhere.
#[derive(Debug, PartialEq)]
enum Refusal {
    Malformed,
    Forbidden(String),
    Late,
    TooLarge,
    Unreachable(String),
}

impl Refusal {
    fn response(&self) -> String {
        let (status, text) = match self {
            Self::Malformed => {
                ("400 Bad Request", "the proxy of the sandbox takes CONNECT and requests for http:// alone")
            }
            Self::Forbidden(text) => ("403 Forbidden", text.as_str()),
            Self::Late => ("408 Request Timeout", "the head of the request did not arrive in time"),
            Self::TooLarge => {
                ("431 Request Header Fields Too Large", "the head of the request has more than 16 KiB")
            }
            Self::Unreachable(text) => ("502 Bad Gateway", text.as_str()),
        };
        let length = text.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{text}\n"
        )
    }
}

/// The destination of a request, and the head that goes to it; none for a tunnel.
#[derive(Debug, PartialEq)]
struct Target {
    host: String,
    port: u16,
    head: Option<Vec<u8>>,
}

impl Target {
    fn read(head: &[u8]) -> Result<Self, Refusal> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        let complete = request.parse(head).is_ok_and(|parsed| parsed.is_complete());
        let (Some(method), Some(target), true) = (request.method, request.path, complete) else {
            return Err(Refusal::Malformed);
        };
        if method == "CONNECT" {
            let (host, port) = authority(target, None)?;
            return Ok(Self { host, port, head: None });
        }
        let rest = match target.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => rest,
            _ => return Err(Refusal::Malformed),
        };
        let (name, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = authority(name, Some(80))?;
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let version = request.version.unwrap_or(1);
        let mut head =
            format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {name}\r\nConnection: close\r\n")
                .into_bytes();
        let passed = request.headers.iter().filter(|field| !is_own(field.name));
        for field in passed {
            head.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        Ok(Self { host, port, head: Some(head) })
    }
}

/// True for a field that concerns one connection alone, or that the proxy writes itself.
fn is_own(name: &str) -> bool {
    const OWN: [&str; 6] = ["host", "connection", "keep-alive", "te", "trailer", "upgrade"];
    let name = name.to_ascii_lowercase();
    name.starts_with("proxy-") || OWN.contains(&name.as_str())
}

/// The host and the port of an authority without a user.
fn authority(text: &str, default: Option<u16>) -> Result<(String, u16), Refusal> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (text, default),
    };
    let port = port.filter(|port| *port != 0).ok_or(Refusal::Malformed)?;
    if host.is_empty() || host.contains(['@', '/', '?', '#', '%']) {
        return Err(Refusal::Malformed);
    }
    Ok((host.to_owned(), port))
}

/// Serves one connection.
async fn relay(mut client: TcpStream, hosts: &Hosts) -> io::Result<()> {
    let (head, sent) = match timeout(HEAD_TIME, head(&mut client)).await {
        Ok(Ok(read)) => read,
        Ok(Err(refusal)) => return refuse(client, &refusal).await,
        Err(_) => return refuse(client, &Refusal::Late).await,
    };
    let reached = match Target::read(&head) {
        Ok(target) => hosts.connect(&target).await.map(|server| (server, target.head)),
        Err(refusal) => Err(refusal),
    };
    if let Err(Refusal::Forbidden(text)) = &reached {
        hosts.refused.note(text);
    }
    match reached {
        Err(refusal) => refuse(client, &refusal).await,
        Ok((mut server, head)) => {
            match head {
                None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
                Some(head) => server.write_all(&head).await?,
            }
            server.write_all(&sent).await?;
            between(client, server).await
        }
    }
}

/// Passes on what both sides say. A side that has closed looks like one that has said all, so the other one must not
/// keep the connection by silence.
async fn between(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let steps = AtomicU64::new(0);
    let (asked, answered) = (pass(from_client, to_server, &steps), pass(from_server, to_client, &steps));
    tokio::pin!(asked, answered);
    let mut rest = tokio::select! {
        end = &mut asked => end.map(|()| answered),
        end = &mut answered => end.map(|()| asked),
    }?;
    loop {
        let before = steps.load(Ordering::Relaxed);
        match timeout(SILENCE, &mut rest).await {
            Ok(end) => return end,
            Err(_) if before.is_multiple_of(2) && steps.load(Ordering::Relaxed) == before => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(_) => {}
        }
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, steps: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        let Some(read) = buffer.get(..read).filter(|read| !read.is_empty()) else {
            return to.shutdown().await;
        };
        // An odd number of steps: what was said waits for its reader, which is no silence.
        steps.fetch_add(1, Ordering::Relaxed);
        to.write_all(read).await?;
        steps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads the head of a request, and what was sent after it.
async fn head(client: &mut TcpStream) -> Result<(Vec<u8>, Vec<u8>), Refusal> {
    let mut read = Vec::with_capacity(1 << 10);
    loop {
        let known = read.len();
        if client.read_buf(&mut read).await.map_or(true, |new| new == 0) {
            return Err(Refusal::Malformed);
        }
        let from = known.saturating_sub(3);
        let end = read.get(from..).and_then(|new| new.windows(4).position(|four| four == b"\r\n\r\n"));
        if let Some(end) = end.map(|at| from + at + 4).filter(|end| *end <= HEAD) {
            let sent = read.split_off(end);
            return Ok((read, sent));
        }
        if read.len() > HEAD {
            return Err(Refusal::TooLarge);
        }
    }
}

/// Answers, and lets the client finish: an early close would take the answer back.
async fn refuse(mut client: TcpStream, refusal: &Refusal) -> io::Result<()> {
    client.write_all(refusal.response().as_bytes()).await?;
    client.shutdown().await?;
    let mut rest = client.take(LINGERING);
    let _ = timeout(LINGER, copy(&mut rest, &mut sink())).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_35_one_private_address_closes_a_host_that_has_others() {
        let scope = Scope::all().with_hosts(["a.example", "10.0.0.1", "fd00::1"]);
        let hosts = Hosts::new(scope, Refused::default());
        let closed = |found: &[&str]| {
            let found: Vec<SocketAddr> =
                found.iter().map(|it| SocketAddr::new(it.parse().unwrap(), 443)).collect();
            hosts.closed(&found).map(|address| address.to_string())
        };
        for (found, address) in [
            (&["1.1.1.1", "2606:4700::1111"][..], None),
            (&["1.1.1.1", "127.0.0.1"], Some("127.0.0.1")),
            (&["169.254.169.254", "1.1.1.1"], Some("169.254.169.254")),
            (&["10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "1.1.1.1"], None),
            (&["10.0.0.1", "10.0.0.2"], Some("10.0.0.2")),
        ] {
            assert_eq!(closed(found).as_deref(), address, "{found:?}");
        }
    }

    #[test]
    fn a_request_goes_on_with_a_head_of_the_proxys_own() {
        let read = |head: &str| Target::read(head.as_bytes());
        let to = |host: &str, port, head: Option<&str>| {
            Ok(Target { host: host.to_owned(), port, head: head.map(|head| head.as_bytes().to_vec()) })
        };
        for (head, target) in [
            ("CONNECT a.example:443 HTTP/1.1\r\n\r\n", to("a.example", 443, None)),
            ("CONNECT [2606:4700::1]:443 HTTP/1.1\r\nHost: b\r\n\r\n", to("[2606:4700::1]", 443, None)),
            (
                "GET http://a.example HTTP/1.0\r\nProxy-Authorization: x\r\nHost: b\r\nA: 1\r\n\r\n",
                to(
                    "a.example",
                    80,
                    Some("GET / HTTP/1.0\r\nHost: a.example\r\nConnection: close\r\nA: 1\r\n\r\n"),
                ),
            ),
            (
                "PUT HTTP://a.example:8080?q#f HTTP/1.1\r\n\r\n",
                to(
                    "a.example",
                    8_080,
                    Some("PUT /?q HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n"),
                ),
            ),
            ("GET /path HTTP/1.1\r\n\r\n", Err(Refusal::Malformed)),
            ("GET ftp://a.example/ HTTP/1.1\r\n\r\n", Err(Refusal::Malformed)),
            ("CONNECT [::1] HTTP/1.1\r\n\r\n", Err(Refusal::Malformed)),
            ("CONNECT a.example:443", Err(Refusal::Malformed)),
        ] {
            assert_eq!(read(head), target, "{head}");
        }
    }
}
