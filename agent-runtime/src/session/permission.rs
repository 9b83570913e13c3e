//! Permission in one session: the ruling on a call that nobody makes, and approval of whatever is asked about.

use entourage_core::{
    Error, ErrorKind, Result, SessionId, permission::Scope, session::SessionState, tool::Tool,
};
use serde_json::Value;

use super::Session;
use crate::{
    Runtime, caught,
    effects::tool_check::check_arguments,
    permission::{Grant, Ruling, judge_labelled},
};

impl Session {
    /// Returns the ruling on a call of a tool in this session, with the rule or the grant that gives it. Runs nothing,
    /// asks nobody and records nothing.
    ///
    /// `scope` is that of the agent that would call, such as [`Scope::all`]. Layers around tools are not asked, and an
    /// answer to one call says nothing about another.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for arguments that do not follow the tool's schema; [`ErrorKind::Tool`] when the
    /// tool's footprint panics; the store's.
    pub async fn explain(&self, scope: &Scope, tool: &dyn Tool, arguments: &Value) -> Result<Ruling> {
        let spec = tool.spec();
        check_arguments(spec, arguments).map_err(|text| Error::new(ErrorKind::InvalidInput, text))?;
        let footprint = caught(|| tool.footprint(arguments)).map_err(|panic| {
            Error::new(ErrorKind::Tool, format!("the tool's footprint panicked: {panic}"))
        })?;
        let env = self.env();
        let labels = self.read(SessionState::labels).await?;
        let ruling = judge_labelled(scope, &env.policy, spec, &footprint, labels);
        if !matches!(ruling, Ruling::Ask(_)) {
            return Ok(ruling);
        }
        let leaks = env.policy.leak(spec, &footprint, labels).is_some();
        let grant = Grant::of(spec, &footprint).of_leaks(leaks).key;
        let granted = self.read(|state| state.is_granted(grant)).await?;
        let by = match leaks {
            true => env.granted_by_approver(grant, granted),
            false => env.granted(self.id(), grant, granted),
        };
        Ok(by.map_or(ruling, |rule| Ruling::Allow(rule.into())))
    }

    /// Allows each call of this session that an approver would be asked about, until it is called with `false` or the
    /// process ends. For a run that nobody watches. Scope and rules that deny hold as ever, and sessions below this one
    /// ask as before. It is not stored; each call records that it was allowed by this.
    pub fn auto_approve(&self, on: bool) {
        self.env().auto_approve(self.id(), on);
    }
}

impl Runtime {
    /// Returns the ruling on a call of a tool in a stored session: see [`Session::explain`].
    ///
    /// # Errors
    /// Those of [`Runtime::open`] and [`Session::explain`].
    pub async fn explain(
        &self,
        session: &SessionId,
        scope: &Scope,
        tool: &dyn Tool,
        arguments: &Value,
    ) -> Result<Ruling> {
        self.open(session).await?.explain(scope, tool, arguments).await
    }
}
