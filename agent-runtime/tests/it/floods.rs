//! A provider or layer whose stream never ends, with deltas that add nothing: the call ends at a bound.

use std::{task::Poll, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, Usage,
    event::Event,
    provider::{
        CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request, Restart, Warning,
        WarningKind,
    },
};
use entourage_runtime::Session;
use entourage_runtime::reply::Assembler;
use entourage_testkit::{LiveProvider, ScriptedProvider};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::common::{agent, memory, open_runtime, runtime_on, stored};

type Make = fn(u64) -> Delta;

/// A provider that answers with a delta for each number, for ever.
#[derive(Debug)]
struct Endless(Make);

#[async_trait]
impl Provider for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        let (make, mut number) = (self.0, 0);
        Ok(Box::pin(stream::poll_fn(move |_| {
            number += 1;
            Poll::Ready(Some(Ok(make(number))))
        })))
    }
}

fn endless(make: Make) -> Model {
    Model::new(std::sync::Arc::new(Endless(make)), "large")
}

fn restart(number: u64) -> Delta {
    let error = Error::new(ErrorKind::Overloaded, "no room").record();
    let attempt = u32::try_from(number).unwrap_or(u32::MAX);
    Delta::Restart(Box::new(Restart::new(attempt, error, Duration::ZERO)))
}

async fn goes_on(session: &Session) {
    let provider = ScriptedProvider::new().text("Here.");
    let next = agent(provider.model()).build().unwrap();
    assert_eq!(session.start(&next, "And now?").outcome().await.unwrap().text, "Here.");
}

#[tokio::test]
async fn a_stream_that_never_says_anything_ends_the_run_at_a_bound() {
    let cases: [(&str, Make); 4] = [
        ("usage", |_| Delta::Usage(Box::new(Usage::new(u64::MAX, u64::MAX)))),
        ("empty text", |_| Delta::text("")),
        // The first line break of a reply is left out.
        ("line breaks", |_| Delta::text("\n")),
        ("warnings", |_| Delta::Warning(Box::new(Warning::new(WarningKind::Other, "s", "w")))),
    ];
    for (name, make) in cases {
        for read in [false, true] {
            let store = memory();
            let session = runtime_on(&store).session();
            let flooded = agent(endless(make)).build().unwrap();
            let mut run = session.start(&flooded, "Go");
            while read && run.next().await.is_some() {}
            let error = run.outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{name}: {error}");
            assert!(error.message().contains("deltas without content"), "{name}: {error}");
            let events = stored(&store, session.id()).await;
            assert!(events.len() < 20, "{name}: a delta is no stored event");
            let cost = events.iter().find_map(|event| match &event.event {
                Event::ModelFinished(reply) => Some(reply.cost),
                _ => None,
            });
            assert_eq!(cost, Some(None), "{name}: the service may charge for it");

            goes_on(&session).await;
        }
    }
}

#[tokio::test]
async fn a_call_that_begins_anew_for_ever_stores_a_bounded_number_of_restarts() {
    let cases: [(&str, Make); 2] = [
        ("restarts alone", restart),
        ("text between them", |n| if n.is_multiple_of(2) { restart(n) } else { Delta::text("x") }),
    ];
    for (name, make) in cases {
        let store = memory();
        let session = runtime_on(&store).session();
        let flooded = agent(endless(make)).build().unwrap();
        let error = session.start(&flooded, "Go").outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{name}: {error}");
        assert!(error.message().contains("lower the retries"), "{name}: {error}");
        let events = stored(&store, session.id()).await;
        let restarts = events.iter().filter(|event| matches!(event.event, Event::ModelRestarted(_))).count();
        assert_eq!(restarts, Assembler::MAX_RESTARTS, "{name}");

        goes_on(&session).await;
    }
}

/// A service that reports usage while it works is not silent.
#[tokio::test(start_paused = true)]
async fn deltas_without_content_end_a_silence() {
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let started = Instant::now();
    let run = open_runtime().session().start(&agent, "Go");
    let mut call = provider.asked().await;
    for tokens in 0..5 {
        tokio::time::sleep(Duration::from_secs(299)).await;
        call.send(Delta::Usage(Box::new(Usage::new(10, tokens))));
    }
    call.text("Done.");
    call.finish(FinishReason::Stop);
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    assert_eq!(started.elapsed().as_secs(), 5 * 299);
}

#[tokio::test]
async fn a_reply_read_without_a_run_has_the_same_bounds() {
    use entourage_core::message::History;
    use entourage_runtime::reply::ProviderExt;

    let provider = Endless(|_| Delta::text(""));
    let request = Request::new("large", History::default());
    let error = provider.complete(request.clone(), &CallContext::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let mut stream = Endless(restart).stream(request, &CallContext::new()).await.unwrap();
    assert!(stream.next().await.is_some());
    let error =
        Endless(restart).complete(Request::new("large", History::default()), &CallContext::new()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Protocol);
}
