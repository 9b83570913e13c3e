//! Permissions of a tree of agents, whatever their scopes, the rules, the layers and the answers: what ran was admitted
//! by each agent above, by the rules, and by whoever was asked.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    message::Arguments,
    permission::{ApprovalRequest, Approver, Decision, RuleEffect, Scope},
    run::RunContext,
    tool::{
        Access, Footprint, LayerVerdict, Tool, ToolContext, ToolError, ToolInput, ToolLayer, ToolOutput,
        ToolSpec,
    },
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::permission::{Policy, Ruling};
use entourage_testkit::{self as testkit, ScriptedProvider};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::grants::Kept;

const PATHS: [&str; 4] = ["a", "b", "s/c", "s/d"];
const TOOLS: [(&str, Access); 2] = [("read", Access::READ), ("write", Access::WRITE)];

/// A call that ran: its session, its agent's depth, its tool and its path.
type Ran = (SessionId, usize, &'static str, String);

/// A tool that notes what it ran.
struct Noting(ToolSpec, &'static str, Arc<Mutex<Vec<Ran>>>);

impl Noting {
    fn new((name, access): (&'static str, Access), ran: &Arc<Mutex<Vec<Ran>>>) -> Self {
        let schema =
            json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let spec = ToolSpec::new(name, "Notes.", schema).with_access(access).naming_subjects();
        Self(spec, name, Arc::clone(ran))
    }
}

fn footprint(access: Access, path: &str) -> Footprint {
    if access == Access::READ {
        Footprint::new(access).reading(path)
    } else {
        Footprint::new(access).writing(path)
    }
}

#[async_trait]
impl Tool for Noting {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        footprint(self.0.access(), arguments["path"].as_str().unwrap_or("?"))
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let depth = cx.run().agent().matches('/').count();
        let path = input.arguments["path"].as_str().unwrap().to_owned();
        self.2.lock().unwrap().push((cx.session().clone(), depth, self.1, path));
        Ok(ToolOutput::text("done"))
    }
}

/// A layer that puts one path in the place of another.
#[derive(Debug, Clone, Copy)]
struct Moves([usize; 4]);

impl Moves {
    fn moved(self, path: &str) -> &'static str {
        let place = PATHS.iter().position(|it| *it == path).unwrap();
        PATHS[self.0[place]]
    }
}

#[async_trait]
impl ToolLayer for Moves {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        if let Some(path) = arguments["path"].as_str() {
            let moved = self.moved(path);
            arguments["path"] = json!(moved);
        }
        Ok(LayerVerdict::Pass)
    }
}

#[derive(Debug, Clone, Copy)]
enum Says {
    Yes,
    Session,
    Always,
    Edit(usize),
    No,
    Question,
    Fails,
}

/// A decision that was given: the session, the tool, the path that was asked about, and what was said.
type Said = (SessionId, String, String, Says);

/// An approver that answers by tool and path, and notes it.
#[derive(Debug)]
struct Scripted([[Says; 4]; 2], Arc<Mutex<Vec<Said>>>);

#[async_trait]
impl Approver for Scripted {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        let arguments: Value = serde_json::from_str(request.arguments.as_str()).unwrap();
        let path = arguments["path"].as_str().unwrap_or("a").to_owned();
        let tool = TOOLS.iter().position(|(name, _)| *name == request.tool);
        let place = PATHS.iter().position(|it| *it == path).unwrap();
        let says = tool.map_or(Says::Yes, |tool| self.0[tool][place]);
        self.1.lock().unwrap().push((request.session.clone(), request.tool.clone(), path, says));
        Ok(match says {
            Says::Yes => Decision::Allow,
            Says::Session => Decision::AllowSession,
            Says::Always => Decision::AllowAlways,
            Says::Edit(place) => {
                let edited = json!({ "path": PATHS[place] }).to_string();
                Decision::Edit(Arguments::parse(edited).unwrap())
            }
            Says::No => Decision::refuse("no"),
            Says::Question => Decision::Ask("Why?".to_owned()),
            Says::Fails => return Err(Error::new(ErrorKind::Internal, "the desk is closed")),
        })
    }
}

/// One agent of the tree: its scope, and the calls of its steps by tool and path.
#[derive(Debug, Clone)]
struct Member {
    access: Access,
    only: Option<Vec<&'static str>>,
    roots: Option<Vec<&'static str>>,
    steps: Vec<Vec<(usize, usize)>>,
}

impl Member {
    fn scope(&self) -> Scope {
        let scope = Scope::all().with_access(self.access);
        let scope = self.only.iter().fold(scope, |scope, only| scope.with_tools(only.iter().copied()));
        self.roots.iter().fold(scope, |scope, roots| scope.with_roots(roots))
    }
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        3 => Just(Says::Yes),
        2 => Just(Says::Session),
        1 => Just(Says::Always),
        3 => (0..4_usize).prop_map(Says::Edit),
        1 => Just(Says::No),
        1 => Just(Says::Question),
        1 => Just(Says::Fails),
    ]
}

