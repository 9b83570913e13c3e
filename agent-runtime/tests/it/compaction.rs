//! Compaction: a conversation that nears its model's window is made smaller, and the work continues.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Money, Prices, Usage,
    context::{Compaction, CompactionCause, estimate_tokens},
    event::{Compacted, Envelope, Event},
    message::{History, Media, MediaSource, Message, Part, Role},
    provider::{FinishReason, Model, Profile, Request},
    run::Status,
    session::{SessionFilter, SessionState, SharedStore},
};
use entourage_runners::{ReactBuilder, TodoTool};
use entourage_runtime::{RunHandle, Session};
use entourage_testkit::{FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, assert_valid, count, drain, kinds, memory, open_runtime, runtime_on, stored};

/// Bytes of a tool's result: 1,000 tokens by estimate.
pub(crate) const PAGE: usize = 4_000;

pub(crate) fn looks(input: u64, output: u64) -> Script {
    Script::new().call("look", &json!({"page": input})).usage(input, output).finish(FinishReason::ToolCalls)
}

pub(crate) fn says(text: &str) -> Script {
    Script::new().text(text).usage(10, 5).finish(FinishReason::Stop)
}

pub(crate) fn windowed(model: Model, window: Option<u64>) -> Model {
    let mut profile = Profile::default();
    profile.context_window = window;
    profile.prices = Some(Prices::per_million_micros(1_000_000, 1_000_000));
    model.with_profile(profile)
}

pub(crate) fn look() -> FakeTool {
    FakeTool::new("look").returning("x".repeat(PAGE).as_str())
}

/// An agent that reads pages.
pub(crate) fn looker(provider: &ScriptedProvider, window: u64) -> ReactBuilder {
    agent(windowed(provider.model(), Some(window))).tool(look())
}

pub(crate) fn is_summary_request(request: &Request) -> bool {
    request.messages.last().is_some_and(|message| message.text().contains("## Exact next steps"))
}

pub(crate) fn texts(history: &History) -> Vec<String> {
    history.iter().map(|message| message.text()).collect()
}

/// The compactions among these events.
pub(crate) fn compacted(events: &[Envelope]) -> Vec<Arc<Compacted>> {
    let found = events.iter().filter_map(|event| match &event.event {
        Event::Compacted(compacted) => Some(Arc::clone(compacted)),
        _ => None,
    });
    found.collect()
}

fn own(events: &[Envelope], session: &Session) -> Vec<Envelope> {
    events.iter().filter(|event| event.origin.session == *session.id()).cloned().collect()
}

/// Reads the events of the run. Returns those of its own session.
pub(crate) async fn record(run: &mut RunHandle, session: &Session) -> Vec<Envelope> {
    let events = drain(run).await;
    own(&events, session)
}

/// Folds the stored events, and checks that the result is the session's own state.
pub(crate) async fn state(store: &SharedStore, session: &Session) -> SessionState {
    let mut state = SessionState::default();
    stored(store, session.id()).await.iter().for_each(|event| state.apply(event));
    assert_eq!(state, session.state().await.unwrap());
    state
}

