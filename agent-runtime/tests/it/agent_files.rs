//! Agents of files in runs: changes between two runs, records, resumed and replayed runs, agents below.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId,
    event::{Envelope, Event},
    permission::Scope,
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::agent_files::{
    AgentFiles, AgentRead, AgentSource, AgentText, AgentTexts, Catalogue, CatalogueBuilder,
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use crate::common::{Fault, FaultyStore, memory, process, runtime_on, stored, until_killed};

/// Files that a test changes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<AgentTexts>>);

impl Disk {
    fn write(&self, text: AgentText) {
        self.0.lock().unwrap().agents.insert(text.name.clone(), Ok(text));
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap().agents.remove(name);
    }
}

#[async_trait]
impl AgentSource for Disk {
    async fn read(&self) -> Result<AgentTexts> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn complete(&self, text: &AgentText) -> Result<String> {
        Ok(format!("{}\n\nRules.", text.instructions))
    }
}

fn text(name: &str, instructions: &str, settings: Value) -> AgentText {
    let text = AgentText::new(name, instructions).with_settings(settings.as_object().unwrap().clone());
    text.with_setting("description", json!(format!("Is {name}.")))
}

fn catalogue(provider: &ScriptedProvider) -> CatalogueBuilder {
    let put = FakeTool::new("put").access(Access::WRITE).returning("it is put");
    Catalogue::builder(provider.model()).tools((FakeTool::new("look"), put))
}

fn files(provider: &ScriptedProvider, disk: &Disk) -> AgentFiles {
    AgentFiles::new(catalogue(provider).build().unwrap(), disk.clone())
}

fn reads(events: &[Envelope]) -> Vec<Arc<AgentRead>> {
    events.iter().filter_map(|event| event.event.record::<AgentRead>().unwrap()).collect()
}

fn asked(provider: &ScriptedProvider) -> Vec<String> {
    provider.requests().iter().map(|request| request.instructions.to_string()).collect()
}

fn offered(provider: &ScriptedProvider, request: usize) -> Vec<String> {
    provider.requests()[request].tools.iter().map(|tool| tool.name().to_owned()).collect()
}

#[tokio::test]
async fn cw18_a_change_on_disk_counts_from_the_next_run_on_and_is_recorded() {
    let (disk, store) = (Disk::default(), memory());
    disk.write(text("scribe", "Write.", json!({"tools": ["look"]})));
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let agent = files(&provider, &disk).agent("scribe").await.unwrap();
    let session = runtime_on(&store).session();
    session.start(&agent, "First").outcome().await.unwrap();
    disk.write(text("scribe", "Write well.", json!({"tools": ["put"]})));
    session.start(&agent, "Second").outcome().await.unwrap();
    assert_eq!(asked(&provider), ["Write.\n\nRules.", "Write well.\n\nRules."]);
    assert_eq!(
        (offered(&provider, 0), offered(&provider, 1)),
        (vec!["look".to_owned()], vec!["put".to_owned()])
    );

    let events = stored(&store, session.id()).await;
    let reads = reads(&events);
    assert_eq!(reads.len(), 2);
    assert_ne!(reads[0].digest, reads[1].digest);
    let templates = events.iter().filter_map(|event| match &event.event {
        Event::ModelStarted(call) => call.template.as_deref().map(str::to_owned),
        _ => None,
    });
    let short = |read: &AgentRead| read.digest.to_string().chars().take(12).collect::<String>();
    let expected: Vec<_> = reads.iter().map(|read| format!("agent/scribe#{}", short(read))).collect();
    assert_eq!(templates.collect::<Vec<_>>(), expected);

    disk.remove("scribe");
    let error = session.start(&agent, "Third").outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(provider.requests().len(), 2);
}

#[test]
fn cw18_a_run_that_is_cut_off_goes_on_with_the_definition_that_it_recorded() {
    let id = || SessionId::new("work").unwrap();
    let provider = || ScriptedProvider::by_history().call("put", json!({})).text("Done.");
    let disk_of = |word: &str| {
        let disk = Disk::default();
        disk.write(text("scribe", word, json!({"agents": ["scout"]})));
        disk.write(text("scout", "Look.", json!({})));
        disk
    };
    let counting = FaultyStore::counting();
    process(async {
        let shared: SharedStore = counting.clone();
        let agent = files(&provider(), &disk_of("Old.")).agent("scribe").await.unwrap();
        runtime_on(&shared).session_with_id(id()).start(&agent, "Go").outcome().await.unwrap();
    });
    assert!(counting.appends() > 3);
    let mut resumed = 0;
    for at in 0..counting.appends() {
        let store = memory();
        let dying = FaultyStore::new(&store, at, Fault::HangBefore);
        process(async {
            let shared: SharedStore = dying.clone();
            let agent = files(&provider(), &disk_of("Old.")).agent("scribe").await.unwrap();
            let run = runtime_on(&shared).session_with_id(id()).start(&agent, "Go");
            until_killed(run.outcome(), &dying.killed).await;
        });
        process(async {
            let Ok(session) = runtime_on(&store).open(&id()).await else { return };
            if session.unfinished().await.unwrap().is_none() {
                return;
            }
            let begun = !reads(&stored(&store, &id()).await).is_empty();
            let (again, disk) = (provider(), disk_of("New."));
            let agent = files(&again, &disk).unread("scribe").unwrap();
            if begun {
                disk.remove("scribe");
                disk.remove("scout");
            }
            session.resume(&agent).outcome().await.unwrap();
            let word = if begun { "Old.\n\nRules." } else { "New.\n\nRules." };
            assert!(asked(&again).iter().all(|it| it == word), "{at}: {:?}", asked(&again));
            let events = stored(&store, &id()).await;
            assert_eq!(reads(&events).len(), 1, "{at}");
            resumed += 1;
            let replayed = session.replay(&agent, events[0].origin.run).await.unwrap();
            assert_eq!(replayed.text, "Done.", "{at}");
        });
    }
    assert!(resumed > 2, "{resumed}");
}

#[test]
fn cw18_a_resumed_run_stays_open_where_its_definition_fits_no_more() {
    let id = SessionId::new("work").unwrap();
    let (store, disk) = (memory(), Disk::default());
    disk.write(text("scribe", "Write.", json!({"tools": ["put"]})));
    let provider = || ScriptedProvider::by_history().call("put", json!({})).text("Done.");
    let dying = FaultyStore::new(&store, 2, Fault::HangBefore);
    process(async {
        let shared: SharedStore = dying.clone();
        let agent = files(&provider(), &disk).agent("scribe").await.unwrap();
        let run = runtime_on(&shared).session_with_id(id.clone()).start(&agent, "Go");
        until_killed(run.outcome(), &dying.killed).await;
    });
    process(async {
        let session = runtime_on(&store).open(&id).await.unwrap();
        assert_eq!(reads(&stored(&store, &id).await).len(), 1);
        let poor = Catalogue::builder(provider().model()).tool(FakeTool::new("look")).build().unwrap();
        let agent = AgentFiles::new(poor, disk.clone()).unread("scribe").unwrap();
        let error = session.resume(&agent).outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Diverged);
        assert!(error.message().contains("there is no tool `put`; there are `look`"), "{error}");
        assert!(session.unfinished().await.unwrap().is_some());
    });
}

