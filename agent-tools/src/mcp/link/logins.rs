//! Logins for a connection, and for calls that its server refuses.

use std::sync::{Arc, atomic::Ordering};

use entourage_core::bound;
use tokio::time::timeout;

use super::{Link, Live};
use crate::mcp::{
    McpState,
    handshake::Failure,
    login::{Login, Wanted},
};

/// Most logins until a connection is made, or a call performed: one, and two for more rights.
pub(in crate::mcp) const LOGINS: usize = 3;

impl Link {
    /// Notes that the server wants a login, and returns what the model is told of it.
    pub(in crate::mcp) fn wants_login(&self) -> String {
        self.shown().set(McpState::NeedsAuth);
        let next = match &self.login {
            Some(_) => "it did not succeed, and a call after a minute tries again",
            None => "the user has to give this program its key",
        };
        format!("the MCP server `{}` needs a login; {next}", self.server.name)
    }

    /// Connects, and logs in where the server wants that.
    pub(super) async fn connect_with_login(self: &Arc<Self>, number: u64) -> Result<Arc<Live>, Failure> {
        for round in 0..LOGINS {
            let seen = self.logins();
            match (self.in_time(self.connect(number)).await, &self.login) {
                // A server that refuses the tokens just made would want others for ever.
                (Err(Failure::NeedsAuth(Some(wanted))), Some(login)) if wanted.is_more || round == 0 => {
                    Box::pin(self.log_in(login, &wanted, seen)).await.map_err(Failure::of_login)?;
                    self.shown().set(McpState::Starting);
                }
                (made, _) => return made,
            }
        }
        self.in_time(self.connect(number)).await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let time = self.server.connect_time();
        timeout(time, work).await.unwrap_or_else(|_| {
            Err(Failure::Other(format!("it was not ready within {} s", time.as_secs_f64())))
        })
    }

    /// Logs in, unless that was done after `seen` logins.
    async fn log_in(&self, login: &Login, wanted: &Wanted, seen: u64) -> Result<(), Failure> {
        // One person is asked once.
        let _turn = self.turn.lock().await;
        if self.logins() != seen {
            return Ok(());
        }
        if let Some(waiting) = self.in_time(login.begin(wanted)).await? {
            let _asked = Asked::new(self);
            let answer = login.answer(waiting).await?;
            self.in_time(login.finish(answer)).await?;
        }
        self.logins.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Number of logins until now.
    pub(in crate::mcp) fn logins(&self) -> u64 {
        self.logins.load(Ordering::Acquire)
    }

    /// Logs in for a call that the server refused to perform, unless that was done after `seen` logins. Other calls
    /// go on meanwhile.
    ///
    /// # Errors
    /// The reason that it failed, for the model.
    pub(in crate::mcp) async fn log_in_again(
        self: &Arc<Self>,
        wanted: Wanted,
        seen: u64,
    ) -> Result<(), String> {
        let link = Arc::clone(self);
        // A call that is kept would keep all others from a login.
        let done = self.driven(async move { Box::pin(link.logged_in_again(&wanted, seen)).await }).await;
        done.unwrap_or_else(|reason| Err(self.without_login(reason)))
    }

    fn without_login(&self, reason: &str) -> String {
        format!("no login at the MCP server `{}`: {reason}", self.server.name)
    }

    async fn logged_in_again(&self, wanted: &Wanted, seen: u64) -> Result<(), String> {
        let Some(login) = &self.login else { return Err(self.wants_login()) };
        let mut shut = self.shut.subscribe();
        let done = tokio::select! {
            biased;
            _ = shut.wait_for(|shut| *shut) => return Err(self.is_over()),
            done = self.log_in(login, wanted, seen) => done,
        };
        match done {
            Err(Failure::NeedsAuth(_)) => return Err(self.wants_login()),
            Err(Failure::Login(reason) | Failure::Other(reason)) => {
                let reason = self.server.told(&reason, bound::TEXT);
                self.shown().connected();
                return Err(self.without_login(&reason));
            }
            Ok(()) => self.shown().connected(),
        }
        Ok(())
    }
}

/// A person who is asked to log in. The state of before is shown again when this is dropped, for a connection that goes
/// on without the login.
struct Asked<'a> {
    link: &'a Link,
    before: McpState,
}

impl<'a> Asked<'a> {
    fn new(link: &'a Link) -> Self {
        let mut shown = link.shown();
        let before = shown.state.clone();
        shown.set(McpState::NeedsAuth);
        Self { link, before }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut shown = self.link.shown();
        if shown.state != McpState::NeedsAuth {
            return;
        }
        match std::mem::replace(&mut self.before, McpState::NeedsAuth) {
            McpState::Connected { .. } => shown.connected(),
            failed @ McpState::Failed(_) => shown.set(failed),
            // An attempt that is given up while it asks is not tried again until somebody wants it.
            _ => {}
        }
    }
}
