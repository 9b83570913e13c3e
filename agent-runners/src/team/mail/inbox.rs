//! Delivery with the results of a member's calls.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    message::Content,
    tool::{NextCall, ToolError, ToolLayer, ToolOutput},
};

use serde_json::{Value, json};

use super::{
    Room, call_of,
    room::{Mail, RECEIPT},
};

/// The layer around the tools of one member: it adds the member's mail to their results.
#[derive(Debug)]
pub(crate) struct Inbox {
    room: Arc<Room>,
    member: Arc<str>,
}

impl Inbox {
    pub(crate) fn new(room: &Arc<Room>, member: &str) -> Self {
        Self { room: Arc::clone(room), member: member.into() }
    }
}

#[async_trait]
impl ToolLayer for Inbox {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let cx = next.context();
        let output = next.run().await?;
        let (place, call) = (cx.session().as_str(), call_of(cx));
        let mail = self.room.with_result((&*self.member, place, &*call), cx.run()).await;
        let mail = mail.map_err(ToolError::Fatal)?;
        let output = if mail.text.is_empty() { output } else { with_mail(output, mail) };
        Ok(receipted(output, &self.room.brought_by(place, &call)))
    }
}

fn with_mail(output: ToolOutput, mail: Mail) -> ToolOutput {
    let labels = output.labels | mail.labels;
    let mut output = output.with_labels(labels);
    output.content.push(Content::Text(mail.text));
    output
}

/// Notes in the data for programs which messages a result shows. A tool's own note of this name counts for nothing.
fn receipted(mut output: ToolOutput, messages: &[Arc<str>]) -> ToolOutput {
    if let Some(Value::Object(own)) = &mut output.metadata {
        own.remove(RECEIPT);
    }
    if messages.is_empty() {
        return output;
    }
    let receipt = json!(messages.iter().map(|id| &**id).collect::<Vec<_>>());
    match &mut output.metadata {
        Some(Value::Object(own)) => drop(own.insert(RECEIPT.to_owned(), receipt)),
        Some(other) => *other = json!({ "value": other.take(), RECEIPT: receipt }),
        None => output.metadata = Some(json!({ RECEIPT: receipt })),
    }
    output
}