#[tokio::test]
async fn ce05_an_agent_of_a_file_delegates_to_another_within_its_own_scope() {
    let (disk, store) = (Disk::default(), memory());
    let lead =
        json!({"mode": "primary", "agents": ["scout"], "access": ["read", "delegate"], "tools": ["look"]});
    disk.write(text("lead", "Lead.", lead));
    disk.write(text("scout", "Scout.", json!({"mode": "subagent", "model": "small"})));
    let below = ScriptedProvider::new().call("put", json!({})).text("It is there.");
    let provider = ScriptedProvider::new().call("agent_scout", json!({"prompt": "Where?"})).text("There.");
    let put = FakeTool::new("put").access(Access::WRITE);
    let catalogue = Catalogue::builder(provider.model())
        .small(below.model())
        .tools((FakeTool::new("look"), put.clone()))
        .build()
        .unwrap();
    let files = AgentFiles::new(catalogue, disk.clone());
    let agent = files.agent("lead").await.unwrap();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent, "Find it").outcome().await.unwrap();
    assert_eq!((&*outcome.text, put.started()), ("There.", 0));
    assert_eq!(offered(&provider, 0), ["agent_scout", "look"]);
    assert_eq!(offered(&below, 0), ["look"]);
    let mut recorded = Vec::new();
    for info in store.query(&SessionFilter::tree(session.id().clone())).await.unwrap() {
        recorded.extend(reads(&stored(&store, &info.record.id).await).iter().map(|it| it.text.name.clone()));
    }
    recorded.sort();
    assert_eq!(recorded, ["lead", "scout"]);
}

