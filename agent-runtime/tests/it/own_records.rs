//! Values that agents record of their own: as rows, on resume, in replays and in checkpoints.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, RunId, SessionId,
    event::{Event, Kept, Record, Recorded},
    provider::Delta,
    run::{Delegate, Effect, RunContext, Spawn, Status},
    session::{SessionState, SharedStore},
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{
    Do, Fault, FaultyStore, act, agent, kinds, memory, process, runtime_on, stored, until_killed,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Vote {
    round: u32,
    by: String,
}

impl Record for Vote {
    const KIND: &'static str = "debate.vote";

    fn summary(&self) -> String {
        format!("{} votes in round {}", self.by, self.round)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Motion {
    text: String,
    judge: Option<(SessionId, RunId)>,
}

impl Record for Motion {
    const KIND: &'static str = "debate.motion";
    const KEPT: bool = true;

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        self.judge.as_ref().map(|(session, run)| (session, Some(*run)))
    }
}

/// The vote's second form.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct NewVote {
    rounds: Vec<u32>,
}

impl Record for NewVote {
    const KIND: &'static str = "debate.vote";
    const VERSION: u32 = 2;

    fn upgrade(version: u32, value: Value) -> serde_json::Result<Self> {
        assert_eq!(version, 1);
        Ok(Self { rounds: vec![serde_json::from_value::<Vote>(value)?.round] })
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Wild(Value);

impl Record for Wild {
    const KIND: &'static str = "wild.value";
}

fn vote(round: u32, by: &str) -> Vote {
    Vote { round, by: by.to_owned() }
}

fn work() -> SessionId {
    SessionId::new("work").unwrap()
}

fn votes(events: &[entourage_core::event::Envelope]) -> Vec<Vote> {
    let found = events.iter().filter_map(|event| event.event.record::<Vote>().unwrap());
    found.map(|vote| (*vote).clone()).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A row that is read back equals the event that was stored, in its type and without it.
    #[test]
    fn a_row_read_back_equals(value in any_value(), round in any::<u32>(), by in any::<String>()) {
        for event in [
            Event::Recorded(Recorded::new(Wild(value))),
            Event::Recorded(Recorded::new(Vote { round, by: by.clone() })),
            Event::Recorded(Recorded::new(Motion { text: by, judge: Some((work(), RunId::generate())) })),
        ] {
            let row = event.to_json().unwrap();
            let read = Event::from_json(event.kind(), &row).unwrap();
            prop_assert_eq!(&read, &event);
            prop_assert_eq!(&event, &read);
            prop_assert_eq!(read.to_json().unwrap(), row.as_str());
            let Event::Recorded(live) = &event else { panic!("it is a record") };
            let Event::Recorded(stored) = &read else { panic!("it is a record") };
            prop_assert_eq!(live.child(), stored.child());
            prop_assert_eq!(stored.get::<Vote>().unwrap(), live.get::<Vote>().unwrap());
            prop_assert_eq!(stored, live, "once its type is known");
        }
    }

    /// A value of any stranger's type is kept as it came, in rows and in checkpoints.
    #[test]
    fn a_strangers_value_is_accepted_and_kept(
        value in any_value(),
        name in "[a-z0-9_-]{1,20}(\\.[a-z0-9_-]{1,20}){1,3}",
        version in any::<u32>(),
        kept in any::<bool>(),
    ) {
        let kind = format!("{}:{name}", if kept { "keep" } else { "record" });
        let row = json!({ "v": version, "value": value }).to_string();
        let event = Event::from_json(&kind, &row).unwrap();
        prop_assert_eq!(event.kind(), &kind);
        prop_assert_eq!(event.record::<Vote>().unwrap(), None);
        let Event::Recorded(recorded) = &event else { panic!("it is a record") };
        prop_assert_eq!((recorded.name(), recorded.is_kept()), (name.as_str(), kept));
        prop_assert_eq!(Event::from_json(&kind, &event.to_json().unwrap()).unwrap(), event.clone());
        let json = serde_json::to_string(&Kept::Value(recorded.clone())).unwrap();
        prop_assert_eq!(serde_json::from_str::<Kept>(&json).unwrap(), Kept::Value(recorded.clone()));
    }

    /// A kind that is neither known nor a record's was written by a newer version.
    #[test]
    fn any_other_kind_is_refused_as_newer(kind in "([a-z_]{0,12}:)?[ -~]{0,12}") {
        let is_name = |name: &str| {
            name.contains('.')
                && name.split('.').all(|part| !part.is_empty())
                && name.chars().all(|it| "abcdefghijklmnopqrstuvwxyz0123456789_-.".contains(it))
        };
        let of_a_record = kind.split_once(':').is_some_and(|(prefix, name)| {
            ["record", "keep"].contains(&prefix) && is_name(name)
        });
        let read = Event::from_json(&kind, r#"{"v":1,"value":null}"#);
        if of_a_record {
            prop_assert!(read.is_ok());
        } else {
            prop_assert_eq!(read.unwrap_err().kind(), ErrorKind::NewerVersion);
        }
    }
}

#[test]
fn a_kind_outside_of_any_namespace_is_refused() {
    let long = format!("record:a.{}", "b".repeat(99));
    for kind in [
        "debate.vote",
        "record:",
        "record:vote",
        "record:.vote",
        "record:a..b",
        "record:a.B",
        "keep:a.b.",
        &long,
    ] {
        let error = Event::from_json(kind, r#"{"v":1,"value":null}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerVersion, "{kind}");
    }
}

#[test]
fn a_value_of_another_form_is_a_typed_error() {
    for (kind, row, expected) in [
        ("record:debate.vote", r#"{"v":1,"value":{"round":"one"}}"#, Some(ErrorKind::Corrupt)),
        ("record:debate.vote", r#"{"v":2,"value":{"round":1,"by":"a"}}"#, Some(ErrorKind::NewerVersion)),
        ("record:debate.vote", r#"{"v":0,"value":[]}"#, Some(ErrorKind::Corrupt)),
        // Another process may have kept it.
        ("keep:debate.vote", r#"{"v":1,"value":{"round":1,"by":"a"}}"#, None),
    ] {
        let read = Event::from_json(kind, row).unwrap().record::<Vote>();
        assert_eq!(read.err().map(|error| error.kind()), expected, "{row}");
    }
    let deep = format!(r#"{{"v":1,"value":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    for row in ["", "{}", "null", r#"{"v":1}"#, r#"{"v":-1,"value":1}"#, r#"{"v":1,"value":1"#, &deep] {
        let error = Event::from_json("record:debate.vote", row).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{row}");
    }
}

#[test]
fn an_older_form_is_upgraded_and_equals_the_newer_one() {
    let old = Event::Recorded(Recorded::new(vote(3, "ada")));
    let row = old.to_json().unwrap();
    let read = Event::from_json(old.kind(), &row).unwrap();
    let new = Event::Recorded(Recorded::new(NewVote { rounds: vec![3] }));
    assert_eq!(read.record::<NewVote>().unwrap().unwrap().rounds, [3]);
    assert_eq!(read, new);
    assert_eq!(read.to_json().unwrap(), row, "its row stays");
    assert_ne!(read, Event::Recorded(Recorded::new(NewVote { rounds: vec![4] })));
}

#[test]
fn a_value_is_shown_by_its_type_or_as_it_is_stored() {
    let live = Recorded::new(vote(3, "Ada"));
    assert_eq!(live.summary(), "Ada votes in round 3");
    let Event::Recorded(read) =
        Event::from_json(live.kind(), &Event::Recorded(live.clone()).to_json().unwrap()).unwrap()
    else {
        panic!("it is a record")
    };
    assert_eq!(read.summary(), r#"debate.vote {"round":3,"by":"Ada"}"#);
    read.get::<Vote>().unwrap();
    assert_eq!(read.summary(), "Ada votes in round 3");
}

#[test]
fn events_are_as_small_as_they_were() {
    assert_eq!((size_of::<Event>(), size_of::<Delta>()), (24, 24));
}

/// Written from top to bottom: it votes, asks a model, and votes again.
fn debate(provider: &ScriptedProvider, last: &'static str) -> Do {
    let model = provider.model();
    act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            cx.record(vote(1, "ada"))?;
            let reply = cx.call_model(&model, model.request("Who wins?")).await?;
            cx.record(vote(2, &reply.message.text()))?;
            cx.now().await?;
            cx.record(vote(3, last))?;
            Ok("done".to_owned())
        })
    })
}

/// An agent that runs again from its top records each value once, wherever its process dies.
#[test]
fn a_value_is_recorded_once_wherever_the_process_dies() {
    let provider = || ScriptedProvider::by_history().text("bob");
    let counting = FaultyStore::counting();
    let whole: SharedStore = counting.clone();
    process(async {
        let run = runtime_on(&whole).session_with_id(work()).start(&debate(&provider(), "cy"), "Go");
        run.outcome().await.unwrap();
    });
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 1..counting.appends() {
            let store = memory();
            let dying = FaultyStore::new(&store, at, fault);
            process(async {
                let shared: SharedStore = dying.clone();
                let run = runtime_on(&shared).session_with_id(work()).start(&debate(&provider(), "cy"), "Go");
                until_killed(run.outcome(), &dying.killed).await;
            });
            process(async {
                let session = runtime_on(&store).open(&work()).await.unwrap();
                if session.unfinished().await.unwrap().is_some() {
                    drop(session.resume(&debate(&provider(), "cy")).outcome().await);
                }
                let events = stored(&store, &work()).await;
                assert_eq!(votes(&events), [vote(1, "ada"), vote(2, "bob"), vote(3, "cy")], "{fault:?} {at}");
                let run = events[0].origin.run;
                assert_eq!(session.replay(&debate(&provider(), "cy"), run).await.unwrap().text, "done");
            });
        }
    }
}

/// Dies before the last append of the debate, whose values are recorded by then but for the last one.
fn cut_short(store: &SharedStore, appends: usize) {
    let dying = FaultyStore::new(store, appends - 1, Fault::HangBefore);
    process(async {
        let shared: SharedStore = dying.clone();
        let provider = ScriptedProvider::by_history().text("bob");
        let run = runtime_on(&shared).session_with_id(work()).start(&debate(&provider, "cy"), "Go");
        until_killed(run.outcome(), &dying.killed).await;
    });
}

#[test]
fn another_value_than_the_recorded_one_is_a_divergence() {
    let other = |by: &'static str| {
        act(move |cx| Box::pin(async move { cx.record(vote(1, by)).map(|()| "done".to_owned()) }))
    };
    let (store, counting) = (memory(), FaultyStore::counting());
    process(async {
        let shared: SharedStore = counting.clone();
        let provider = ScriptedProvider::by_history().text("bob");
        runtime_on(&shared).session().start(&debate(&provider, "cy"), "Go").outcome().await.unwrap();
    });
    cut_short(&store, counting.appends());
    process(async {
        let session = runtime_on(&store).open(&work()).await.unwrap();
        let run = session.unfinished().await.unwrap().unwrap();
        let error = session.replay(&other("eve"), run).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        let error = session.resume(&other("eve")).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        assert!(error.message().contains("asks for the record `"), "{error}");
    });
}

/// An agent that goes on where its record ends: four motions, each of which a clerk is asked about before the vote.
fn folding(provider: &ScriptedProvider) -> Do {
    let model = provider.model();
    act(move |cx| {
        let model = model.clone();
        Box::pin(async move {
            assert!(cx.records("debat").is_empty() && cx.records("debate.vote").is_empty());
            let (mut round, mut open) = (0, None);
            for value in cx.records("debate") {
                if let Some(vote) = value.get::<Vote>()? {
                    (round, open) = (vote.round, None);
                }
                open = value.get::<Motion>()?.or(open);
            }
            assert_eq!(cx.recorded::<Vote>()?.len(), usize::try_from(round).unwrap());
            while round < 4 {
                let (run, clerk) = (cx.run(), cx.session().in_role("clerk")?);
                let motion = match open.take() {
                    Some(motion) => motion,
                    None => cx.append_with(|state, seq| {
                        assert_eq!(state.head().seq + 1, seq);
                        let text = state.prompt().unwrap().text();
                        Ok(Motion { text, judge: Some((clerk, run.started_at(seq))) })
                    })?,
                };
                let (clerk, run) = motion.judge.clone().unwrap();
                let spawn = Spawn::new(agent(model.clone()).build().unwrap(), motion.text.as_str());
                let asked = Delegate::new(clerk, spawn).run(run).part_of_run();
                cx.effects().perform(cx, None, Effect::Delegate(Box::new(asked))).await?;
                round += 1;
                cx.append(vote(round, "ada"))?;
                cx.commit().await?;
            }
            Ok("done".to_owned())
        })
    })
}

#[test]
fn an_agent_that_folds_its_record_goes_on_where_it_ends() {
    let provider = || ScriptedProvider::by_history().text("x").text("x").text("x").text("x");
    let counting = FaultyStore::counting();
    let whole: SharedStore = counting.clone();
    process(async {
        runtime_on(&whole)
            .session_with_id(work())
            .start(&folding(&provider()), "Go")
            .outcome()
            .await
            .unwrap();
    });
    for at in 1..counting.appends() {
        let store = memory();
        let dying = FaultyStore::new(&store, at, Fault::HangAfter);
        process(async {
            let shared: SharedStore = dying.clone();
            let run = runtime_on(&shared).session_with_id(work()).start(&folding(&provider()), "Go");
            until_killed(run.outcome(), &dying.killed).await;
        });
        process(async {
            let session = runtime_on(&store).open(&work()).await.unwrap();
            if session.unfinished().await.unwrap().is_some() {
                let outcome = session.resume(&folding(&provider())).outcome().await.unwrap();
                assert_eq!(outcome.status, Status::Completed);
            }
            let events = stored(&store, &work()).await;
            let rounds: Vec<_> = votes(&events).iter().map(|vote| vote.round).collect();
            assert_eq!(rounds, [1, 2, 3, 4], "append {at}");
            let replayed = session.replay(&folding(&provider()), events[0].origin.run).await.unwrap();
            assert_eq!(replayed.text, "done", "append {at}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_value_is_in_the_state_with_the_prompts_until_a_run_finishes() {
    let store = memory();
    let keeper = act(move |cx| {
        Box::pin(async move {
            cx.append(Motion { text: "first".to_owned(), judge: None })?;
            cx.append(vote(1, "ada"))?;
            cx.signal("go").await.map(|_| "done".to_owned())
        })
    });
    let session = runtime_on(&store).session_with_id(work());
    let kept = |state: &SessionState| -> Vec<String> {
        let shown = |part: &Kept| match part {
            Kept::Prompt(prompt) => prompt.text(),
            Kept::Value(value) => value.get::<Motion>().unwrap().unwrap().text.clone(),
            other => panic!("{other:?}"),
        };
        state.kept().iter().map(shown).collect()
    };
    let outcome = session.start(&keeper, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)));
    assert_eq!(kept(&session.state().await.unwrap()), ["Go", "first"]);
    let state: SessionState =
        serde_json::from_str(&serde_json::to_string(&session.state().await.unwrap()).unwrap()).unwrap();
    assert_eq!(kept(&state), ["Go", "first"]);
    assert_eq!(state, session.state().await.unwrap());
    // The prompt that takes its place belongs to the same task.
    session.start(&keeper, "And more").outcome().await.unwrap();
    assert_eq!(kept(&session.state().await.unwrap()), ["Go", "first", "And more", "first"]);
    session.signal("go", json!(1)).await.unwrap();
    assert_eq!(session.resume(&keeper).outcome().await.unwrap().status, Status::Completed);
    assert_eq!(kept(&session.state().await.unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_cannot_be_stored_is_refused_and_harms_nothing() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Pairs(BTreeMap<(u8, u8), u8>);
    impl Record for Pairs {
        const KIND: &'static str = "wild.pairs";
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Score(f64);
    impl Record for Score {
        const KIND: &'static str = "wild.score";
    }
    /// Read back it is another value.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Secret {
        #[serde(skip)]
        text: u8,
    }
    impl Record for Secret {
        const KIND: &'static str = "wild.secret";
    }
    let teller = act(|cx| {
        Box::pin(async move {
            let pairs = cx.append(Pairs([((1, 2), 3)].into())).unwrap_err().kind();
            let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
            let nested = cx.record(Wild(deep)).unwrap_err().kind();
            assert_eq!((pairs, nested), (ErrorKind::InvalidInput, ErrorKind::InvalidInput));
            for lost in
                [cx.record(Score(f64::NAN)), cx.append(Score(f64::INFINITY)), cx.record(Secret { text: 1 })]
            {
                assert_eq!(lost.map_err(|error| error.kind()), Err(ErrorKind::InvalidInput));
            }
            cx.append(vote(1, "ada")).map(|()| "done".to_owned())
        })
    });
    let store = memory();
    let outcome = runtime_on(&store).session_with_id(work()).start(&teller, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "done");
    let events = stored(&store, &work()).await;
    assert_eq!(kinds(&events), ["run_started", "record:debate.vote", "run_finished"]);
}

/// Records from within a call of a tool, where no order holds.
#[derive(Debug)]
struct Scribe(ToolSpec);

#[async_trait]
impl Tool for Scribe {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let kinds =
            [cx.run().record(vote(1, "a")), cx.run().append(vote(1, "a"))].map(|it| it.unwrap_err().kind());
        assert_eq!(kinds, [ErrorKind::Unsupported; 2]);
        Ok(ToolOutput::text("refused"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tools_call_and_a_run_that_is_over_record_nothing() {
    let store = memory();
    let provider = ScriptedProvider::new().call("scribe", json!({})).text("Done.");
    let scribe =
        Scribe(ToolSpec::new("scribe", "Writes.", json!({"type": "object"})).with_access(Access::READ));
    let agent = agent(provider.model()).tool(scribe).tool(FakeTool::new("look")).build().unwrap();
    let outcome = runtime_on(&store).session_with_id(work()).start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    assert!(votes(&stored(&store, &work()).await).is_empty());

    let left: Arc<std::sync::Mutex<Option<RunContext>>> = Arc::default();
    let keep = Arc::clone(&left);
    let leaving = act(move |cx| {
        *keep.lock().unwrap() = Some(cx.clone());
        Box::pin(async { Ok("over".to_owned()) })
    });
    runtime_on(&store).session().start(&leaving, "Go").outcome().await.unwrap();
    let cx = left.lock().unwrap().take().unwrap();
    assert!(cx.record(vote(1, "late")).is_err() && cx.append(vote(1, "late")).is_err());
    assert!(cx.commit().await.is_err());
}
