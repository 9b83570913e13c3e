//! The usable part of answers that have something in them which is not known here.
//!
//! A newer server may have another kind of content, and any may have made one mistake among a hundred tools. The rest
//! is of use nevertheless.

use rmcp::{
    model::{
        CallToolResult, ClientRequest, ContentBlock, CustomResult, GetPromptRequest, GetPromptRequestParams,
        GetPromptResult, ListPromptsRequest, ListPromptsResult, ListResourcesRequest, ListResourcesResult,
        ListToolsRequest, ListToolsResult, PaginatedRequestParams, Prompt, PromptMessage, Resource,
        ServerResult, Tool,
    },
    service::{Peer, RoleClient, ServiceError},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::content;

/// Most bytes of the name of a kind that is not known.
const KIND: usize = 64;

/// One page of a server's tools, and the number of those that cannot be read.
pub(super) async fn tools(
    peer: &Peer<RoleClient>,
    page: PaginatedRequestParams,
) -> Result<(ListToolsResult, usize), ServiceError> {
    match peer.list_tools(Some(page.clone())).await {
        Err(ServiceError::UnexpectedResponse) => {
            let request = ListToolsRequest { params: Some(page), ..Default::default() };
            let answer = raw(peer, ClientRequest::ListToolsRequest(request)).await?;
            usable::<_, Tool>(answer, "tools", |_| None)
        }
        other => other.map(|page| (page, 0)),
    }
}

/// One page of a server's resources.
pub(super) async fn resources(
    peer: &Peer<RoleClient>,
    page: PaginatedRequestParams,
) -> Result<ListResourcesResult, ServiceError> {
    match peer.list_resources(Some(page.clone())).await {
        Err(ServiceError::UnexpectedResponse) => {
            let request = ListResourcesRequest { params: Some(page), ..Default::default() };
            let answer = raw(peer, ClientRequest::ListResourcesRequest(request)).await?;
            usable::<_, Resource>(answer, "resources", |_| None).map(|(page, _)| page)
        }
        other => other,
    }
}

/// One page of a server's prompts.
pub(super) async fn prompts(
    peer: &Peer<RoleClient>,
    page: PaginatedRequestParams,
) -> Result<ListPromptsResult, ServiceError> {
    match peer.list_prompts(Some(page.clone())).await {
        Err(ServiceError::UnexpectedResponse) => {
            let request = ListPromptsRequest { params: Some(page), ..Default::default() };
            let answer = raw(peer, ClientRequest::ListPromptsRequest(request)).await?;
            usable::<_, Prompt>(answer, "prompts", |_| None).map(|(page, _)| page)
        }
        other => other,
    }
}

/// A prompt that could not be read when it was asked for.
pub(super) async fn prompt(
    peer: &Peer<RoleClient>,
    params: GetPromptRequestParams,
) -> Result<GetPromptResult, ServiceError> {
    let answer = raw(peer, ClientRequest::GetPromptRequest(GetPromptRequest::new(params))).await?;
    let stand_in = |message: &Value| {
        Some(json!({"role": message.get("role")?, "content": unknown(message.get("content")?)}))
    };
    usable::<_, PromptMessage>(answer, "messages", stand_in).map(|(prompt, _)| prompt)
}

/// The result of a call in which not all content can be read.
pub(super) fn call(answer: Value) -> Result<CallToolResult, ServiceError> {
    usable::<_, ContentBlock>(answer, "content", |block| Some(unknown(block))).map(|(result, _)| result)
}

async fn raw(peer: &Peer<RoleClient>, request: ClientRequest) -> Result<Value, ServiceError> {
    match peer.send_request(request).await? {
        ServerResult::CustomResult(CustomResult(answer)) => Ok(answer),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

/// Text in place of a content.
fn unknown(block: &Value) -> Value {
    let text = match block.get("type").and_then(Value::as_str) {
        Some(kind) => {
            format!("(content of the kind `{}`, which cannot be read here)", content::told(kind, KIND))
        }
        None => "(content of a kind that is not known here)".to_owned(),
    };
    json!({"type": "text", "text": text})
}

/// The answer with those items of its list that can be read, or what stands in for them, and the number of the others.
fn usable<T: DeserializeOwned, P: DeserializeOwned>(
    mut answer: Value,
    list: &str,
    stand_in: impl Fn(&Value) -> Option<Value>,
) -> Result<(T, usize), ServiceError> {
    let items = answer.get_mut(list).and_then(Value::as_array_mut).ok_or(ServiceError::UnexpectedResponse)?;
    let all = items.len();
    let is_read = |item: &Value| P::deserialize(item).is_ok();
    let kept = items.drain(..).filter_map(|item| if is_read(&item) { Some(item) } else { stand_in(&item) });
    let kept: Vec<_> = kept.filter(is_read).collect();
    let left_out = all.saturating_sub(kept.len());
    *items = kept;
    let answer = serde_json::from_value(answer).map_err(|_| ServiceError::UnexpectedResponse)?;
    Ok((answer, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce01_content_of_an_unknown_kind_does_not_lose_the_rest() {
        let result = call(
            json!({"resultType": "complete", "isError": true, "structuredContent": {"n": 1}, "content": [
                {"type": "text", "text": "a"},
                {"type": "video\u{202e}", "data": "aGk="},
                {"type": "image", "data": 5},
                {"text": "b"},
                7,
            ]}),
        );
        let result = result.unwrap();
        let texts: Vec<_> =
            result.content.iter().map(|block| block.as_text().unwrap().text.as_str()).collect();
        let unknown = "(content of a kind that is not known here)";
        let of = |kind: &str| format!("(content of the kind `{kind}`, which cannot be read here)");
        assert_eq!(texts, ["a", &of("video"), &of("image"), unknown, unknown]);
        assert_eq!((result.is_error, result.structured_content), (Some(true), Some(json!({"n": 1}))));
        for bad in [json!({}), json!({"content": 5}), json!([]), json!({"content": [], "isError": 5})] {
            assert!(call(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ce01_a_tool_that_cannot_be_read_is_left_out_alone() {
        let answer = json!({"nextCursor": "n", "tools": [
            {"name": "a", "inputSchema": {}}, {"name": "b"}, {"name": 5, "inputSchema": {}}, {"name": "c", "inputSchema": []},
        ]});
        let (page, left_out): (ListToolsResult, _) = usable::<_, Tool>(answer, "tools", |_| None).unwrap();
        assert_eq!((page.tools.len(), left_out, page.next_cursor.as_deref()), (1, 3, Some("n")));
    }
}
