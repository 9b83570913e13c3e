//! What a running server serves.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    permission::Scope,
    tool::{ToolSpec, Toolset},
};
use entourage_runners::Combined;
use entourage_runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::bounds::Bounds;

/// Time that the end of a server waits for cancelled calls to unwind.
const UNWIND: Duration = Duration::from_secs(10);

pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    pub(crate) runtime: Runtime,
    pub(crate) tools: Combined,
    pub(crate) scope: Scope,
    pub(crate) bounds: Bounds,
    /// Changes with the tools that are offered. Ends with the server.
    pub(crate) changes: watch::Receiver<()>,
    /// Ends them earlier, when nobody is left to be told of changes.
    pub(crate) unheard: CancellationToken,
    /// Places for clients that listen for changes.
    pub(crate) listeners: Arc<Semaphore>,
    /// The calls in flight.
    pub(crate) running: TaskTracker,
    /// Cancels them.
    pub(crate) over: CancellationToken,
}

impl Served {
    /// Returns the tools that clients are told of.
    pub(crate) fn offered(&self) -> impl Iterator<Item = ToolSpec> + use<> {
        self.tools.tools().keep(|spec| self.scope.offers(spec)).specs().to_vec().into_iter()
    }

    /// Waits until all calls have unwound, for a while. What takes longer is cancelled as well, and unwinds by itself.
    pub(crate) async fn unwound(&self) {
        self.running.close();
        tokio::time::timeout(UNWIND, self.running.wait()).await.unwrap_or_default();
    }
}
