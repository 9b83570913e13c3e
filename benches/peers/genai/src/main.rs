//! genai: a client without an agent, streaming with a resolver that points to the server.

use std::hint::black_box;

use futures::StreamExt;
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{ChatMessage, ChatRequest, ChatStreamEvent},
    resolver::{AuthData, Endpoint, Error, ServiceTargetResolver},
};
use kit::{Bench, Counting, STREAMS, WIRE};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn client() -> Client {
    let url = format!("{}/", kit::base_url());
    let target = move |target: ServiceTarget| -> Result<ServiceTarget, Error> {
        Ok(ServiceTarget {
            endpoint: Endpoint::from_owned(url.clone()),
            auth: AuthData::from_single("k"),
            model: ModelIden::new(AdapterKind::OpenAI, target.model.model_name),
        })
    };
    let resolver = ServiceTargetResolver::from_resolver_fn(target);
    Client::builder().with_service_target_resolver(resolver).build().unwrap()
}

async fn drain(client: Client, model: &str) -> usize {
    let request = ChatRequest::default().append_message(ChatMessage::user("hi"));
    let mut events = client.exec_chat_stream(model, request, None).await.unwrap().stream;
    let mut deltas = 0;
    while let Some(event) = events.next().await {
        if let ChatStreamEvent::Chunk(chunk) = event.unwrap() {
            deltas += usize::from(!chunk.content.is_empty());
            black_box(chunk);
        }
    }
    deltas
}

fn main() {
    let bench = Bench::new("genai");
    let shared = client();
    bench.wire(async || drain(shared.clone(), WIRE.1).await);
    let shared = client();
    bench.streams(|| drain(shared.clone(), STREAMS.1));
}
