//! Streamable HTTP: connections, and the limits on them.

mod names;
mod sessions;

pub(crate) use names::Names;

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use entourage_core::Result;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::BoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    bounds::{MANY_CONNECT, MANY_LISTEN},
    conversation::Conversation,
    handler::Handler,
    http::sessions::Sessions,
    served::Served,
};

/// Path that is served.
const PATH: &str = "/mcp";
/// Time that the head of a request may take, and its body.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the head of a request.
const HEAD: usize = 64 << 10;
/// Longest time between two looks for idle sessions.
const SWEEP: Duration = Duration::from_secs(15);
/// Connections that are told at once that there are as many as may.
const REFUSED: usize = 32;
/// Time that such a connection has.
const REFUSING: Duration = Duration::from_secs(5);
/// Time that open connections have to end.
const CLOSING: Duration = Duration::from_secs(5);
/// Wait after a connection could not be accepted, as while there are no descriptors.
const RETRY: Duration = Duration::from_millis(100);

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Answers the requests of all connections.
struct Door {
    service: StreamableHttpService<Handler, Sessions>,
    sessions: Arc<Sessions>,
    /// The conversation of clients without a session.
    shared: Arc<Conversation>,
    listeners: Arc<Semaphore>,
    message: usize,
    runtime: Handle,
}

impl Drop for Door {
    fn drop(&mut self) {
        // The server may be dropped without its shutdown.
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move { shared.close().await });
    }
}

/// Accepts connections until the server is over, and lets them end.
pub(crate) async fn serve(served: &Arc<Served>, names: Names, listener: TcpListener) -> Result<()> {
    let over = served.over.clone();
    // Sessions are tasks of their own, which end by this token.
    let _over = over.clone().drop_guard();
    let door = Arc::new(Door::new(served, names, over.clone())?);
    let mut connections = JoinSet::new();
    let mut sweep = interval(between_sweeps(served.bounds.idle));
    let most = served.bounds.connections;
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = over.cancelled() => break,
            _ = sweep.tick() => door.sessions.sweep().await,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < most.saturating_add(REFUSED) => match accepted {
                Ok((stream, _)) if connections.len() < most => {
                    connections.spawn(Arc::clone(&door).connection(stream, over.clone()));
                }
                Ok((stream, _)) => {
                    connections.spawn(refuse(stream, served.bounds.message));
                }
                Err(_) => sleep(RETRY).await,
            },
        }
    }
    drop(listener);
    let closed = async {
        let ended = async { while connections.join_next().await.is_some() {} };
        timeout(CLOSING, ended).await.unwrap_or_default();
        // What a client does not read keeps its session.
        connections.shutdown().await;
    };
    tokio::join!(closed, served.unwound());
    door.shared.close().await;
    Ok(())
}

/// Returns the time between two looks for sessions that are idle for `idle`.
fn between_sweeps(idle: Duration) -> Duration {
    SWEEP.min(idle / 4)
}

