//! Changes of the tools while they are served.
//!
//! A `Toolset` is asked, and says nothing by itself. So one task for all clients looks at it.

use std::{sync::Arc, time::Duration};

use entourage_core::tool::ToolSpec;
use rmcp::{Peer, RoleServer, service::SubscriptionContext};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::served::Served;

/// Time between two looks at the tools.
const LOOK: Duration = Duration::from_secs(1);

/// Looks for changes until `over`, or until the handle is dropped. Then subscriptions end.
pub(crate) fn watch(
    served: &Arc<Served>,
    tell: watch::Sender<()>,
    over: CancellationToken,
) -> AbortOnDropHandle<()> {
    let served = Arc::clone(served);
    AbortOnDropHandle::new(tokio::spawn(async move {
        over.run_until_cancelled(look(&served, &tell)).await;
    }))
}

async fn look(served: &Served, tell: &watch::Sender<()>) {
    let mut before: Vec<ToolSpec> = served.offered().collect();
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if served.offered().eq(before.iter().cloned()) {
            continue;
        }
        before = served.offered().collect();
        tell.send_replace(());
    }
}

/// Tells a client that began a session of each change, until the handle is dropped. One that reads slowly is told once
/// of several.
pub(crate) fn tell(mut changes: watch::Receiver<()>, peer: Peer<RoleServer>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        while changes.changed().await.is_ok() && peer.notify_tool_list_changed().await.is_ok() {}
    }))
}

/// Tells a client that subscribed of each change, until it cancels that, or the server stops, or nobody is left to be
/// told.
pub(crate) async fn tell_subscriber(
    mut changes: watch::Receiver<()>,
    context: &SubscriptionContext,
    unheard: &CancellationToken,
) {
    let told = async {
        while changes.changed().await.is_ok() && context.sink().notify_tool_list_changed().await.is_ok() {}
    };
    tokio::select! {
        () = context.cancelled() => {}
        () = unheard.cancelled() => {}
        () = told => {}
    }
}
