//! Resources and prompts of a server, which two of its tools list and read.

use entourage_core::tool::ToolOutput;
use rmcp::{
    model::{
        GetPromptRequestParams, GetPromptResponse, PaginatedRequestParams, ReadResourceRequestParams,
        ReadResourceResponse,
    },
    service::{Peer, RoleClient, ServiceError},
};
use serde_json::Value;

use super::{content, salvage};

/// Most resources or prompts that are listed.
const LISTED: usize = 500;
const PAGES: usize = 20;

pub(super) async fn read(peer: &Peer<RoleClient>, uri: String) -> Result<ToolOutput, ServiceError> {
    match peer.read_resource_once(ReadResourceRequestParams::new(uri)).await? {
        ReadResourceResponse::Complete(result) => Ok(content::resource_of(result)),
        _ => Err(ServiceError::UnexpectedResponse),
    }
}

pub(super) async fn prompt(
    peer: &Peer<RoleClient>,
    name: String,
    arguments: Option<&Value>,
) -> Result<ToolOutput, ServiceError> {
    let mut params = GetPromptRequestParams::new(name);
    params.arguments = arguments.and_then(Value::as_object).cloned();
    match peer.get_prompt_once(params.clone()).await {
        Ok(GetPromptResponse::Complete(result)) => Ok(content::messages_of(result)),
        Err(ServiceError::UnexpectedResponse) => {
            salvage::prompt(peer, params).await.map(content::messages_of)
        }
        Ok(_) => Err(ServiceError::UnexpectedResponse),
        Err(error) => Err(error),
    }
}

pub(super) async fn resources(peer: &Peer<RoleClient>) -> Result<ToolOutput, ServiceError> {
    let lines = listed(|page| async move {
        let page = salvage::resources(peer, page).await?;
        Ok((page.resources.iter().map(content::line).collect(), page.next_cursor))
    });
    Ok(shown(lines.await?, "resources"))
}

pub(super) async fn prompts(peer: &Peer<RoleClient>) -> Result<ToolOutput, ServiceError> {
    let lines = listed(|page| async move {
        let page = salvage::prompts(peer, page).await?;
        Ok((page.prompts.iter().map(content::prompt_line).collect(), page.next_cursor))
    });
    Ok(shown(lines.await?, "prompts"))
}

/// The lines of all pages, which `page` gives with the cursor of the next one, up to the bounds.
async fn listed<F>(mut page: impl FnMut(PaginatedRequestParams) -> F) -> Result<Vec<String>, ServiceError>
where
    F: Future<Output = Result<(Vec<String>, Option<String>), ServiceError>>,
{
    let (mut lines, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES {
        let (more, next) = page(PaginatedRequestParams::default().with_cursor(cursor)).await?;
        lines.extend(more);
        cursor = next;
        if cursor.is_none() || lines.len() >= LISTED {
            break;
        }
    }
    Ok(lines)
}

fn shown(mut lines: Vec<String>, what: &str) -> ToolOutput {
    if lines.is_empty() {
        return ToolOutput::text(format!("The server has no {what}."));
    }
    let more = lines.len() > LISTED;
    lines.truncate(LISTED);
    if more {
        lines.push(format!("There are more than {LISTED} {what}; these are the first."));
    }
    ToolOutput::text(lines.join("\n"))
}