/// Answers the one request of a connection that is too many.
async fn refuse(stream: TcpStream, message: usize) {
    let answer = service_fn(move |request: Request<Incoming>| async move {
        // An answer to a request that was not read may not arrive.
        let _ = Limited::new(request.into_body(), message).collect().await;
        Ok::<_, Infallible>(refusal(StatusCode::SERVICE_UNAVAILABLE, MANY_CONNECT))
    });
    let connection = http1::Builder::new()
        .max_header_size(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    // It is the matter of its client if this fails.
    let _ = timeout(REFUSING, connection).await;
}

impl Door {
    fn new(served: &Arc<Served>, names: Names, over: CancellationToken) -> Result<Self> {
        let sessions = Arc::new(Sessions::new(served.bounds.sessions, served.bounds.idle));
        // With an empty list of origins rmcp checks none, unless it is told to.
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(names.hosts)
            .with_allowed_origins(names.origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(served.bounds.message)
            .with_cancellation_token(over);
        let shared = Conversation::new(served)?;
        let (conversation, again) = (Arc::clone(&shared), Arc::clone(served));
        let handler = move || Ok(Handler::new(Arc::clone(&again), Arc::clone(&conversation)));
        let service = StreamableHttpService::new(handler, Arc::clone(&sessions), config);
        Ok(Self {
            service,
            sessions,
            shared,
            listeners: Arc::clone(&served.listeners),
            message: served.bounds.message,
            runtime: Handle::current(),
        })
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, over: CancellationToken) {
        let answer = service_fn(move |request| {
            let door = Arc::clone(&self);
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_header_size(HEAD)
            .serve_connection(TokioIo::new(stream), answer);
        let mut connection = std::pin::pin!(connection);
        // A connection that breaks is the matter of its client.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = over.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !names_one_host(&request) {
            return refusal(StatusCode::BAD_REQUEST, "the request must name one host, by the header `Host`");
        }
        if request.uri().path() != PATH {
            return refusal(StatusCode::NOT_FOUND, "the server answers at /mcp");
        }
        let (mut head, body) = request.into_parts();
        if is_same_origin(&head.headers) {
            head.headers.remove(header::ORIGIN);
        }
        let body = match timeout(PATIENCE, Limited::new(body, self.message).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                return refusal(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the request is larger than this server takes",
                );
            }
            Ok(Err(_)) => return refusal(StatusCode::BAD_REQUEST, "the request was cut off"),
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request did not come in time"),
        };
        // The answer to GET is a stream that stays open.
        let listens = match head.method {
            Method::GET => match Arc::clone(&self.listeners).try_acquire_owned() {
                Ok(place) => Some(place),
                Err(_) => return refusal(StatusCode::SERVICE_UNAVAILABLE, MANY_LISTEN),
            },
            _ => None,
        };
        let (begins, ends) = (!head.headers.contains_key("mcp-session-id"), head.method == Method::DELETE);
        let mut answer = self.service.handle(Request::from_parts(head, Full::new(body))).await;
        // rmcp has one status for all errors of its session manager.
        if begins && answer.status() == StatusCode::INTERNAL_SERVER_ERROR && self.sessions.is_full() {
            let text = "the server has as many sessions as it may; try again later";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        // The Python SDK takes 202 for a failure.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        answer.map(|body| held(body, listens))
    }
}

/// Returns the body, which keeps a place among those that listen as long as it lives.
fn held(body: BoxBody<Bytes, Infallible>, place: Option<OwnedSemaphorePermit>) -> BoxBody<Bytes, Infallible> {
    let Some(place) = place else { return body };
    let keep = move |frame| {
        let _ = &place;
        frame
    };
    body.map_frame(keep).boxed()
}

/// rmcp compares one host with those that are served, as far as it could parse it.
fn names_one_host(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    hosts.next().is_none() && request.uri().authority().is_none() && host.is_some_and(names::is_host)
}

/// True if the one origin is that of this server, by the name in `Host`, which is checked by itself. A page of another
/// port, or of another name for this machine, has another origin.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = origins.next().and_then(|origin| origin.to_str().ok()?.strip_prefix("http://"));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origins.next().is_none() && origin.is_some() && origin == host
}

fn refusal(status: StatusCode, text: &'static str) -> Answer {
    let mut response = Response::new(Full::from(text).boxed());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use entourage_runtime::Runtime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ToolServer;

    #[test]
    fn sessions_end_soon_after_they_are_idle() {
        for (idle, most) in [(1, 2), (10, 13), (60, 75), (1_800, 1_815)] {
            let idle = Duration::from_secs(idle);
            let sweep = between_sweeps(idle);
            assert!(!sweep.is_zero() && idle + sweep <= Duration::from_secs(most), "{idle:?}");
        }
    }

    #[tokio::test]
    async fn a_connection_too_many_is_told_so_at_once_and_the_next_one_has_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let mut server = ToolServer::new("test", &Runtime::in_memory());
        server.bounds.connections = 2;
        let serving = tokio::spawn(server.serve_http(listener, shutdown.clone()));
        let status = async |mut stream: TcpStream| {
            let request =
                "POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nConnection: close\r\n\r\n{";
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer.split(' ').nth(1).map(str::to_owned).unwrap_or_default()
        };
        let connect = || async { TcpStream::connect(address).await.unwrap() };
        let (first, second) = (connect().await, connect().await);
        for _ in 0..3 {
            assert_eq!(status(connect().await).await, "503");
        }
        assert_eq!(status(first).await, "404");
        let free = async { while status(connect().await).await != "404" {} };
        timeout(Duration::from_secs(60), free).await.unwrap();
        drop(second);
        shutdown.cancel();
        serving.await.unwrap().unwrap();
    }
}
