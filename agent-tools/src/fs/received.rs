//! Files that come from elsewhere, written by the rules of `write`.

use std::time::Duration;

use entourage_core::tool::{ToolContext, ToolError};
use serde_json::{Value, json};

use super::{
    save::Target,
    sight::Sight,
    stop::{Stop, blocking},
    workspace::Workspace,
};

const TIME: Duration = Duration::from_secs(20);

impl Workspace {
    /// Checks that the call may write the file at `path`, as far as this can be told before.
    pub(crate) async fn can_receive(&self, path: &str, cx: &ToolContext<'_>) -> Result<(), ToolError> {
        self.target(path, cx, |target| target.read()?.map_or(Ok(()), |current| target.check_seen(&current)))
            .await
    }

    /// Writes the file at `path`, whole or not at all, and keeps its versions where there is a history. Returns the
    /// metadata of the result.
    pub(crate) async fn receive(
        &self,
        path: &str,
        content: Vec<u8>,
        cx: &ToolContext<'_>,
    ) -> Result<Value, ToolError> {
        let write = move |target: &Target<'_>| {
            let current = target.read()?;
            current.iter().try_for_each(|current| target.check_seen(current))?;
            let (digest, version) = target.put(current.as_ref(), &content)?;
            let before = current.as_ref().map(|current| current.digest.to_string());
            Ok(json!({
                "path": target.name,
                "created": current.is_none(),
                "before": before,
                "after": digest.to_string(),
                "version": version,
            }))
        };
        self.target(path, cx, write).await
    }

    async fn target<T: Send + 'static>(
        &self,
        path: &str,
        cx: &ToolContext<'_>,
        work: impl FnOnce(&Target<'_>) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let (ws, path, session, admission) =
            (self.clone(), path.to_owned(), cx.session().clone(), cx.admission());
        let judged = cx.footprint().writes.clone();
        blocking(TIME, move |stop: &Stop| {
            let sight = Sight::new(&ws, &session, &admission).changing(judged);
            let target = Target::of(&sight, &path, stop)?;
            let _one_at_a_time = ws.writing();
            work(&target)
        })
        .await
    }
}
