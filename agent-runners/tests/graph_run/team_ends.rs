//! The end of a team: its outcome, what its lead reads last, its reports, and the questions that its items left.

use entourage_core::{
    ErrorKind,
    agent::Agent,
    event::{Envelope, Event},
    permission::Decision,
    provider::{FinishReason, Size},
    run::{Status, StopReason},
    session::{SessionFilter, SharedStore},
    tool::Access,
};
use entourage_runners::{
    AgentTool, ReactAgent,
    graph::{NodeState, SkipAs, SupervisorAnswered, TaskGraph},
    team::{Member, Performance, Team, TeamReport},
};
use entourage_runtime::{AgentExt, Waiting, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{memory, process, runtime_on, stored},
    crew::{Act, Hand, Log, root, secs},
    prefix::{put, with},
    team::{item, plan, prompts, react, steps},
};

#[tokio::test(start_paused = true)]
async fn lo12_a_team_of_which_no_item_was_done_says_so_whatever_its_lead_did_about_the_failures() {
    for word in ["skip", "drop", "none"] {
        let step = |task: &str| json!({"do": word, "task": task});
        let answer = if word == "none" { steps(&[]) } else { steps(&[step("a"), step("b")]) };
        let lead = ScriptedProvider::new()
            .text(plan(&[item("a", "code", &[]), item("b", "code", &[])]))
            .text(answer)
            .text("Nothing was done.");
        let hand = Hand::new("ann").on("a", [Act::Fail("no key")]).on("b", [Act::Fail("no lock")]);
        let team = Team::builder("crew", lead.model()).member(Member::new(hand).replicas(2)).build().unwrap();
        let outcome = team.start("Go").outcome().await.unwrap();
        let Status::Stopped(StopReason::Tasks { failed, .. }) = &outcome.status else { panic!("{outcome}") };
        let failed: Vec<_> = failed.iter().map(|it| (&*it.task, &*it.error)).collect();
        assert_eq!(failed, [("a", "no key"), ("b", "no lock")], "{word}");
        assert_eq!(&*outcome.text, "Nothing was done.");
        let told = prompts(&lead);
        let last = told.last().unwrap();
        assert!(last.contains("<failure of=\"a\">\nno key\n") && last.contains("no lock"), "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn lo12_the_items_that_a_team_lost_are_listed_with_their_cause() {
    for (word, lost) in [
        ("skip", &[][..]),
        ("drop", &["bad", "next", "last"]),
        ("cancel", &["bad", "next", "last"]),
        ("end", &[]),
    ] {
        let lead = ScriptedProvider::new()
            .text(plan(&[
                item("good", "code", &[]),
                item("bad", "code", &["good"]),
                item("next", "code", &["bad"]),
                item("last", "code", &["next"]),
            ]))
            .text("Done.");
        let gate = Gate::new();
        let hand = Hand::new("ann").on("good", [Act::Wait(gate.clone())]);
        let team = Team::builder("crew", lead.model()).member(hand).build().unwrap();
        let run = team.start("Go");
        let control = team.control(&run);
        gate.arrived(1).await;
        match word {
            "skip" => control.skip("bad", SkipAs::Satisfied).await.unwrap(),
            "drop" => control.skip("bad", SkipAs::Blocked).await.unwrap(),
            // Nothing comes after it: nothing is lost for it.
            "end" => control.skip("last", SkipAs::Blocked).await.unwrap(),
            _ => control.cancel("bad").await.unwrap(),
        }
        gate.open();
        let outcome = run.outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Completed);
        assert_eq!(outcome.failed.iter().map(|id| &**id).collect::<Vec<_>>(), lost, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn lo13_a_drop_of_what_was_skipped_is_refused_in_words() {
    let step = |word: &str| json!({"do": word, "task": "bad"});
    let lead = ScriptedProvider::new()
        .text(plan(&[item("bad", "code", &[]), item("next", "code", &["bad"])]))
        .text(steps(&[step("drop"), step("skip"), step("drop")]))
        .text("Done.");
    let hand = Hand::new("ann").on("bad", [Act::Fail("no")]);
    let team = Team::builder("crew", lead.model()).member(hand).build().unwrap();
    let store = memory();
    let outcome = runtime_on(&store).session_with_id(root()).start(&team, "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.failed.len()), (Status::Completed, 0));
    let events = stored(&store, &root()).await;
    let answers = events.iter().filter_map(|it| it.event.record::<SupervisorAnswered>().unwrap());
    let refused: Vec<_> = answers.flat_map(|answer| answer.refused.clone()).collect();
    assert!(
        refused.len() == 1 && refused[0].contains("not possible while the node is skipped"),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rp06_a_report_tells_of_the_newest_run_of_a_team_alone() {
    let lead = ScriptedProvider::new()
        .text(plan(&[item("a", "code", &[])]))
        .text("One.")
        .text(json!({"answer": "42"}).to_string())
        .text(plan(&[item("z", "code", &[])]))
        .text("Three.");
    let team = Team::builder("crew", lead.model()).member(Hand::new("ann")).build().unwrap();
    let graph = TaskGraph::builder("other");
    graph.agent("a", &Hand::new("zoe").on("a", [Act::Fail("other work")]), "a");
    graph.agent("strange", &Hand::new("zoe"), "strange");
    let graph = graph.build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session_with_id(root());
    let learned = |report: &TeamReport| {
        let mut performance = Performance::new();
        performance.learn_from(report);
        serde_json::to_string(&performance).unwrap()
    };
    for (number, list) in ["[x] a: a (ann)", "", "", "[x] z: z (ann)", ""].iter().enumerate() {
        match number {
            2 | 4 => drop(session.start(&graph, "Go").outcome().await.unwrap()),
            _ => drop(session.start(&team, "Go").outcome().await.unwrap()),
        }
        let report = TeamReport::of(&session).await.unwrap();
        assert_eq!(report.to_string(), *list, "run {number}");
        assert_eq!(report, TeamReport::from_events(&stored(&store, &root()).await).unwrap());
        assert_eq!((report.todos().is_empty(), learned(&report) == "{}"), (list.is_empty(), list.is_empty()));
    }
}

#[test]
fn lo12_steps_that_were_taken_before_a_crash_are_not_refused_after_it() {
    let build = |log: &Log| {
        let add = |id: &str| json!({"do": "add", "task": {"id": id, "task": id, "agent": "bob"}});
        let lead = ScriptedProvider::by_history()
            .text(plan(&[
                item("good", "edit", &[]),
                item("bad", "edit", &[]),
                item("next", "edit", &["bad"]),
            ]))
            .text(steps(&[
                json!({"do": "skip", "task": "bad"}),
                json!({"do": "reassign", "task": "next", "to": "bob"}),
                add("x"),
                add("y"),
            ]))
            .text("Done.");
        let ann = Member::new(Hand::logging("ann", log).on("bad", [Act::Fail("no")]));
        let bob = Member::new(Hand::logging("bob", log)).size(Size::S);
        Team::builder("crew", lead.model()).member(ann).member(bob).build().unwrap()
    };
    let (store, whole) = process(async {
        let store = memory();
        let session = runtime_on(&store).session_with_id(root());
        session.start(&build(&Log::default()), "Go").outcome().await.unwrap();
        let events = stored(&store, &root()).await;
        (store, events)
    });
    let place = |kind: &str| whole.iter().position(|event| event.event.kind() == kind).unwrap();
    let asked = place("record:graph.supervisor_asked") + 1;
    for known in asked..=place("record:graph.supervisor_answered") {
        let log = Log::default();
        let (refused, report) = process(async {
            let new = until(&store, &whole[..known]).await;
            let session = runtime_on(&new).session_with_id(root());
            session.resume(&build(&log)).outcome().await.unwrap();
            let events = stored(&new, &root()).await;
            let answers = events.iter().filter_map(|it| it.event.record::<SupervisorAnswered>().unwrap());
            let refused: Vec<_> = answers.flat_map(|answer| answer.refused.clone()).collect();
            (refused, TeamReport::from_events(&events).unwrap())
        });
        assert_eq!(refused, Vec::<String>::new(), "from {known} events on");
        let state = |id: &str| report.graph.node(id).unwrap().state();
        assert_eq!(state("bad"), NodeState::Skipped, "from {known} events on");
        assert!(["good", "next", "x", "y"].iter().all(|id| state(id) == NodeState::Completed), "{report}");
        assert!(
            ["next", "x", "y"].iter().all(|id| log.count(&format!("{id} starts")) == 1),
            "{:?}",
            log.all()
        );
    }
}

/// Creates a store in which the root has these events alone, and the lead has given its advice.
async fn until(store: &SharedStore, events: &[Envelope]) -> SharedStore {
    let new = with(events).await;
    let record = |event: &Envelope| match &event.event {
        Event::Recorded(record) => record.child().map(|(child, _)| child.clone()),
        _ => None,
    };
    let children: Vec<_> = events.iter().filter_map(record).collect();
    for info in store.query(&SessionFilter::tree(root())).await.unwrap() {
        let id = info.record.id.clone();
        let mut events = if id == root() { continue } else { stored(store, &id).await };
        if &*info.record.role == "lead" {
            let ends = events.iter().enumerate().filter(|(_, event)| event.event.kind() == "run_finished");
            let second = ends.map(|(place, _)| place + 1).nth(1).unwrap();
            events.truncate(second);
        } else if !children.contains(&id) {
            continue;
        }
        put(&new, info.record.clone(), &events).await;
    }
    new
}

#[tokio::test(start_paused = true)]
async fn ap05_the_question_of_an_item_is_over_with_its_attempt() {
    for op in ["skip", "reassign", "cancel"] {
        let put = FakeTool::new("put").access(Access::WRITE).returning("written");
        let gate = Gate::new();
        let lead = ScriptedProvider::by_history()
            .text(plan(&[
                item("a", "code", &[]),
                json!({"id": "hold", "task": "hold", "type": "code", "member": "bob"}),
            ]))
            .text("Done.");
        let ann = ScriptedProvider::by_history().call("put", json!({})).text("put it");
        let ann = ReactAgent::builder("ann", ann.model()).tool(put.clone()).build().unwrap();
        let bob = Member::new(Hand::new("bob").on("hold", [Act::Wait(gate.clone())])).replicas(2);
        let team = Team::builder("crew", lead.model()).member(Member::new(ann).size(Size::L)).member(bob);
        let team = team.build().unwrap();
        let runtime = testkit::runtime().shared_store(memory()).build();
        let run = runtime.session_with_id(root()).start(&team, "Go");
        let control = team.control(&run);
        gate.arrived(1).await;
        let before = loop {
            match runtime.pending().await.unwrap() {
                none if none.is_empty() => tokio::task::yield_now().await,
                found => break found,
            }
        };
        let Waiting::Approval(request) = &before[0].waits_for else { panic!("{before:?}") };
        match op {
            "skip" => control.skip("a", SkipAs::Satisfied).await.unwrap(),
            "reassign" => control.reassign("a", "bob").await.unwrap(),
            _ => control.cancel("a").await.unwrap(),
        }
        // The attempt unwinds.
        tokio::time::sleep(secs(1)).await;
        assert!(runtime.pending().await.unwrap().is_empty(), "{op}");
        let error = runtime.decide(&request.id, Decision::Allow).await.unwrap_err();
        assert!(error.message().contains("the run that asked this is over"), "{op}: {error}");
        gate.open();
        let outcome = run.outcome().await.unwrap();
        assert_eq!((outcome.status, put.started()), (Status::Completed, 0), "{op}");
        let report = TeamReport::of(&runtime.session_with_id(root())).await.unwrap();
        let expected = match op {
            "skip" => NodeState::Skipped,
            "reassign" => NodeState::Completed,
            _ => NodeState::Cancelled,
        };
        assert_eq!(report.graph.node("a").unwrap().state(), expected, "{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_team_that_lost_a_member_is_told_which_when_it_resumes() {
    let (store, gate) = (memory(), Gate::new());
    let team = |member: &str| {
        let lead = ScriptedProvider::by_history().text(plan(&[item("a", "code", &[])])).text("Done.");
        let hand = Hand::new(member).on("a", [Act::Wait(gate.clone())]);
        Team::builder("crew", lead.model()).member(hand).build().unwrap()
    };
    let run = runtime_on(&store).session_with_id(root()).start(&team("ann"), "Go");
    gate.arrived(1).await;
    drop(run);
    let events = stored(&store, &root()).await;
    let store = with(&events).await;
    let error = runtime_on(&store).session_with_id(root()).resume(&team("bob")).outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
    assert!(error.message().contains("the member `ann`"), "{error}");
}

/// Returns what a live list shows at each change, for a lead of `boss` that calls its tools so.
async fn lists(boss: ScriptedProvider, teams: &[Team]) -> Vec<String> {
    let tools: Vec<_> =
        teams.iter().map(|team| AgentTool::new(team.clone()).with_name(team.name())).collect();
    let builder = ReactAgent::builder("boss", boss.model());
    let boss = tools.into_iter().fold(builder, |builder, tool| builder.tool(tool)).build().unwrap();
    let mut run = testkit::runtime().policy(Policy::allow_all()).build().session().start(&boss, "Go");
    let (mut list, mut lists) = (TeamReport::default(), Vec::new());
    while let Some(event) = run.next().await {
        if list.update(&event).unwrap() {
            lists.push(list.to_string());
        }
    }
    assert!(run.outcome().await.unwrap().is_completed());
    lists.dedup();
    lists
}

fn crew(name: &str, plans: &[&str], member: Member) -> (Team, ScriptedProvider) {
    let lead = plans
        .iter()
        .fold(ScriptedProvider::new(), |lead, id| lead.text(plan(&[item(id, "code", &[])])).text("Done."));
    let team = Team::builder(name, lead.model()).member(member).build().unwrap();
    (team, lead)
}

#[tokio::test(start_paused = true)]
async fn a_live_list_follows_a_team_that_is_a_tool_from_call_to_call() {
    let call = |team: &'static str| (team, json!({"prompt": "Work."}));
    let (team, lead) = crew("crew", &["one", "two"], Member::new(Hand::new("ann")));
    let boss = ScriptedProvider::new().calls([call("crew")]).calls([call("crew")]).text("Done.");
    let seen = lists(boss, &[team]).await;
    assert_eq!(seen.first().unwrap(), "[ ] one: one");
    assert_eq!(seen.last().unwrap(), "[x] two: two (ann)", "{seen:?}");
    let turn = seen.iter().position(|it| it.contains("two")).unwrap();
    assert_eq!(seen[turn - 1], "[x] one: one (ann)", "{seen:?}");
    drop(lead);

    // A member that is a team, and one that works beside it, are no part of the list.
    let (below, lead_below) = crew("below", &["inner"], Member::new(Hand::new("eve")));
    let (outer, lead_outer) = crew("outer", &["top"], Member::new(below));
    let late = Hand::new("ann").on("late", [Act::Sleep(secs(60))]);
    let (beside, lead_beside) = crew("beside", &["late"], Member::new(late));
    let boss = ScriptedProvider::new().calls([call("outer"), call("beside")]).text("Done.");
    let seen = lists(boss, &[outer, beside]).await;
    let one = if seen[0].contains("late") { "late" } else { "top" };
    assert!(seen.iter().all(|it| it.contains(one) && !it.contains('\n')), "{seen:?}");
    assert!(seen.last().unwrap().starts_with("[x]"), "{seen:?}");
    drop((lead_below, lead_outer, lead_beside));
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_for_its_place_without_a_time_limit() {
    let ids: Vec<_> = (0..8).map(|number| format!("i{number}")).collect();
    for (replicas, at_once) in [(1, 10), (8, 1)] {
        // A machine that takes one call at a time, as long as a model may be silent.
        let slow = |model: ScriptedProvider, _: &String| {
            model.step(Script::new().delay(secs(290)).text("Done.").finish(FinishReason::Stop))
        };
        let model = ids.iter().fold(ScriptedProvider::new(), slow);
        let items: Vec<_> = ids.iter().map(|id| item(id, "summarize", &[])).collect();
        let lead = ScriptedProvider::new().text(plan(&items)).text("Done.");
        let scout = Member::new(react("scout", &model)).size(Size::S).replicas(replicas);
        let team = Team::builder("crew", lead.model()).member(scout).at_once(at_once).build().unwrap();
        let began = tokio::time::Instant::now();
        let outcome = team.start("Go").outcome().await.unwrap();
        assert_eq!((outcome.failed.len(), began.elapsed().as_secs()), (0, 8 * 290), "{outcome}");
    }
}
