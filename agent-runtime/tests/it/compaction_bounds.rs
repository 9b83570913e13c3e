//! Bounds of compaction, its reaction to a request that a service refused for its length, and its state after a crash.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Usage,
    context::{Compaction, CompactionCause, estimate_tokens},
    event::Event,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
    session::{SessionFilter, SharedStore},
};
use entourage_runtime::AgentExt;
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use futures_util::stream;
use serde_json::Value;

use crate::{
    common::{
        Fault, FaultyStore, agent, assert_valid, count, kinds, memory, open_runtime, process, runtime_on,
        stored, until_killed,
    },
    compaction::{is_summary_request, look, looker, looks, record, says, state, texts, windowed},
};

#[tokio::test]
async fn a_failed_summary_is_tried_again_when_the_context_has_grown_or_in_the_next_run() {
    let provider = ScriptedProvider::new()
        .step(looks(80_000, 0))
        .step(says(""))
        // 81,000 tokens were projected when it failed; 89,100 are a tenth more.
        .step(looks(86_000, 1))
        .step(looks(88_500, 1))
        .step(says("A summary."))
        .step(says("Done."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let session = open_runtime().session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    assert_eq!(run.outcome().await.unwrap().text, "Done.", "{events:#?}");
    assert_eq!((count(&events, "compaction_failed"), count(&events, "compacted")), (1, 1));

    let provider = ScriptedProvider::new()
        .step(looks(80_000, 0))
        .step(says(""))
        .step(Script::new().text("Done.").usage(82_000, 1).finish(FinishReason::Stop));
    let provider = provider.step(says("A summary.")).step(says("Again."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let session = open_runtime().session();
    session.start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "Again.");
}

#[tokio::test]
async fn a_summary_that_does_not_help_is_not_made_at_every_step() {
    // Instructions and tools fill the window: each step is over the threshold, whatever the conversation is.
    let provider = ScriptedProvider::new().step(looks(85_000, 1)).step(says("A summary."));
    let provider = (0..6).fold(provider, |provider, _| provider.step(looks(84_000, 1))).step(says("Done."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let session = open_runtime().session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    assert_eq!(count(&events, "compaction_started"), 1);
}

#[tokio::test]
async fn a_cheaper_model_writes_the_summary_of_what_fits_its_window() {
    let provider = ScriptedProvider::new().step(looks(70_000, 1)).step(looks(80_000, 1)).step(says("Done."));
    let cheap = ScriptedProvider::named("cheap").step(says("A summary."));
    let small = windowed(cheap.model(), Some(2_000));
    let compaction = Compaction::new().with_model(small).keep_messages(0);
    let agent = looker(&provider, 100_000).compaction(compaction).build().unwrap();
    assert_eq!(agent.ask("p".repeat(1_000)).await.unwrap(), "Done.");
    let asked = cheap.requests().remove(0);
    let tokens: u64 = asked.messages.iter().map(|message| estimate_tokens(message)).sum();
    assert!(tokens + asked.params.max_output.unwrap() < 2_000, "{tokens}");
    assert!(is_summary_request(&asked));
    assert_valid(&asked.messages);
    let results: Vec<_> = asked.messages.iter().flat_map(|message| message.tool_results()).collect();
    assert!(results[0].to_text().contains("bytes left out"), "the oldest output is cut");
}

#[tokio::test]
async fn old_outputs_are_cleared_when_that_is_enough() {
    // Ten pages of 10,000 tokens; clearing all but the newest four steps frees 60,000.
    let page = FakeTool::new("look").returning("x".repeat(40_000).as_str());
    let mut provider = ScriptedProvider::new();
    for step in 0..20_u64 {
        provider = provider.step(looks(1_000 + step.min(9) * 10_000, 1));
        if step == 8 {
            break;
        }
    }
    let provider = provider.step(looks(32_000, 1)).step(says("Done."));
    let agent = agent(windowed(provider.model(), Some(100_000))).tool(page).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    assert_eq!(
        (count(&events, "outputs_cleared"), count(&events, "compaction_started")),
        (1, 0),
        "{:?}",
        kinds(&events)
    );
    let requests = provider.requests();
    let shown = |request: &Request| -> Vec<usize> {
        request
            .messages
            .iter()
            .flat_map(|message| message.tool_results())
            .map(|it| it.to_text().len())
            .collect()
    };
    let cleared =
        requests.iter().position(|request| shown(request).first().is_some_and(|size| *size < 100)).unwrap();
    let sizes = shown(&requests[cleared]);
    assert!(sizes[..sizes.len() - 4].iter().all(|size| *size < 100), "{sizes:?}");
    assert!(sizes[sizes.len() - 4..].iter().all(|size| *size == 40_000), "{sizes:?}");
    // From there on the requests extend each other again.
    assert!(extends(&requests[cleared], &requests[cleared + 1]));
    let state = state(&store, &session).await;
    let Some(Event::OutputsCleared(note)) =
        events.iter().map(|event| &event.event).find(|event| matches!(event, Event::OutputsCleared(_)))
    else {
        panic!("no event")
    };
    assert!(note.after < 60_000, "{note:?}");
    assert_valid(state.history());
}

fn extends(earlier: &Request, later: &Request) -> bool {
    let encode = |request: &Request| -> Vec<String> {
        request.messages.iter().map(|message| serde_json::to_string(&**message).unwrap()).collect()
    };
    let (earlier, later) = (encode(earlier), encode(later));
    later.len() >= earlier.len() && later[..earlier.len()] == earlier[..]
}

fn too_long() -> Script {
    Script::refuse(ErrorKind::ContextOverflow, "the prompt is too long")
}

#[tokio::test]
async fn a_step_that_is_refused_for_its_length_is_tried_again_with_less() {
    let provider = ScriptedProvider::new()
        .step(looks(10, 1))
        .step(looks(20, 1))
        .step(too_long())
        .step(says("A summary."))
        .step(says("Done."));
    // Without a known window as well.
    let agent = agent(provider.model()).tool(look()).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.steps), ("Done.", 4));
    let Some(Event::CompactionStarted(started)) =
        events.iter().map(|event| &event.event).find(|event| matches!(event, Event::CompactionStarted(_)))
    else {
        panic!("no event")
    };
    assert_eq!(started.cause, CompactionCause::Overflow);
    let requests = provider.requests();
    let tokens =
        |request: &Request| request.messages.iter().map(|message| estimate_tokens(message)).sum::<u64>();
    assert!(tokens(&requests[4]) < tokens(&requests[2]) / 2);
    state(&store, &session).await;
}

#[tokio::test]
async fn it_is_tried_again_at_most_twice_in_a_row() {
    let provider = (1..=12).fold(ScriptedProvider::new(), |provider, page| provider.step(looks(page, 1)));
    let provider = provider
        .step(too_long())
        .step(says(&"s".repeat(2_000)))
        .step(too_long())
        .step(says("A shorter one."))
        .step(too_long());
    let page = FakeTool::new("look").returning("x".repeat(400));
    let compaction = Compaction::new().keep_messages(4);
    let agent = agent(provider.model()).tool(page).compaction(compaction).build().unwrap();
    let session = open_runtime().session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::ContextOverflow);
    assert_eq!(count(&events, "compacted"), 2, "{:?}", kinds(&events));
    assert_eq!(count(&events, "run_finished"), 1);
    provider.verify();
}

#[tokio::test]
async fn a_prompt_that_is_too_long_by_itself_fails_at_once_and_the_next_one_goes_on() {
    let provider = ScriptedProvider::new()
        .step(too_long())
        .step(too_long())
        .step(says("It was too long."))
        .step(says("Fine."));
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let error = session.start(&agent, "p".repeat(9_000)).outcome().await.unwrap_err();
    assert_eq!((error.kind(), provider.count()), (ErrorKind::ContextOverflow, 1));
    // The conversation is not stuck with it.
    assert_eq!(session.start(&agent, "Never mind").outcome().await.unwrap().text, "Fine.");
    assert_eq!(texts(&provider.requests()[3].messages)[1], "Never mind");
}

#[tokio::test]
async fn a_summary_whose_own_call_is_too_long_is_asked_for_with_half_as_much() {
    let provider = ScriptedProvider::new()
        .step(looks(40_000, 1))
        .step(looks(80_000, 1))
        .step(too_long())
        .step(too_long())
        .step(says("A summary."))
        .step(says("Done."));
    let agent = looker(&provider, 100_000).build().unwrap();
    assert_eq!(agent.ask("Go").await.unwrap(), "Done.");
}

/// A service with a window: it counts a request by the library's own estimate and refuses one that is too long.
struct Service {
    window: u64,
    asked: Mutex<Vec<Request>>,
    refused: Mutex<usize>,
    reply: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
}

enum Reply {
    Text(String),
    Look(u64),
}

impl Service {
    fn new(window: u64, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { window, asked: Mutex::default(), refused: Mutex::default(), reply: Box::new(reply) })
    }

    fn model(self: &Arc<Self>) -> Model {
        windowed(Model::new(Arc::clone(self) as _, "counting"), Some(self.window))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({})", self.window)
    }
}

#[async_trait]
impl Provider for Service {
    fn name(&self) -> &str {
        "counting"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        assert_valid(&request.messages);
        let input: u64 = request.messages.iter().map(|message| estimate_tokens(message)).sum();
        let reserved = request.params.max_output.unwrap_or(1);
        if input + reserved > self.window {
            *self.refused.lock().unwrap() += 1;
            return Err(Error::new(
                ErrorKind::ContextOverflow,
                format!("{input} + {reserved} tokens are too many"),
            ));
        }
        let mut deltas = match (self.reply)(&request) {
            Reply::Text(text) => vec![Delta::Text(text.into()), Delta::Finish(FinishReason::Stop.into())],
            Reply::Look(page) => vec![
                Delta::tool_call(0, format!("call_{page}"), "look"),
                Delta::arguments(0, format!("{{\"page\":{page}}}").as_str()),
                Delta::Finish(FinishReason::ToolCalls.into()),
            ],
        };
        deltas.insert(0, Delta::Usage(Box::new(Usage::new(input, 20))));
        self.asked.lock().unwrap().push(request);
        Ok(Box::pin(stream::iter(deltas.into_iter().map(Ok))))
    }
}

/// The number of pages that a conversation, or the summary in front of it, says were read.
fn pages_read(request: &Request) -> u64 {
    let summary = request.messages.get(0).map(|message| message.text()).unwrap_or_default();
    let known =
        summary.split_once("pages read: ").and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    let seen = request
        .messages
        .iter()
        .flat_map(|message| message.tool_calls())
        .filter_map(|call| call.arguments.to_value().get("page").and_then(Value::as_u64));
    seen.max().unwrap_or(0).max(known.unwrap_or(0))
}

/// A service whose model reads `pages` pages, one per step, and tells how many it read.
fn reader(window: u64, pages: u64) -> Arc<Service> {
    Service::new(window, move |request| {
        let read = pages_read(request);
        if is_summary_request(request) {
            return Reply::Text(format!("pages read: {read} \n{}", "s".repeat(400)));
        }
        if read < pages { Reply::Look(read + 1) } else { Reply::Text(format!("Read {read} pages.")) }
    })
}

#[tokio::test]
async fn a_long_conversation_never_outgrows_a_small_window() {
    for (page, clears) in [(200, true), (2_400, true), (2_400, false), (6_000, false), (12_000, true)] {
        let service = reader(8_192, 48);
        let tool = FakeTool::new("look").returning("x".repeat(page).as_str());
        let compaction = if clears { Compaction::new() } else { Compaction::new().without_clearing() };
        let agent = agent(service.model()).tool(tool).compaction(compaction).build().unwrap();
        let store = memory();
        let session = runtime_on(&store).session();
        let mut run = session.start(&agent, "Read all pages");
        let events = record(&mut run, &session).await;
        let outcome = run.outcome().await.unwrap();
        assert_eq!(outcome.text, "Read 48 pages.", "{page}");
        assert_eq!(*service.refused.lock().unwrap(), 0, "{page}: nothing was too long");
        let smaller = count(&events, "compacted") + count(&events, "outputs_cleared");
        assert_eq!(smaller == 0, page == 200, "{page}: {smaller}");
        assert!(!clears || page == 200 || count(&events, "outputs_cleared") > 0 || page == 12_000);
        // Only then is a request not the beginning of the next one.
        let asked = service.asked.lock().unwrap().clone();
        let steps: Vec<_> = asked.iter().filter(|request| !is_summary_request(request)).collect();
        let broken = steps.windows(2).filter(|pair| !extends(pair[0], pair[1])).count();
        assert_eq!(broken, smaller, "{page}");
        for request in &steps {
            let shown = texts(&request.messages);
            assert!(shown[0].contains("Read all pages"), "the task is always there: {shown:?}");
        }
        state(&store, &session).await;
    }
}

#[test]
fn design_3_a_process_that_dies_while_it_compacts_goes_on() {
    let mut deaths = 0;
    for overflow in [false, true] {
        for fault in [Fault::HangBefore, Fault::HangAfter] {
            for at in 0.. {
                if !dies(at, fault, overflow) {
                    break;
                }
                deaths += 1;
            }
        }
    }
    assert!(deaths > 60, "{deaths}");
}

/// Runs an agent whose process dies at append `at`. False if it has fewer appends.
fn dies(at: usize, fault: Fault, overflow: bool) -> bool {
    let label = format!("{fault:?} at append {at}, overflow {overflow}");
    let id = SessionId::new("work").unwrap();
    let (inner, service) = (memory(), reader(4_096, 9));
    // Without a known window the service's refusal says that it is time.
    let model = || if overflow { Model::new(Arc::clone(&service) as _, "counting") } else { service.model() };
    let agent = || {
        let tool = FakeTool::new("look").returning("x".repeat(2_400).as_str());
        agent(model()).tool(tool).compaction(Compaction::new().without_clearing()).build().unwrap()
    };
    let faulty = FaultyStore::new(&inner, at, fault);
    let killed = faulty.killed.clone();
    let ended = process(until_killed(
        async {
            let session = runtime_on(&(faulty as SharedStore)).session_with_id(id.clone());
            session.start(&agent(), "Read all pages").outcome().await.unwrap().text
        },
        &killed,
    ));
    if let Some(text) = ended {
        assert_eq!(text, "Read 9 pages.");
        return false;
    }
    process(async {
        let known = inner.query(&SessionFilter::id(id.clone())).await.unwrap();
        let before = if known.is_empty() { Vec::new() } else { stored(&inner, &id).await };
        if count(&before, "run_finished") == 1 || before.is_empty() {
            return;
        }
        let session = runtime_on(&inner).open(&id).await.unwrap();
        let outcome = session.resume(&agent()).outcome().await;
        assert_eq!(
            outcome.unwrap_or_else(|error| panic!("{label}: {error:?}")).text,
            "Read 9 pages.",
            "{label}"
        );
        let events = stored(&inner, &id).await;
        assert_eq!(events[..before.len()], before[..], "{label}: what is written stays");
        assert_eq!(count(&events, "compaction_started"), count(&events, "compacted"), "{label}");
        assert!(count(&events, "compacted") > 0, "{label}");
        let history = session.history().await.unwrap();
        assert_valid(&history);
        state(&inner, &session).await;
        // Each compaction has one session, in which one summary was written.
        let tree = inner.query(&SessionFilter::tree(id.clone())).await.unwrap();
        assert_eq!(tree.len(), 1 + count(&events, "compaction_started"), "{label}");
        for info in tree.iter().filter(|info| info.record.parent.is_some()) {
            let child = stored(&inner, &info.record.id).await;
            let replies = child
                .iter()
                .filter(|event| matches!(&event.event, Event::ModelFinished(reply) if reply.error.is_none()));
            assert_eq!((replies.count(), count(&child, "run_finished")), (1, 1), "{label}");
        }
    });
    true
}
