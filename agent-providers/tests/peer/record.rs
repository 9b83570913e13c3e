//! Real calls, recorded and played again.

use entourage_core::{
    message::Message,
    provider::{CallContext, Layer, Request},
    tool::ToolSpec,
};
use entourage_runtime::layers::{Recorder, Replay};
use entourage_runtime::reply::ProviderExt;
use serde_json::{Value, json};

use crate::{KEY, SERVER, params, peers, request};

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_recording_holds_the_exchange_and_no_secret_and_can_be_played() {
    let _server = SERVER.read().await;
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tool = ToolSpec::new("line_count", "Counts the lines of a file.", schema);
    for peer in peers() {
        let recorder = Recorder::new();
        let provider = (&recorder).layer(peer.provider);
        let cx = CallContext::new();
        let asked =
            [request("Hi").with_instructions("Be brief."), request("Count.").with_tools([tool.clone()])];
        let mut said: Vec<Message> = Vec::new();
        for request in asked.clone() {
            said.push(provider.complete(request, &cx).await.unwrap().into_message());
        }
        let long = Request::new("default", [Message::user("word ".repeat(10_000))].into_iter().collect());
        let refused = provider.complete(long.clone().with_params(params()), &cx).await.unwrap_err();

        let text = recorder.to_json("peer").unwrap();
        assert!(!text.contains(KEY) && !text.to_lowercase().contains("authorization"), "{}", peer.wire);
        let recording: Value = serde_json::from_str(&text).unwrap();
        let interactions = recording["interactions"].as_array().unwrap();
        let chats = interactions.iter().filter(|one| one["request"]["path"] == peer.path);
        let chats: Vec<_> = chats.collect();
        println!("{}: {} interactions, {} bytes", peer.wire, interactions.len(), text.len());
        assert_eq!((recording["protocol"].as_str(), chats.len()), (Some(peer.wire), 3), "{}", peer.wire);
        for (one, status) in chats.iter().zip([200, 200, 400]) {
            let (request, response) = (&one["request"], &one["response"]);
            assert_eq!(
                (one["protocol"].as_str(), request["method"].as_str()),
                (Some(peer.wire), Some("POST"))
            );
            assert_eq!((&response["status"], &request["body"]["stream"]), (&status.into(), &true.into()));
            assert_eq!(request["body"]["model"], "tiny-random");
            let begins = if status == 200 { ["data: ", "event: "] } else { ["{\"error\"", "{\"type\""] };
            let body = response["body"].as_str().unwrap();
            assert!(begins.iter().any(|begin| body.starts_with(begin)), "{}: {body}", peer.wire);
        }

        let replay = Replay::from_json(&text).unwrap();
        for (request, message) in asked.into_iter().zip(said) {
            let again = replay.provider().complete(request, &cx).await.unwrap().into_message();
            assert_eq!(again.parts(), message.parts(), "{}", peer.wire);
        }
        let again = replay.provider().complete(long.with_params(params()), &cx).await.unwrap_err();
        assert_eq!((again.kind(), again.message()), (refused.kind(), refused.message()), "{}", peer.wire);
        assert_eq!(replay.remaining(), 0);
    }
}
