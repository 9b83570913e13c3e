//! The simulated model service: it takes time, counts tokens and costs money.
//!
//! Its replies follow from the request alone (and from the state that a simulation shares with it), so the agents
//! around it run as they do on a real service.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage::{
    Error, ErrorKind, Money, Prices, Result, Usage,
    message::{Message, Part, Role},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Profile, Provider, Request},
};
use futures_util::{StreamExt, stream};
use serde_json::Value;

/// Tokens of each tool call in a conversation, apart from the words of its result.
pub(crate) const CALL_TOKENS: u64 = 30;

/// Prices of 3 dollars per million tokens in, and 15 per million out.
pub(crate) fn prices() -> Prices {
    Prices::per_million_micros(3_000_000, 15_000_000)
}

/// Cost of a call.
pub(crate) fn price(input: u64, output: u64) -> Money {
    prices().cost(&Usage::new(input, output)).unwrap_or_default()
}

/// One reply of a simulated model.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    text: String,
    calls: Vec<(String, Value)>,
    after: Duration,
    /// Tokens in and out; `None` to count words.
    usage: Option<(u64, u64)>,
    fails: Option<&'static str>,
}

impl Reply {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn call(tool: &str, arguments: Value) -> Self {
        Self::default().and_call(tool, arguments)
    }

    /// A reply that fails, as a service that breaks down.
    pub(crate) fn failure(text: &'static str) -> Self {
        Self { fails: Some(text), ..Self::default() }
    }

    pub(crate) fn and_call(mut self, tool: &str, arguments: Value) -> Self {
        self.calls.push((tool.to_owned(), arguments));
        self
    }

    pub(crate) fn and_calls(self, tool: &str, all: impl IntoIterator<Item = Value>) -> Self {
        all.into_iter().fold(self, |reply, arguments| reply.and_call(tool, arguments))
    }

    pub(crate) fn saying(mut self, text: &str) -> Self {
        text.clone_into(&mut self.text);
        self
    }

    /// Delays the reply by `time` on the simulated clock.
    pub(crate) fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }

    /// Sets the tokens in and out, instead of counting words.
    pub(crate) fn taking(mut self, input: u64, output: u64) -> Self {
        self.usage = Some((input, output));
        self
    }

    fn tokens_out(&self) -> u64 {
        words(&self.text) + CALL_TOKENS * self.calls.len() as u64
    }

    fn into_deltas(self, input: u64) -> Vec<Delta> {
        let (input, output) = self.usage.unwrap_or((input, self.tokens_out()));
        let reason = if self.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        let mut deltas = Vec::new();
        if !self.text.is_empty() {
            deltas.push(Delta::text(self.text));
        }
        for (index, (tool, arguments)) in (0..).zip(self.calls) {
            deltas.push(Delta::tool_call(index, format!("call-{index}"), tool));
            deltas.push(Delta::arguments(index, arguments.to_string()));
        }
        deltas.push(Delta::Usage(Box::new(Usage::new(input, output))));
        deltas.push(Delta::finish(reason));
        deltas
    }
}

/// Tokens of a text. A token is a word here, and a call takes [`CALL_TOKENS`]: simple enough for a closed form.
pub(crate) fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

fn tokens_in(request: &Request) -> u64 {
    let of_part = |part: &Part| match part {
        Part::Text(text) => words(text),
        Part::ToolCall(_) => CALL_TOKENS,
        // The runtime's description of a failure is a sentence that no closed form should depend on.
        Part::ToolResult(result) if !result.is_error => words(&result.to_text()),
        _ => 0,
    };
    let of_message = |message: &Arc<Message>| message.parts().iter().map(of_part).sum::<u64>();
    words(&request.instructions) + request.messages.iter().map(of_message).sum::<u64>()
}

/// Requests to a model so far.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    calls: AtomicU64,
    input: AtomicU64,
    output: AtomicU64,
}

impl Meter {
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Tokens in and out of completed replies.
    pub(crate) fn tokens(&self) -> (u64, u64) {
        (self.input.load(Ordering::Relaxed), self.output.load(Ordering::Relaxed))
    }

    pub(crate) fn cost(&self) -> Money {
        let (input, output) = self.tokens();
        price(input, output)
    }

    fn count(&self, deltas: &[Delta]) {
        for delta in deltas {
            if let Delta::Usage(usage) = delta {
                self.input.fetch_add(usage.input.unwrap_or(0), Ordering::Relaxed);
                self.output.fetch_add(usage.output.unwrap_or(0), Ordering::Relaxed);
            }
        }
    }
}

type Play = dyn Fn(&Request) -> Reply + Send + Sync;

struct Simulated {
    play: Box<Play>,
    meter: Arc<Meter>,
}

/// A model that answers each request with the result of `play`.
pub(crate) fn model(play: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> (Model, Arc<Meter>) {
    let meter = Arc::new(Meter::default());
    (metered(&meter, play), meter)
}

/// A model like `model`, counted together with others.
pub(crate) fn metered(meter: &Arc<Meter>, play: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Model {
    let provider = Simulated { play: Box::new(play), meter: Arc::clone(meter) };
    let mut profile = Profile::default();
    profile.prices = Some(prices());
    Model::new(Arc::new(provider), "simulated").with_profile(profile)
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated").field("meter", &self.meter).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let reply = (self.play)(&request);
        self.meter.calls.fetch_add(1, Ordering::Relaxed);
        if !reply.after.is_zero() {
            tokio::time::sleep(reply.after).await;
        }
        if let Some(text) = reply.fails {
            return Err(Error::new(ErrorKind::Transport, text).during("model.stream"));
        }
        let deltas = reply.into_deltas(tokens_in(&request));
        self.meter.count(&deltas);
        Ok(stream::iter(deltas).map(Ok).boxed())
    }
}

/// The parts of a request from which a script derives its position.
pub(crate) trait RequestExt {
    /// The newest user message, or the text that stands in for one.
    fn asked(&self) -> String;
    /// The first user message of the conversation.
    fn first_asked(&self) -> String;
    /// Tool results since the last user message, oldest first: their text, and true for errors.
    fn results(&self) -> Vec<(String, bool)>;
    /// Number of assistant messages in the whole conversation.
    fn said(&self) -> usize;
    /// Number of user messages.
    fn prompts(&self) -> usize;
}

impl RequestExt for Request {
    fn asked(&self) -> String {
        let asked = self.messages.iter().filter(|message| message.role() == Role::User);
        asked.last().map(|message| message.text()).unwrap_or_default()
    }

    fn first_asked(&self) -> String {
        let first = self.messages.iter().find(|message| message.role() == Role::User);
        first.map(|message| message.text()).unwrap_or_default()
    }

    fn results(&self) -> Vec<(String, bool)> {
        let mut results = Vec::new();
        for message in &self.messages {
            if message.role() == Role::User {
                results.clear();
            }
            results.extend(message.tool_results().map(|result| (result.to_text(), result.is_error)));
        }
        results
    }

    fn said(&self) -> usize {
        self.messages.iter().filter(|message| message.role() == Role::Assistant).count()
    }

    fn prompts(&self) -> usize {
        self.messages.iter().filter(|message| message.role() == Role::User).count()
    }
}