#[tokio::test]
async fn attack_21_a_file_of_a_project_gains_nothing_by_the_name_of_another() {
    let (disk, store) = (Disk::default(), memory());
    let all = json!({"access": "read+write+execute+network+delegate+ask", "paths": ["/"], "tools": ["put", "look"]});
    disk.write(text("scribe", "Write all.", all).with_project(true));
    let put = FakeTool::new("put").access(Access::WRITE);
    let provider = ScriptedProvider::new().call("put", json!({})).text("No.");
    let catalogue = Catalogue::builder(provider.model())
        .tools((FakeTool::new("look"), put.clone()))
        .project_scope(Scope::read_only())
        .build()
        .unwrap();
    let agent = AgentFiles::new(catalogue, disk.clone()).agent("scribe").await.unwrap();
    runtime_on(&store).session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!((put.started(), offered(&provider, 0)), (0, vec!["look".to_owned()]));
}

#[tokio::test]
async fn ce05_a_team_of_a_file_has_its_lead_and_its_members() {
    let (disk, store) = (Disk::default(), memory());
    let team = json!({"members": ["worker", {"name": "checker", "specialist_in": ["review"]}]});
    disk.write(text("crew", "Be brief.", json!({"team": team, "tools": []})));
    disk.write(text("worker", "Work.", json!({"mode": "subagent", "model": "small"})));
    disk.write(text("checker", "Check.", json!({"model": "small"})));
    let items = json!({"items": [
        {"id": "work", "task": "Work.", "type": "code"},
        {"id": "check", "task": "Check.", "type": "review", "after": ["work"]},
    ]});
    let lead = ScriptedProvider::new().text(items.to_string()).text("Done and right.");
    let members = ScriptedProvider::new().text("Done.").text("Right.");
    let catalogue = Catalogue::builder(lead.model()).small(members.model()).build().unwrap();
    let agent = AgentFiles::new(catalogue, disk.clone()).agent("crew").await.unwrap();
    let session = runtime_on(&store).session();
    let outcome = session.start(&agent, "Do it").outcome().await.unwrap();
    assert_eq!(&*outcome.text, "Done and right.");
    let told = &lead.requests()[0].instructions;
    assert!(told.starts_with("You lead a team.") && told.contains("\n\nBe brief."), "{told}");
    let prompts: Vec<_> = members.requests().iter().map(|it| it.instructions.to_string()).collect();
    assert_eq!(prompts, ["Work.\n\nRules.", "Check.\n\nRules."]);
    let events = stored(&store, session.id()).await;
    assert_eq!(reads(&events).len(), 1);
    assert_eq!(session.replay(&agent, events[0].origin.run).await.unwrap().text, "Done and right.");
}

#[tokio::test]
async fn ce05_a_team_of_a_file_starts_agents_only_where_it_may_delegate() {
    let team = json!({"members": ["worker"]});
    let all = json!("read+write+execute+network+delegate+ask");
    for (access, from_project, project_scope, part) in [
        (json!("read"), false, Scope::all(), "its `access` lacks `delegate`"),
        (all.clone(), true, Scope::read_only(), "may start no agents here"),
        (all, true, Scope::none(), "may start no agents here"),
    ] {
        let (disk, store) = (Disk::default(), memory());
        let settings = json!({"team": team, "tools": [], "access": access});
        disk.write(text("crew", "Be brief.", settings).with_project(from_project));
        disk.write(text("worker", "Work.", json!({})).with_project(from_project));
        let lead = ScriptedProvider::new();
        let catalogue = Catalogue::builder(lead.model()).project_scope(project_scope).build().unwrap();
        let agents = AgentFiles::new(catalogue, disk.clone());
        let error = match agents.agent("crew").await {
            Ok(agent) => runtime_on(&store).session().start(&agent, "Go").outcome().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.message().contains(part), "{error}");
        assert_eq!(lead.count(), 0, "no model was asked");
    }
}

