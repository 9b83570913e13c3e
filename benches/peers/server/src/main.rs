//! A server of chat completions on loopback, which streams as many deltas as the model's name says.
//!
//! `bench-20000` is sent as fast as the client reads, 64 deltas at a time; `bench-50-slow` in ten parts 10 ms apart.

use std::{convert::Infallible, sync::LazyLock, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;

const HEAD: &str =
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"bench","#;
const USAGE: &str = r#""usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
const WHOLE: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;

static LONG: LazyLock<Vec<Bytes>> = LazyLock::new(|| parts(20_000, 64));
static SHORT: LazyLock<Vec<Bytes>> = LazyLock::new(|| parts(50, 5));

fn chunk(delta: &str, finish: &str) -> String {
    format!(
        "{HEAD}\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn parts(deltas: usize, each: usize) -> Vec<Bytes> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    for index in 0..deltas {
        let role = if index == 0 { r#""role":"assistant","# } else { "" };
        text += &chunk(&format!(r#"{role}"content":"token ""#), "null");
        if (index + 1) % each == 0 {
            parts.push(Bytes::from(std::mem::take(&mut text)));
        }
    }
    text += &chunk("", "\"stop\"");
    text += &format!("{HEAD}\"choices\":[],{USAGE}\n\ndata: [DONE]\n\n");
    parts.push(Bytes::from(text));
    parts
}

async fn serve(request: Request<Incoming>) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if body["stream"] != true {
        let mut reply = Response::new(Full::new(Bytes::from_static(WHOLE.as_bytes())).boxed_unsync());
        reply.headers_mut().insert("content-type", "application/json".parse().unwrap());
        return Ok(reply);
    }
    let slow = body["model"] == "bench-50-slow";
    let parts = if body["model"] == "bench-20000" { &LONG } else { &SHORT };
    let parts = stream::iter(parts.iter().cloned()).then(move |part| async move {
        if slow {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Frame::data(part))
    });
    let mut reply = Response::new(BodyExt::boxed_unsync(StreamBody::new(parts)));
    reply.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    Ok(reply)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8199);
    LazyLock::force(&LONG);
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(([127, 0, 0, 1], port).into()).unwrap();
    let listener = socket.listen(4096).unwrap();
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let _ = connection.set_nodelay(true);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service_fn(serve)));
    }
}
