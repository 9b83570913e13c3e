//! Clients that are told of changed tools.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_core::tool::{Access, Tools, Toolset};
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::FakeTool;
use rmcp::{model::SubscriptionFilter, service::ClientLifecycleMode};

use crate::{
    http::Site,
    kit::{CHANGED, Client, connect_by, lifecycles, tools},
};

/// Tools that the test changes.
#[derive(Debug, Clone)]
struct Changing(Arc<Mutex<Tools>>);

impl Toolset for Changing {
    fn tools(&self) -> Tools {
        self.0.lock().unwrap().clone()
    }
}

impl Changing {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(tools([Arc::new(FakeTool::new("one"))]))))
    }

    fn server(&self) -> ToolServer {
        ToolServer::new("test", &Runtime::in_memory()).toolset(self.clone())
    }

    /// Has the tool `one`, and this one.
    fn become_with(&self, other: &str, access: Access) {
        let other = Arc::new(FakeTool::new(other).access(access));
        *self.0.lock().unwrap() = tools([Arc::new(FakeTool::new("one")), other]);
    }
}

/// Waits until the client is told, and lists again.
async fn told(client: &mut Client, set: &Changing, subscribed: bool) {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let mut subscription = match subscribed {
        true => Some(client.service.listen(filter).await.unwrap()),
        false => None,
    };
    assert_eq!(client.names().await, ["one"]);
    set.become_with("two", Access::READ);
    match &mut subscription {
        Some(subscription) => drop(subscription.next().await.unwrap().unwrap()),
        None => assert_eq!(client.progress.recv().await.unwrap().1, CHANGED),
    }
    assert_eq!(client.names().await, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_is_told_when_the_tools_change() {
    for lifecycle in lifecycles() {
        let set = Changing::new();
        let subscribed = !matches!(lifecycle, ClientLifecycleMode::Initialize);
        let mut client = connect_by(set.server(), lifecycle).await;
        // This is out of the scope. The paused clock jumps over several looks.
        set.become_with("writes", Access::WRITE);
        tokio::time::sleep(Duration::from_secs(5)).await;
        told(&mut client, &set, subscribed).await;
        assert!(client.progress.try_recv().is_err(), "told twice");
        client.close().await;
    }
}

#[tokio::test]
async fn a_client_over_http_is_told_when_the_tools_change() {
    for lifecycle in lifecycles() {
        let set = Changing::new();
        let subscribed = !matches!(lifecycle, ClientLifecycleMode::Initialize);
        let site = Site::open(set.server()).await;
        let mut client = site.client(lifecycle).await;
        told(&mut client, &set, subscribed).await;
        client.close().await;
        site.close().await;
    }
}
