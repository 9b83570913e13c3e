//! Shared helpers of the layer tests: a provider that records the time and form of its calls, and a reader of streams.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    message::Message,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Provider, Request},
};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

/// A refusal, or the items of a stream.
pub(crate) type Reply = Result<Vec<Result<Delta>>>;

/// A provider that gives its replies in order.
#[derive(Debug)]
pub(crate) struct Played {
    name: &'static str,
    began: Instant,
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    /// A token held by every open stream.
    open: Arc<()>,
}

/// One recorded call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Time since the provider was made.
    pub(crate) at: Duration,
    pub(crate) attempt: u32,
    pub(crate) timeout: Option<Duration>,
}

impl Played {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Self::named("played", replies)
    }

    pub(crate) fn named(name: &'static str, replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            name,
            began: Instant::now(),
            replies: Mutex::new(replies.into_iter().collect()),
            asked: Mutex::default(),
            open: Arc::default(),
        })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Times of the calls, in whole milliseconds.
    pub(crate) fn times(&self) -> Vec<u128> {
        self.asked().iter().map(|asked| asked.at.as_millis()).collect()
    }

    pub(crate) fn attempts(&self) -> Vec<u32> {
        self.asked().iter().map(|asked| asked.attempt).collect()
    }

    /// Number of its streams that are not dropped yet.
    pub(crate) fn open_streams(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

#[async_trait]
impl Provider for Played {
    fn name(&self) -> &str {
        self.name
    }

    async fn stream(&self, _: Request, cx: &CallContext) -> Result<DeltaStream> {
        let asked = Asked { at: self.began.elapsed(), attempt: cx.attempt, timeout: cx.timeout };
        self.asked.lock().unwrap().push(asked);
        let reply = self.replies.lock().unwrap().pop_front().expect("a reply is left");
        let open = Arc::clone(&self.open);
        Ok(Box::pin(stream::iter(reply?).inspect(move |_| {
            let _ = &open;
        })))
    }
}

/// A whole reply.
pub(crate) fn says(text: &str) -> Reply {
    Ok(vec![Ok(Delta::text(text)), Ok(Delta::finish(FinishReason::Stop))])
}

/// A reply that begins with `text` and breaks off.
pub(crate) fn breaks(text: &str, error: Error) -> Reply {
    Ok(vec![Ok(Delta::text(text)), Err(error)])
}

pub(crate) fn question() -> Request {
    Request::new("large", [Message::user("Hello?")].into_iter().collect())
}

/// The result of a call as short lines: a refusal, or each delta and error.
pub(crate) async fn read(provider: &Arc<dyn Provider>, cx: &CallContext) -> Vec<String> {
    match provider.stream(question(), cx).await {
        Ok(stream) => lines(stream).await,
        Err(error) => vec![format!("refused: {}", error.message())],
    }
}

pub(crate) async fn lines(stream: DeltaStream) -> Vec<String> {
    stream.map(|item| line(&item)).collect().await
}

pub(crate) fn line(item: &Result<Delta>) -> String {
    match item {
        Ok(Delta::Text(text)) => text.to_string(),
        Ok(Delta::Finish(_)) => "finish".into(),
        Ok(Delta::Restart(restart)) => {
            format!("restart {} in {:?}: {}", restart.attempt, restart.delay, restart.error.message)
        }
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("error: {}", error.message()),
    }
}

/// The error of a call that must fail, from the call or from its stream.
pub(crate) async fn error_of(provider: &Arc<dyn Provider>, cx: &CallContext) -> Error {
    let mut stream = match provider.stream(question(), cx).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    while let Some(item) = stream.next().await {
        if let Err(error) = item {
            assert!(stream.next().await.is_none(), "nothing follows an error");
            return error;
        }
    }
    panic!("the call did not fail");
}