fn member() -> impl Strategy<Value = Member> {
    let access = prop_oneof![
        4 => Just(Access::ALL),
        1 => Just(Access::READ | Access::DELEGATE),
        1 => Just(Access::WRITE | Access::DELEGATE),
        1 => Just(Access::READ),
    ];
    let only =
        proptest::option::weighted(0.3, proptest::sample::subsequence(vec!["read", "write", "agent"], 0..=3));
    let steps = proptest::collection::vec(proptest::collection::vec((0..2_usize, 0..4_usize), 1..4), 1..3);
    let roots = proptest::sample::subsequence(vec![".", "a", "s", "s/c"], 0..=2);
    let roots = proptest::option::weighted(0.3, roots);
    (access, only, roots, steps).prop_map(|(access, only, roots, steps)| Member {
        access,
        only,
        roots,
        steps,
    })
}

fn effect() -> impl Strategy<Value = RuleEffect> {
    prop_oneof![3 => Just(RuleEffect::Ask), 1 => Just(RuleEffect::Allow), 1 => Just(RuleEffect::Deny)]
}

fn policy(rules: &[[Option<RuleEffect>; 4]; 2]) -> Policy {
    let mut policy = Policy::new();
    for ((tool, _), rules) in TOOLS.iter().zip(rules) {
        for (path, rule) in PATHS.iter().zip(rules) {
            let pattern = format!("{tool}:{path}");
            policy = match rule {
                Some(RuleEffect::Allow) => policy.allow(&pattern),
                Some(RuleEffect::Deny) => policy.deny(&pattern),
                Some(_) => policy.ask(&pattern),
                None => policy,
            };
        }
    }
    policy
}

proptest! {
    #[test]
    fn cp06_what_runs_was_admitted_by_each_agent_above_and_by_whoever_was_asked(
        members in proptest::collection::vec(member(), 1..4),
        rules in proptest::array::uniform2(proptest::array::uniform4(proptest::option::weighted(0.6, effect()))),
        project in proptest::array::uniform2(proptest::array::uniform4(proptest::option::weighted(0.2, effect()))),
        answers in proptest::array::uniform2(proptest::array::uniform4(says())),
        moves in prop_oneof![
            2 => Just([0, 1, 2, 3]),
            1 => proptest::array::uniform4(0..4_usize),
        ],
    ) {
        let (ran, said) = (Arc::<Mutex<Vec<Ran>>>::default(), Arc::<Mutex<Vec<Said>>>::default());
        let own = policy(&rules).allow("agent").otherwise(RuleEffect::Ask);
        let (layer, rules) = (Moves(moves), own.restricted_by(policy(&project)));
        let mut below: Option<AgentTool> = None;
        for (depth, member) in members.iter().enumerate().rev() {
            let mut provider = ScriptedProvider::by_history();
            for step in &member.steps {
                let calls = step.iter().map(|(tool, path)| (TOOLS[*tool].0, json!({ "path": PATHS[*path] })));
                provider = provider.calls(calls);
            }
            if below.is_some() {
                provider = provider.call("agent", json!({ "prompt": "Go on." }));
            }
            let mut agent = ReactAgent::builder(format!("a{depth}"), provider.text("done").model());
            for tool in TOOLS {
                agent = agent.tool(Noting::new(tool, &ran));
            }
            if let Some(below) = below.take() {
                agent = agent.tool(below);
            }
            below = Some(AgentTool::new(&agent.build().unwrap()).with_scope(member.scope()));
        }
        // The topmost agent is reached through one without a limit, so that its scope is one like the others.
        let top = ScriptedProvider::by_history().call("agent", json!({ "prompt": "Go." })).text("done");
        let top = ReactAgent::builder("top", top.model()).tool(below.unwrap()).build().unwrap();
        let runtime = testkit::runtime()
            .policy(rules.clone())
            .approver(Scripted(answers, Arc::clone(&said)))
            .tool_layer(layer)
            .grants(Kept::default())
            .build();
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let ended = tokio.block_on(async { runtime.session().start(&top, "Go.").outcome().await });
        prop_assert!(ended.is_ok(), "{ended:?}");

        let said = said.lock().unwrap().clone();
        for (session, depth, tool, path) in ran.lock().unwrap().iter() {
            let access = TOOLS.iter().find(|(name, _)| name == tool).unwrap().1;
            let spec = ToolSpec::new(*tool, "", json!({"type": "object"})).with_access(access).naming_subjects();
            for above in members.iter().take(*depth) {
                let admitted = above.scope().admits(&spec, &footprint(access, path));
                prop_assert!(admitted.is_ok(), "{tool} {path} at {depth}: {admitted:?}");
            }
            let ruling = rules.judge(&spec, &footprint(access, path));
            prop_assert!(!matches!(ruling, Ruling::Deny(_)), "{tool} {path} at {depth}: {ruling:?}");
            // A path that the layer would move never reaches a tool.
            let from = PATHS.iter().any(|from| layer.moved(from) == path);
            prop_assert!(from, "{tool} {path} at {depth}");
            let heard = said.iter().any(|(of, asked, about, says)| {
                let covers = match says {
                    Says::Yes | Says::Session | Says::Always => about == path,
                    Says::Edit(place) => PATHS[*place] == path && layer.moved(path) == path,
                    Says::No | Says::Question | Says::Fails => false,
                };
                (of == session || matches!(says, Says::Always)) && asked == tool && covers
            });
            prop_assert!(matches!(ruling, Ruling::Allow(_)) || heard, "{tool} {path} at {depth} was not allowed: {said:?}");
        }
    }
}