#[tokio::test]
async fn ce05_the_limits_of_a_file_and_of_the_program_hold_for_the_lead_of_a_team() {
    for (own, of_program, expected) in [(Some(3), 50, 3), (None, 4, 4), (Some(9), 4, 4)] {
        let (disk, store) = (Disk::default(), memory());
        let mut settings = json!({"team": {"members": ["worker"]}});
        if let Some(steps) = own {
            settings["max_steps"] = json!(steps);
        }
        disk.write(text("crew", "Be brief.", settings));
        disk.write(text("worker", "Work.", json!({"model": "small"})));
        // It looks again and again, at something else each time.
        let lead = (0..20).fold(ScriptedProvider::new(), |lead, n| lead.call("look", json!({"at": n})));
        // Not all of its replies are asked for.
        let lead = std::mem::ManuallyDrop::new(lead);
        let members = ScriptedProvider::new();
        let limits = entourage_core::run::Limits::default().with_steps(of_program);
        let builder = catalogue(&lead).small(members.model()).limits(limits);
        let agent = AgentFiles::new(builder.build().unwrap(), disk.clone()).agent("crew").await.unwrap();
        let ended = runtime_on(&store).session().start(&agent, "Do it").outcome().await;
        assert_eq!((lead.count(), members.count()), (expected, 0), "{ended:?}");
    }
}

#[tokio::test]
async fn cw18_agents_of_files_delegate_where_an_engine_finds_their_code() {
    let disk = Disk::default();
    disk.write(text("lead", "Lead.", json!({"agents": ["scout"], "tools": ["look"]})));
    disk.write(text("scout", "Scout.", json!({"model": "small", "agents": ["clerk"], "tools": ["look"]})));
    disk.write(text("clerk", "Note.", json!({"model": "tiny", "tools": ["put"]})));
    let ask =
        |of: &'static str, name: &str| ScriptedProvider::named(of).call(name, json!({"prompt": "Note it."}));
    let (large, small) =
        (ask("large", "agent_scout").text("All is done."), ask("small", "agent_clerk").text("It is there."));
    let tiny = ScriptedProvider::named("tiny").call("put", json!({})).text("Noted.");
    let builder = catalogue(&large).small(small.model()).model("tiny", tiny.model());
    let agent = AgentFiles::new(builder.build().unwrap(), disk).agent("lead").await.unwrap();
    let engine = entourage_testkit::Distant::new(entourage_runtime::Agents::new().with(agent.clone()));
    let policy = entourage_runtime::permission::Policy::allow_all();
    let runtime = entourage_testkit::runtime().policy(policy).effects(engine).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "All is done.");
}

/// A program whose policy names a tool, and a project whose agents delegate to all of the next level: a run looks
/// through all of them for the tools that there are.
#[tokio::test]
async fn attack_46_a_run_begins_however_many_ways_lead_through_its_agents() {
    let disk = Disk::default();
    let level = |n: usize| (0..25).map(move |m| format!("l{n}_{m:02}"));
    for (n, name) in (1..=8).flat_map(|n| level(n).map(move |name| (n, name))) {
        let below: Vec<_> = if n < 8 { level(n + 1).collect() } else { Vec::new() };
        disk.write(text(&name, &"x".repeat(60_000), json!({"agents": below})).with_project(true));
    }
    let provider = ScriptedProvider::new().text("One.").text("Two.");
    let agent = files(&provider, &disk).agent("l1_00").await.unwrap();
    let policy = entourage_runtime::permission::Policy::allow_all().deny("putt");
    let runtime = entourage_testkit::runtime().policy(policy.clone()).build();
    let mut run = runtime.session().start(&agent, "Go");
    let events = crate::common::drain(&mut run).await;
    assert_eq!(run.outcome().await.unwrap().text, "One.");
    let warned =
        events.iter().any(|event| matches!(&event.event, Event::WarningRaised(it) if &*it.subject == "putt"));
    assert!(warned, "the slip is found all the same");

    // The same without files: one agent by many names, level below level.
    let leaf = entourage_runners::ReactAgent::builder("a0", provider.model()).build().unwrap();
    let agent = (1..8).fold(leaf, |below, n| {
        let tool = |m: usize| {
            let tool = entourage_runners::AgentTool::new(&below).with_name(format!("ask_{n}_{m}"));
            Arc::new(tool) as Arc<dyn entourage_core::tool::Tool>
        };
        let tools: Vec<_> = (0..25).map(tool).collect();
        entourage_runners::ReactAgent::builder(format!("a{n}"), provider.model())
            .tools(tools)
            .build()
            .unwrap()
    });
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Two.");
}
