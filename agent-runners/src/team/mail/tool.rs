//! The tool by which a member writes to the others.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind,
    session::SessionState,
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{
    EVERYONE, MessageKind, Room, TeamMessage, call_of,
    room::{LOOK, Unanswered},
};

/// Longest text of a message, in bytes.
const LONGEST: usize = 16 * 1024;

/// Longest wait for a response, in seconds.
const MOST_SECONDS: u32 = 600;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    /// The recipient, or "everyone".
    to: String,
    /// "request" asks for an answer, "response" answers a request, "status" is news.
    #[serde(rename = "type")]
    kind: MessageKind,
    /// The text.
    text: String,
    /// For a response: the id of the request that it answers.
    #[serde(default)]
    of: Option<String>,
    /// For a request to one member: seconds to wait for the answer, at most 600. Without it you get the answer later.
    #[serde(default)]
    wait_seconds: Option<u32>,
}

/// The tool `send_message` of one member.
#[derive(Debug)]
pub(crate) struct SendMessage {
    room: Arc<Room>,
    sender: Arc<str>,
    spec: ToolSpec,
}

impl SendMessage {
    /// Name of the tool.
    pub(crate) const NAME: &'static str = "send_message";

    pub(crate) fn new(room: &Arc<Room>, sender: &str) -> Self {
        let others: Vec<_> = room.others(sender).iter().map(ToString::to_string).collect();
        let description = format!(
            "Writes to another member of the team, who reads it before its next step or with its next task: one of {}, or \
             {EVERYONE}. Messages that you get come with your task and with the results of your tools.",
            others.join(", ")
        );
        let spec = ToolSpec::new(Self::NAME, description, schema_of::<Arguments>())
            .with_access(Access::NONE)
            .with_repeat(Repeat::Idempotent)
            .of_run()
            .with_timeout(Duration::from_secs(u64::from(MOST_SECONDS) + 60));
        Self { room: Arc::clone(room), sender: sender.into(), spec }
    }

    fn message(&self, arguments: &Arguments, cx: &ToolContext<'_>) -> Result<TeamMessage, ToolError> {
        let tell = |text: &str| Err(ToolError::tell(text.to_owned()));
        let Arguments { to, kind, text, of, wait_seconds } = arguments;
        if text.trim().is_empty() || text.len() > LONGEST {
            return tell(
                "a message has a text of at most 16 KiB; put what is longer into a file and say where it is",
            );
        }
        if (*kind == MessageKind::Response) != of.is_some() {
            return tell("a response names the request that it answers in `of`, and no other message does");
        }
        let waits = wait_seconds.is_some();
        if waits && (*kind != MessageKind::Request || to == EVERYONE) {
            return tell("only a request to one member has an answer to wait for; leave `wait_seconds` out");
        }
        if wait_seconds.is_some_and(|seconds| !(1..=MOST_SECONDS).contains(&seconds)) {
            return tell("`wait_seconds` is from 1 to 600");
        }
        if **to == *self.sender {
            return tell("this is your own name; write to another member");
        }
        Ok(TeamMessage {
            id: Arc::default(),
            call: call_of(cx),
            from: Arc::clone(&self.sender),
            to: to.as_str().into(),
            kind: *kind,
            text: text.as_str().into(),
            of: of.as_deref().map(Into::into),
            labels: cx.run().read(SessionState::labels),
        })
    }
}

#[async_trait]
impl Tool for SendMessage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let arguments: Arguments = input.parse()?;
        let message = self.message(&arguments, cx)?;
        self.room.check(&message).map_err(|error| ToolError::tell(error.message().to_owned()))?;
        let call = Arc::clone(&message.call);
        let id = self.room.post(message).await.map_err(ToolError::Fatal)?;
        let sent = ToolOutput::text(format!("Sent as message {id}.")).with_metadata(json!({ "message": id }));
        let Some(seconds) = arguments.wait_seconds else { return Ok(sent) };
        let by = (&*self.sender, cx.session().as_str(), &*call);
        let began = Instant::now();
        let wait = Duration::from_secs(seconds.into());
        let mail = self.room.response(&id, by, enough(wait, cx)).await.map_err(ToolError::Fatal)?;
        let unanswered = match mail {
            Ok(mail) => {
                let output = ToolOutput::text(mail.text).with_labels(mail.labels);
                return Ok(output.with_metadata(json!({ "message": id })));
            }
            Err(unanswered) => unanswered,
        };
        if cx.cancellation().is_cancelled() {
            return Err(ToolError::Fatal(Error::cancelled()));
        }
        let later = "it comes later, or never: go on without";
        let text = match unanswered {
            Unanswered::Enough if began.elapsed() >= wait => {
                let text = format!("no answer to message {id} within {seconds} s; {later}");
                return Err(ToolError::from(Error::new(ErrorKind::Timeout, text)));
            }
            Unanswered::Enough => format!("No answer to message {id} before the work was paused; {later}."),
            Unanswered::Circular => format!(
                "Sent as message {id}. Its recipient waits for you: answer what you were asked. Then {later}."
            ),
            Unanswered::Vain => format!(
                "Sent as message {id}. Its recipient does not work now, and begins no item while all who do wait for \
                 answers. Do not wait for the answer; {later}, and end your item so that others can begin."
            ),
        };
        Ok(ToolOutput::text(text).with_metadata(json!({ "message": id })))
    }
}

/// Waits until a call has waited enough: for so long, until it is cancelled, or until the run is to pause.
async fn enough(wait: Duration, cx: &ToolContext<'_>) {
    let until = Instant::now().checked_add(wait);
    while !cx.run().is_stopping() {
        let left = until.map_or(wait, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return;
        }
        tokio::select! {
            biased;
            () = cx.cancellation().cancelled() => return,
            () = tokio::time::sleep(left.min(LOOK)) => {}
        }
    }
}
