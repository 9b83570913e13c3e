//! A custom model service: one method that turns a request into a stream of deltas.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use async_trait::async_trait;
use entourage::{
    prelude::*,
    provider::{CallContext, DeltaStream, FinishReason, Request},
};
use futures_util::{StreamExt, stream};

/// A provider that echoes the prompt, word by word. A real one would connect, after `cx.check_host(..)` allowed it.
#[derive(Debug)]
struct Echo;

#[async_trait]
impl Provider for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    async fn stream(&self, request: Request, _cx: &CallContext) -> Result<DeltaStream> {
        let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
        let words: Vec<_> = said.split_inclusive(' ').map(|word| Delta::Text(word.into())).collect();
        let usage = Usage::new(said.len() as u64, said.len() as u64);
        // Every reply ends with `Finish`; one that does not was cut off.
        let end = [Delta::Usage(Box::new(usage)), Delta::Finish(Box::new(FinishReason::Stop.into()))];
        Ok(stream::iter(words.into_iter().chain(end)).map(Ok).boxed())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("(the model is the echo in this file; it calls no tools)");
    let model = Model::new(Arc::new(Echo), "echo-1");
    let agent = ReactAgent::builder("parrot", model).build()?;

    let session = Runtime::in_memory().session();
    for prompt in ["Is there anybody in the cave?", "There is an echo."] {
        println!("{}", session.start(&agent, prompt).outcome().await?.text);
    }
    println!("{} messages, {}", session.history().await?.len(), session.head().await?.usage);
    Ok(())
}