#[tokio::test]
async fn cs01_a_summary_is_made_when_too_little_of_the_window_remains() {
    for (window, used, fires) in [
        (200_000, 159_999, false),
        (200_000, 160_000, true),
        (200_000, 160_001, true),
        (200_001, 180_000, false),
        (200_001, 180_001, true),
        (200_001, 180_002, true),
        (100_000, 79_999, false),
        (100_000, 80_000, true),
        (100_000, 80_001, true),
        (0, u64::MAX / 2, false),
    ] {
        for output in [1, 7_000] {
            let mut provider = ScriptedProvider::new().step(looks(used - output, output));
            if fires {
                provider = provider.step(says("A summary."));
            }
            let provider = provider.step(says("Done."));
            let agent = looker(&provider, window).build().unwrap();
            let session = open_runtime().session();
            let mut run = session.start(&agent, "Go");
            let events = record(&mut run, &session).await;
            assert_eq!(run.outcome().await.unwrap().text, "Done.", "{window} {used}");
            assert_eq!(count(&events, "compacted") == 1, fires, "{window} {used}: {:?}", kinds(&events));
            if fires {
                let place = |kind| events.iter().position(|event| event.event.kind() == kind).unwrap();
                assert!(place("tool_finished") < place("compaction_started"), "after the step's tools");
                let Event::CompactionStarted(started) = &events[place("compaction_started")].event else {
                    panic!()
                };
                assert_eq!(started.cause, CompactionCause::Threshold);
                let id = format!("{}.{}$$0", session.id(), events[place("compaction_started")].seq);
                assert_eq!(started.child.as_str(), id);
            }
        }
    }
}

#[tokio::test]
async fn cs01_a_prompt_that_comes_while_the_summary_is_written_joins_the_next_call() {
    let refused = Script::refuse(ErrorKind::ContextOverflow, "the prompt is too long");
    for (steps, cause) in [
        (vec![looks(80_000, 1)], CompactionCause::Threshold),
        (vec![looks(10, 1), looks(20, 1), refused], CompactionCause::Overflow),
    ] {
        let gate = Gate::new();
        let provider = steps.into_iter().fold(ScriptedProvider::new(), ScriptedProvider::step);
        let summary = Script::new().wait(&gate).text("A summary.").usage(10, 5).finish(FinishReason::Stop);
        let provider = provider.step(summary).step(says("Done."));
        let agent = looker(&provider, 100_000).build().unwrap();
        let session = open_runtime().session();
        let mut run = session.start(&agent, "Go");
        gate.arrived(1).await;
        session.steer("Also this").await.unwrap();
        gate.open();
        let events = record(&mut run, &session).await;
        assert_eq!(run.outcome().await.unwrap().text, "Done.", "{cause:?}");
        let place = |kind| events.iter().position(|event| event.event.kind() == kind).unwrap();
        assert!(place("compacted") < place("message_added"), "{cause:?}: {:?}", kinds(&events));
        let last = provider.requests().pop().unwrap();
        assert_eq!(texts(&last.messages).pop().unwrap(), "Also this", "{cause:?}");
        assert_valid(&last.messages);
    }
}

#[tokio::test]
async fn cs01_an_unknown_window_or_a_program_that_says_so_keeps_everything() {
    for (window, compacts) in [(None, true), (Some(100_000), false)] {
        let provider = ScriptedProvider::new().step(looks(99_000, 900)).step(says("Done."));
        let builder = agent(windowed(provider.model(), window)).tool(look());
        let builder =
            if compacts { builder.compaction(Compaction::new()) } else { builder.without_compaction() };
        let session = open_runtime().session();
        let mut run = session.start(&builder.build().unwrap(), "Go");
        let events = record(&mut run, &session).await;
        assert_eq!(count(&events, "compaction_started"), 0);
        assert_eq!(session.history().await.unwrap().len(), 4);
    }
}

#[tokio::test]
async fn cs01_holds_for_services_that_count_nothing() {
    let provider = ScriptedProvider::new()
        .step(Script::new().call("look", &json!({})).finish(FinishReason::ToolCalls))
        .step(Script::new().text("A summary.").finish(FinishReason::Stop))
        .step(Script::new().text("Done.").finish(FinishReason::Stop));
    // The prompt takes 6,500 tokens by estimate, of which a window of 8,000 leaves less than a fifth.
    let agent = looker(&provider, 8_000).build().unwrap();
    let session = open_runtime().session();
    session.start(&agent, "p".repeat(25_600)).outcome().await.unwrap();
    let requests = provider.requests();
    assert!(is_summary_request(&requests[1]));
    let state = session.state().await.unwrap();
    assert!(state.is_estimated() && state.context_usage().estimated);
}

