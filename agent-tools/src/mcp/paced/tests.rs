use std::{future::pending, io, sync::MutexGuard};

use futures_util::Stream;
use rmcp::{
    model::{CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest},
    service::{ClientLifecycleMode, ClientServiceExt, RoleClient, RunningService},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::mcp::ends::{Hold, hold};

/// A server that asks on its own stream, on those of calls, or not at all.
#[derive(Clone)]
struct Server {
    asks: u64,
    /// True if requests of the server come with the answer to a call.
    with_calls: bool,
    /// True if the server cancels each request at once.
    cancels: bool,
    /// True if it takes what is sent aside.
    takes: bool,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    asked: u64,
    answers: usize,
    notices: usize,
}

type Event = <BoxedSseResponse as Stream>::Item;

fn event(message: &Value) -> Event {
    fn empty<T: Default, E>() -> Result<T, E> {
        Ok(T::default())
    }

    let mut event: Event = empty();
    if let Ok(event) = &mut event {
        event.data = Some(message.to_string());
    }
    event
}

impl Server {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Its requests, each with an id of its own.
    fn questions(&self) -> BoxedSseResponse {
        let server = self.clone();
        let events = (0..self.asks).flat_map(move |id| {
            server.seen().asked += 1;
            let ping = json!({"jsonrpc": "2.0", "id": format!("p{id}"), "method": "ping"});
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": {"requestId": format!("p{id}")}});
            [Some(ping), server.cancels.then_some(cancel)].into_iter().flatten().map(|it| event(&it))
        });
        stream::iter(events).boxed()
    }

    async fn taken(&self) -> StreamableHttpPostResponse {
        if !self.takes {
            pending::<()>().await;
        }
        StreamableHttpPostResponse::Accepted
    }
}

impl StreamableHttpClient for Server {
    type Error = io::Error;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Headers,
    ) -> Result<StreamableHttpPostResponse, StreamableHttpError<io::Error>> {
        let asked = match message {
            ClientJsonRpcMessage::Request(asked) => asked,
            ClientJsonRpcMessage::Notification(notice) => {
                if matches!(notice.notification, ClientNotification::CancelledNotification(_)) {
                    self.seen().notices += 1;
                    return Ok(self.taken().await);
                }
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
                self.seen().answers += 1;
                return Ok(self.taken().await);
            }
        };
        let begins = matches!(asked.request, ClientRequest::InitializeRequest(_));
        let result = match begins {
            true => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"}}),
            false => json!({"tools": []}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": asked.id, "result": result});
        if self.with_calls && !begins {
            let answer = stream::iter([event(&answer)]);
            return Ok(StreamableHttpPostResponse::Sse(self.questions().chain(answer).boxed(), None));
        }
        let answer = serde_json::from_value(answer).unwrap();
        Ok(StreamableHttpPostResponse::Json(answer, begins.then(|| "s".to_owned())))
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        _: Arc<str>,
        _: Option<String>,
        _: Headers,
    ) -> Result<(), StreamableHttpError<io::Error>> {
        Ok(())
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: Headers,
    ) -> Result<BoxedSseResponse, StreamableHttpError<io::Error>> {
        let asks = if self.with_calls { stream::empty().boxed() } else { self.questions() };
        Ok(asks.chain(stream::pending()).boxed())
    }
}

async fn connected(
    asks: u64,
    with_calls: bool,
    takes: bool,
) -> (Server, RunningService<RoleClient, ()>, Hold) {
    connect(Server { asks, with_calls, cancels: false, takes, seen: Arc::default() }).await
}

async fn connect(server: Server) -> (Server, RunningService<RoleClient, ()>, Hold) {
    let (hold, part) = hold();
    let config = StreamableHttpClientTransportConfig::with_uri("http://fake");
    let transport = StreamableHttpClientTransport::with_client(Paced::new(server.clone(), part), config);
    let client = ().serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await.unwrap();
    (server, client, hold)
}

#[tokio::test(start_paused = true)]
async fn attack_38_a_server_that_takes_no_answers_is_read_no_further_and_calls_go_on() {
    let (server, client, hold) = connected(10_000, false, false).await;
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        client.list_tools(None).await.unwrap();
    }
    // Each answer has its time.
    let Seen { asked, answers, .. } = *server.seen();
    assert!((64..1_000).contains(&asked) && (64..1_000).contains(&answers), "{asked} {answers}");
    let since = Instant::now();
    client.cancel().await.unwrap();
    drop(hold);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn requests_that_the_server_cancels_are_in_nobodys_way() {
    for (with_calls, takes) in [(false, true), (true, true), (true, false)] {
        let server = Server { asks: 1_000, with_calls, cancels: true, takes, seen: Arc::default() };
        let since = Instant::now();
        let (server, client, _hold) = connect(server).await;
        client.list_tools(None).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        client.list_tools(None).await.unwrap();
        let (took, asked) = (since.elapsed(), server.seen().asked);
        assert!(took < Duration::from_secs(2) && asked >= 1_000, "{with_calls} {takes}: {asked} {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attack_38_a_server_that_takes_answers_gets_all_of_them() {
    for with_calls in [false, true] {
        let (server, client, _hold) = connected(1_000, with_calls, true).await;
        client.list_tools(None).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let Seen { asked, answers, .. } = *server.seen();
        assert_eq!((asked, answers), (1_000, 1_000), "{with_calls}");
    }
    // Where it takes none, the call alone waits.
    let (server, client, _hold) = connected(1_000, true, false).await;
    assert!(timeout(Duration::from_secs(1), client.list_tools(None)).await.is_err());
    let asked = server.seen().asked;
    assert!(asked < 64, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn no_notice_of_a_cancelled_call_waits_for_another_one() {
    let (server, client, _hold) = connected(0, false, false).await;
    let told = |id| {
        let about = CancelledNotificationParam::new(Some(RequestId::Number(id)), None);
        client.send_notification(CancelledNotification::new(about).into())
    };
    let since = Instant::now();
    for id in 0..1_000 {
        told(id).await.unwrap();
    }
    assert_eq!(since.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(60)).await;
    // More than may wait are left out.
    assert_eq!(server.seen().notices, 256);
    told(1_000).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.seen().notices, 257);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_asked_for_until_its_server_is_not_reached_for_long() {
    type Got<E> = Result<(), StreamableHttpError<E>>;
    let unreached =
        || Got::Err(StreamableHttpError::Client(io::Error::from(io::ErrorKind::ConnectionRefused)));
    let refused = |status: u16| {
        Got::<reqwest::Error>::Err(StreamableHttpError::UnexpectedServerResponse(
            format!("HTTP {status}: no").into(),
        ))
    };
    fn is_over<E: Error + Send + Sync + 'static>(got: &Got<E>) -> bool {
        matches!(got, Err(StreamableHttpError::ServerDoesNotSupportSse))
    }
    let (hold, part) = hold();
    let paced = Paced::new((), part);
    assert!(!is_over(&paced.resumed(unreached(), true)));
    sleep(UNREACHED - Duration::from_millis(1)).await;
    assert!(!is_over(&paced.resumed(unreached(), true)));
    // It was there meanwhile.
    assert!(paced.resumed(Got::<io::Error>::Ok(()), true).is_ok());
    assert!(!is_over(&paced.resumed(unreached(), true)));
    sleep(UNREACHED).await;
    assert!(!is_over(&paced.resumed(unreached(), false)), "nothing was broken off");
    assert!(!hold.deaf().is_noted());
    assert!(is_over(&paced.resumed(unreached(), true)) && hold.deaf().is_noted());
    for (status, is_final) in
        [(404, true), (400, true), (410, true), (429, false), (408, false), (503, false)]
    {
        assert_eq!(is_over(&paced.resumed(refused(status), true)), is_final, "{status}");
        assert!(!is_over(&paced.resumed(refused(status), false)), "{status}");
    }
}
