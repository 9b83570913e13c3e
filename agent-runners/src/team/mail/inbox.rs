//! Delivery with the results of a member's calls.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    message::Content,
    tool::{NextCall, ToolError, ToolLayer, ToolOutput},
};

use super::{Room, room::Mail};

/// The layer around the tools of one member: it adds the member's mail to their results.
#[derive(Debug)]
pub(crate) struct Inbox {
    room: Arc<Room>,
    member: Arc<str>,
    /// Sessions in which this process looked for mail that got lost.
    looked: Mutex<HashSet<Box<str>>>,
}

impl Inbox {
    pub(crate) fn new(room: &Arc<Room>, member: &str) -> Self {
        Self { room: Arc::clone(room), member: member.into(), looked: Mutex::default() }
    }
}

#[async_trait]
impl ToolLayer for Inbox {
    async fn around(&self, next: NextCall<'_>) -> Result<ToolOutput, ToolError> {
        let cx = next.context();
        let output = next.run().await?;
        let place = cx.session().as_str();
        let first = {
            let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
            looked.insert(place.into())
        };
        let lost = if first { self.room.lost(place, cx.run()) } else { Mail::default() };
        let call = cx.run().call().map(|id| id.to_string()).unwrap_or_default();
        let new = self.room.with_result(&self.member, place, &call).await.map_err(ToolError::Fatal)?;
        Ok([lost, new].into_iter().filter(|mail| !mail.text.is_empty()).fold(output, with_mail))
    }
}

fn with_mail(output: ToolOutput, mail: Mail) -> ToolOutput {
    let labels = output.labels | mail.labels;
    let mut output = output.with_labels(labels);
    output.content.push(Content::Text(mail.text));
    output
}