fn todos() -> serde_json::Value {
    let todo =
        |content: &str, status: &str| json!({"content": content, "status": status, "active_form": content});
    json!({"todos": [
        todo("Read the page", "completed"), todo("Write the answer", "in_progress"), todo("Sign it", "pending"),
    ]})
}

#[tokio::test]
async fn cs02_the_summary_is_asked_for_without_tools_and_with_what_is_to_be_done() {
    let plan = Script::new().call("todos", &todos()).usage(70_000, 100).finish(FinishReason::ToolCalls);
    let summary = Script::new().text("S".repeat(40)).usage(4_000, 17).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new()
        .step(plan)
        .step(looks(75_000, 100))
        .step(looks(80_000, 100))
        .step(summary)
        .step(looks(900, 9));
    let provider = provider.step(says("Done."));
    let agent = looker(&provider, 100_000).tool(TodoTool::new()).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let asked = &requests[3];
    assert_eq!((asked.tools.len(), &*asked.instructions, &*asked.model), (0, "", "scripted"));
    assert!(asked.params.max_output.is_some_and(|most| most <= 20_000), "room for the reply is reserved");
    // All of the conversation but the newest step, then the instruction.
    assert_eq!(asked.messages.len(), 6);
    assert_eq!(texts(&asked.messages)[0], "Go");
    let instruction = asked.messages.last().unwrap().text();
    for piece in [
        "## State",
        "## Files and changes",
        "## Technical context",
        "## Strategy",
        "## Exact next steps",
        "[completed] Read the page",
        "[in progress] Write the answer",
        "[pending] Sign it",
        "restore",
    ] {
        assert!(instruction.contains(piece), "{piece}: {instruction}");
    }
    // The next request: the summary with list and task, and the newest step word for word.
    let next = &requests[4].messages;
    assert_eq!(next.len(), 3);
    let first = next.get(0).unwrap();
    assert_eq!(first.role(), Role::User);
    for piece in ["SSSS", "[in progress] Write the answer", "cut for length; go on with this task"] {
        assert!(first.text().contains(piece), "{piece}: {}", first.text());
    }
    assert!(first.text().ends_with("Go"));
    assert_eq!(next.get(2).unwrap().tool_results().next().unwrap().to_text().len(), PAGE);

    let events = stored(&store, session.id()).await;
    let done = &compacted(&events)[0];
    assert_eq!((done.kept, done.output), (2, 17));
    assert!(done.after < done.before);
    let mut state = SessionState::default();
    for event in &events {
        state.apply(event);
        if let Event::Compacted(done) = &event.event {
            let kept: u64 = state.history().iter().skip(1).map(|message| estimate_tokens(message)).sum();
            let context = state.context_usage();
            assert_eq!((context.input, context.output, context.estimated), (kept, 17, true));
            assert_eq!(state.estimated_tokens(), done.after);
        }
    }
    let context = state.context_usage();
    assert_eq!((context.input, context.output), (10, 5), "the next step sets them anew");

    // What the summary cost is its own session's, and part of the tree.
    let tree = store.query(&SessionFilter::tree(session.id().clone())).await.unwrap();
    let child = tree.iter().find(|info| info.record.parent.is_some()).unwrap();
    assert_eq!((tree.len(), &*child.record.role), (2, "summary"));
    assert_eq!(child.head.usage, Usage::new(4_000, 17));
    assert!(child.head.cost.is_some_and(|cost| cost > Money::default()));
    assert_eq!(outcome.usage, Usage::new(70_000 + 75_000 + 80_000 + 900 + 10, 100 + 100 + 100 + 9 + 5));
    let all: Usage = tree.iter().map(|info| info.head.usage).sum();
    assert_eq!(all, outcome.usage + Usage::new(4_000, 17));
}

