//! The questions about calls that need approval.

use std::{env, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
};

use crate::{Terminal, Turn, shown};

pub(crate) const NOBODY: &str = "nobody is here to ask, so the run waits; resume it on a terminal";

#[async_trait]
impl Approver for Terminal {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        // One question at a time, each with what it is about.
        let mut turn = self.turn().await;
        let subjects: Vec<_> = request.footprint.subjects().map(shown::name).collect();
        let (agent, tool) = (shown::name(&request.agent), shown::name(&request.tool));
        turn.say(&format!("{agent} wants {tool}: {}", subjects.join(", ")));
        match &request.preview {
            Some(preview) => turn.diff(preview),
            // The model's own spelling may have lines without an end between two words.
            None => turn.say(&shown::asked(&request.arguments.to_value().to_string())),
        }
        if !self.has_person() {
            turn.say(NOBODY);
            return Ok(Decision::Later);
        }
        Ok(turn.decision(&tool).await)
    }

    fn name(&self) -> Option<Arc<str>> {
        env::var("USER").ok().map(Into::into)
    }
}

impl Turn<'_> {
    /// Reads a decision. The question names the tool, since a long preview moves the line that does off the screen.
    async fn decision(&mut self, tool: &str) -> Decision {
        let question = format!("{tool}: [y]es, for the [s]ession, [a]lways, [e]dit, [n]o, or a reason: ");
        loop {
            let Some(answer) = self.ask(&question).await else { return Decision::Later };
            if answer.is_empty() {
                continue;
            }
            return match shown::chosen(&answer, &["yes", "session", "always", "edit", "no"]) {
                Some("yes") => Decision::Allow,
                Some("session") => Decision::AllowSession,
                Some("always") => Decision::AllowAlways,
                Some("no") => Decision::Deny,
                Some(_) => {
                    let Some(text) = self.ask("the arguments as JSON: ").await else {
                        return Decision::Later;
                    };
                    match serde_json::from_str(&text).ok().map(|value| Decision::edit(&value)) {
                        Some(Ok(edited)) => edited,
                        _ => {
                            self.say("these are no arguments, which are an object in JSON");
                            continue;
                        }
                    }
                }
                None => Decision::refuse(answer),
            };
        }
    }
}
