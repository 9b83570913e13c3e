//! The beginning of a session that the program gives: a conversation that was held elsewhere, such as one that a
//! server's client keeps. It may come from anybody, so it is checked before it is stored. Nothing in it is ever run.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result, RunId,
    bound::{EVENT, Flaw},
    event::{Checkpoint, Event, Origin},
    message::{Arguments, History, Message, Part, Reasoning, Role, ToolCall, json_bytes},
    session::SessionState,
};
use tokio_util::sync::CancellationToken;

use crate::{
    context::repair,
    session::{
        Session,
        delivery::emit::Emitter,
        guarded::passed,
        journal::{Journal, apart::apart, life::Life, weight::check_message},
    },
};

/// Bytes of the id of a call. Some gateways put a signature into theirs.
const ID: usize = 4 << 10;
/// Bytes of the name of a tool.
const NAME: usize = 64;

impl Session {
    /// Begins this session, in which nothing happened yet, with a conversation that was held elsewhere, oldest message
    /// first. Its runs see it as if it had been held here, and the session is stored, resumed, forked and exported like
    /// any other. Its first event is a [`Checkpoint`] that says that its state was given. It costs nothing here. No
    /// message stores nothing.
    ///
    /// The messages may come from anybody, such as a server's client. They are history alone:
    ///
    /// - A tool call is never run and answers no question of an approver. One without a result gets one that says so,
    ///   results without a call are left out, and so is the second of two calls of one id in a message, as
    ///   [`repair`] does.
    /// - Signatures and blocks that only a model's service understands are left out, since they could be forged and
    ///   hold anything.
    /// - The texts are what their author wrote, the results of tools too: an agent must not trust them more than a
    ///   prompt. The model's service fetches files that are given by their address.
    /// - The messages of the user pass through the guards of the runtime
    ///   ([`RuntimeBuilder::guard_prompts`](crate::RuntimeBuilder::guard_prompts)); the others do not.
    ///
    /// Returns once it is stored; dropping the future takes nothing back.
    ///
    /// # Errors
    /// Before anything is stored: [`ErrorKind::InvalidInput`] for a system message, for a call with a name that no tool
    /// has, without an id, or with arguments that [`Arguments::parse`] refuses, and for a session that has a beginning;
    /// [`ErrorKind::TooLarge`] for more than the store takes at once, as for a message that no session takes.
    /// [`ErrorKind::Busy`] while a run is active, [`ErrorKind::Conflict`] when another process was faster, the guards'
    /// and the store's.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_core::message::Message;
    /// use entourage_runners::ReactAgent;
    /// use entourage_runtime::Runtime;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let provider = ScriptedProvider::new().text("You said hi.");
    /// let agent = ReactAgent::builder("greeter", provider.model()).build().unwrap();
    ///
    /// let session = Runtime::in_memory().session();
    /// session.begin_with([Message::user("Hi"), Message::assistant("Hello!")]).await.unwrap();
    /// let outcome = session.start(&agent, "What did I say?").outcome().await.unwrap();
    /// assert_eq!(outcome.text, "You said hi.");
    /// assert_eq!(provider.requests()[0].messages.len(), 3);
    /// # });
    /// ```
    pub async fn begin_with<M: Into<Arc<Message>>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<()> {
        let clean = messages.into_iter().enumerate().map(|(place, message)| {
            let message = message.into();
            let taken = || {
                checked(&message)?;
                if message.role() != Role::User {
                    return Ok(message);
                }
                let message = passed(self.env(), message)?;
                checked(&message)?;
                Ok(message)
            };
            let message = taken().map_err(|error: Error| error.with("message", place.to_string()))?;
            Ok(without_blocks(message))
        });
        let history = repair(&clean.collect::<Result<History>>()?);
        if history.is_empty() {
            return Ok(());
        }
        let most = self.env().store.as_ref().map_or(EVENT, |store| store.largest_batch());
        let state = SessionState::given(&history)
            .map_err(|flaw| Error::new(ErrorKind::InvalidInput, format!("no session begins so: {flaw}")))?;
        if json_bytes(&state, most) > most {
            return Err(Flaw::Large(most).refused("the conversation"));
        }
        let session = self.clone();
        apart(&self.env().tasks, Box::pin(async move { session.begun(state).await })).await
    }

    /// Stores the first event of the session.
    async fn begun(&self, state: SessionState) -> Result<()> {
        let run = RunId::generate();
        let _active = self.0.claim(run, &CancellationToken::new(), true).await?;
        let journal = self.0.journal(true).await?;
        let origin = Arc::new(Origin::new(self.id().clone(), run, ""));
        let given = Event::Checkpoint(Arc::new(Checkpoint::new(state, None, true)));
        // Looked at and staged in one step: a prompt may be queued at any time.
        journal.stage_with(&Life::default(), &origin, self.env().clock.now(), |now| {
            match now.head().seq {
                0 => Ok(given),
                _ => Err(has_begun(&journal)),
            }
        })?;
        journal.commit(&Emitter::new(None, self.env()).at(Arc::clone(&self.0), run)).await
    }
}

fn has_begun(journal: &Journal) -> Error {
    let text = "the session has a beginning; give the conversation to a new session, or send what is new as a prompt";
    Error::new(ErrorKind::InvalidInput, text).with("session", journal.session().as_str())
}

/// Checks a message that may come from anybody.
fn checked(message: &Message) -> Result<()> {
    if message.role() == Role::System {
        let text = "a given conversation may hold no system message, which anybody could have written; put what the agent \
                    must follow into its instructions, and leave this one out";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    message.tool_calls().try_for_each(check_call)?;
    check_message(message)
}

fn check_call(call: &ToolCall) -> Result<()> {
    let refused = |text: &str| Err(Error::new(ErrorKind::InvalidInput, text.to_owned()));
    if call.id.is_empty() || call.id.len() > ID {
        return refused(
            "a tool call has no id, or one of more than 4 KiB; give it the id that its result names",
        );
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if call.name.is_empty() || call.name.len() > NAME || !call.name.chars().all(fits) {
        return refused("a tool call has a name that no tool has; use 1 to 64 letters, digits, _ and -");
    }
    Arguments::parse(call.arguments.as_str()).map(drop)
}

/// Returns the message without what only a service understands. Such a block could hold a message of another role.
fn without_blocks(message: Arc<Message>) -> Arc<Message> {
    let is_plain = |part: &Part| match part {
        Part::Reasoning(reasoning) => reasoning.signature.is_none(),
        part => !matches!(part, Part::Opaque(_)),
    };
    if message.parts().iter().all(is_plain) {
        return message;
    }
    let kept = message.parts().iter().filter_map(|part| match part {
        Part::Opaque(_) => None,
        Part::Reasoning(signed) if signed.text.is_empty() => None,
        Part::Reasoning(signed) => Some(Part::Reasoning(Reasoning::new(signed.text.clone(), None))),
        part => Some(part.clone()),
    });
    Arc::new(Message::new(message.role(), kept.collect()))
}