#[tokio::test]
async fn cs02_a_session_is_compacted_on_request_and_not_while_it_runs() {
    let gate = Gate::new();
    let provider = ScriptedProvider::new()
        .step(Script::new().wait(&gate).text("a".repeat(8_000)).usage(10, 2_000).finish(FinishReason::Stop))
        .step(says("Second."))
        .step(Script::new().text("A summary.").finish(FinishReason::Stop))
        .step(says("Third."));
    let model = provider.model();
    let agent = agent(model.clone()).build().unwrap();
    let session = open_runtime().session();
    let compaction = Compaction::new().with_focus("the colour of the ship");
    assert!(!session.compact(&compaction, &model).await.unwrap(), "nothing was said yet");
    assert_eq!(provider.count(), 0);
    let run = session.start(&agent, "One");
    gate.arrived(1).await;
    assert_eq!(session.compact(&compaction, &model).await.unwrap_err().kind(), ErrorKind::Busy);
    gate.open();
    run.outcome().await.unwrap();
    session.start(&agent, "Two").outcome().await.unwrap();

    assert!(session.compact(&compaction, &model).await.unwrap());
    assert!(!session.is_busy());
    let asked = provider.requests().remove(2);
    assert!(
        is_summary_request(&asked) && asked.messages.last().unwrap().text().contains("colour of the ship")
    );
    let context = session.state().await.unwrap().context_usage();
    // The newest answer is kept, and nobody counted the summary.
    assert_eq!((context.input, context.output), (2, 3));
    let history = session.history().await.unwrap();
    assert_eq!(history.len(), 2);
    assert!(!history.get(0).unwrap().text().contains("go on with this task"), "no run is open");
    session.start(&agent, "Three").outcome().await.unwrap();
    assert_eq!(texts(&provider.requests()[3].messages)[1..], ["Second.", "Three"]);
}

#[tokio::test]
async fn cs03_a_second_summary_is_made_of_the_first_and_what_came_later() {
    let provider = ScriptedProvider::new()
        .step(looks(80_000, 1))
        .step(says("First summary."))
        .step(looks(30_000, 1))
        .step(looks(85_000, 1))
        .step(says("Second summary."))
        .step(says("Done."));
    let agent = looker(&provider, 100_000).compaction(Compaction::new().keep_messages(0)).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    session.start(&agent, "Go").outcome().await.unwrap();
    let requests = provider.requests();
    let second = &requests[4];
    assert!(is_summary_request(second));
    let said = texts(&second.messages);
    assert!(said[0].contains("First summary.") && said[0].ends_with("Go"), "{said:?}");
    assert_eq!(second.messages.len(), 1 + 4 + 1, "the summary, two steps, the instruction");
    let last = texts(&requests[5].messages);
    assert!(last.len() == 1 && last[0].contains("Second summary.") && !last[0].contains("First summary."));
    assert_eq!(last[0].matches("go on with this task").count(), 1);
    assert!(last[0].ends_with("Go"), "the task is pinned word for word, twice over");
    // Nothing is gone from the store.
    let events = stored(&store, session.id()).await;
    assert_eq!(count(&events, "tool_finished"), 3);
    assert_eq!(count(&events, "compacted"), 2);
    state(&store, &session).await;
    let reopened = runtime_on(&store).open(session.id()).await.unwrap();
    assert_eq!(reopened.history().await.unwrap(), session.history().await.unwrap());
}

