//! The first connection to a server, tried until there is one.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{ENDED, Link};
use crate::mcp::McpState;

/// Least time until a server that could not be reached is tried again; twice as long each time, up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The task that connects for the first time. Dropped, it lets nobody wait for that.
struct First(Arc<Link>);

impl Drop for First {
    fn drop(&mut self) {
        if self.0.is_without_runtime() {
            // No task is left that would do it.
            self.0.shown().failed(ENDED, true);
        }
        self.0.settled.send_replace(true);
    }
}

impl Link {
    /// Waits until the first attempt to connect has ended.
    pub(in crate::mcp) async fn settled(&self) {
        // An error means that nobody is left to tell.
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }

    /// Connects for the first time, and again where that failed and somebody asks for the tools. Does not end.
    pub(in crate::mcp) fn begin(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        // Made here: the runtime may end before it polls the future.
        let first = First(self);
        async move {
            let link = &first.0;
            let mut pause = PAUSE;
            loop {
                // The state has the reason of a failure.
                let live = link.live().await;
                link.settled.send_replace(true);
                let since = Instant::now();
                if let Ok(live) = live {
                    let gone = live.gone();
                    // The connection ends with the last of its users.
                    drop(live);
                    tokio::select! {
                        () = gone.wait() => {}
                        // Nobody is let ask while there is one.
                        () = link.asked.notified() => {}
                    }
                }
                pause = match since.elapsed() > pause {
                    // It was there for longer than it would be waited for.
                    true => PAUSE,
                    false => {
                        sleep(pause.saturating_sub(since.elapsed())).await;
                        pause.saturating_mul(2).min(LONGEST)
                    }
                };
                link.asked.notified().await;
            }
        }
    }

    /// Has a server without tools tried again if it failed: no call could ask for that.
    pub(in crate::mcp) fn ask(&self) {
        let is_wanted = {
            let shown = self.shown();
            shown.tools.is_empty() && !shown.is_final && matches!(shown.state, McpState::Failed(_))
        };
        if is_wanted {
            self.asked.notify_waiters();
        }
    }

    /// Connects a server that is not connected, and asks a person who did not answer before.
    pub(in crate::mcp) async fn connect_now(self: &Arc<Self>) {
        if let Some(login) = &self.login {
            login.forget_pause();
        }
        // The state has the reason of a failure.
        let _ = self.live().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::McpServer;

    #[tokio::test(start_paused = true)]
    async fn ce01_a_server_that_cannot_be_reached_is_tried_ever_less_often() {
        let server = McpServer::command("files", "/no/such/program", [""; 0]);
        let link = Arc::new(Link::new(server, Arc::default(), None, tokio::runtime::Handle::current()));
        let mut tries = link.settled.subscribe();
        tokio::spawn(Arc::clone(&link).begin());
        tries.changed().await.unwrap();
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            let since = Instant::now();
            while !tries.has_changed().unwrap() {
                link.ask();
                sleep(Duration::from_millis(100)).await;
            }
            tries.borrow_and_update();
            let passed = since.elapsed().as_millis();
            assert!((pause..=pause + 200).contains(&passed), "after {passed} ms, not {pause} ms");
        }
        sleep(LONGEST * 10).await;
        assert!(!tries.has_changed().unwrap(), "tried although nobody asked");
    }
}