#[tokio::test]
async fn cs04_a_threshold_on_the_final_step_costs_nothing_until_the_next_prompt() {
    let full = Script::new().text("a".repeat(8_000)).usage(90_000, 2_000).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(full).step(says("A summary.")).step(says("Again."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let mut run = session.start(&agent, "Go");
    let events = record(&mut run, &session).await;
    assert_eq!((provider.count(), count(&events, "run_finished")), (1, 1), "no extra turn");
    let mut run = session.start(&agent, "Once more");
    let events = record(&mut run, &session).await;
    assert_eq!(count(&events, "run_started") + count(&events, "run_finished"), 2, "one run from end to end");
    let next = texts(&provider.requests()[2].messages);
    assert_eq!(next.len(), 2);
    assert!(next[0].contains("A summary.") && !next[0].contains("go on with this task"), "{next:?}");
    assert_eq!(next[1], "Once more", "an unanswered prompt stays where it is");
}

#[tokio::test]
async fn cs04_a_task_with_a_file_is_pinned_with_it() {
    let provider =
        ScriptedProvider::new().step(looks(80_000, 1)).step(says("A summary.")).step(says("Done."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let picture = Part::Media(Media::new("image/png", MediaSource::Base64("aGk=".into())));
    let prompt = Message::user("What is on this picture?").with(picture.clone());
    open_runtime().session().start(&agent, prompt.clone()).outcome().await.unwrap();
    let requests = provider.requests();
    let first = requests[2].messages.get(0).unwrap();
    assert_eq!(first.parts()[1..], *prompt.parts());
}

#[tokio::test]
async fn cs05_a_cancel_leaves_the_conversation_as_it_was() {
    let gate = Gate::new();
    let provider = ScriptedProvider::new()
        .step(looks(80_000, 1))
        .step(Script::new().text("Half a summ").wait(&gate).text("ary").finish(FinishReason::Stop))
        .step(says("Another summary."))
        .step(says("Done."));
    let agent = looker(&provider, 100_000).build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session();
    let run = session.start(&agent, "Go");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    let events = stored(&store, session.id()).await;
    assert_eq!(kinds(&events)[events.len() - 2..], ["compaction_started", "run_finished"]);
    let reloaded = runtime_on(&store).open(session.id()).await.unwrap();
    let history = reloaded.history().await.unwrap();
    assert_eq!(history.len(), 3);
    assert_valid(&history);
    // The next run begins anew, in another session.
    reloaded.start(&agent, "Go on").outcome().await.unwrap();
    let tree = store.query(&SessionFilter::tree(session.id().clone())).await.unwrap();
    assert_eq!(tree.len(), 3);
    assert!(texts(&provider.requests()[3].messages)[0].contains("Another summary."));
}

#[tokio::test]
async fn cs05_a_summary_that_is_none_is_not_taken_and_the_run_goes_on() {
    let cut = |script: Script| script.usage(1, 1).finish(FinishReason::Length);
    for (label, summary, kind) in [
        ("error", Script::refuse(ErrorKind::Authentication, "no"), Some(ErrorKind::Authentication)),
        ("empty", says(" \n"), Some(ErrorKind::Protocol)),
        ("cut, empty", cut(Script::new()), Some(ErrorKind::Protocol)),
        ("cut", cut(Script::new().text("Half a summary")), None),
        ("calls", looks(1, 1), Some(ErrorKind::Protocol)),
        (
            "refused",
            Script::new().text("I won't.").finish(FinishReason::Refusal),
            Some(ErrorKind::ContentFiltered),
        ),
        ("long", says(&"s".repeat(9_000)), Some(ErrorKind::TooLarge)),
    ] {
        let provider = ScriptedProvider::new().step(looks(80_000, 1)).step(summary).step(says("Done."));
        let agent = looker(&provider, 100_000).build().unwrap();
        let session = open_runtime().session();
        let mut run = session.start(&agent, "Go");
        let events = record(&mut run, &session).await;
        assert_eq!(run.outcome().await.unwrap().text, "Done.", "{label}");
        let failed = events.iter().find_map(|event| match &event.event {
            Event::CompactionFailed(failed) => Some(failed.error.kind),
            _ => None,
        });
        assert_eq!((failed, compacted(&events).len()), (kind, usize::from(kind.is_none())), "{label}");
        assert_eq!(provider.requests()[2].messages.len(), if kind.is_some() { 3 } else { 1 }, "{label}");
    }
}
