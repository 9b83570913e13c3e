//! An agent below an agent below an agent, each with calls within its scope and beyond it.

use std::{
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use entourage::{
    prelude::*,
    telemetry::Telemetry,
    testkit::{self, ScriptedProvider},
};
use serde_json::{Value, json};

use super::label;

#[tool(access = "read")]
/// Reads a file.
async fn view(#[arg(read)] path: String) -> String {
    format!("the text of {path}")
}

#[tool(access = "write")]
/// Writes a file.
async fn save(#[arg(write)] path: String) -> String {
    format!("{path} is written")
}

/// Allows what it is asked about.
#[derive(Debug)]
struct Ada;

#[async_trait]
impl Approver for Ada {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Allow)
    }
}

/// Name and scope of each agent that ran, the outermost first.
type Scopes = Arc<Mutex<Vec<(String, Scope)>>>;

pub(super) async fn draw() -> Result<String> {
    let on = |tool: &'static str, path: &str| (tool, json!({ "path": path }));
    let ask = |prompt: &str| ("agent", json!({ "prompt": prompt }));
    let leads = ScriptedProvider::new()
        .calls([on("view", "docs/plan.md"), on("save", "docs/plan.md")])
        .calls([ask("Mend the lexer.")])
        .calls([on("save", "src/secret.rs")]);
    let edits = ScriptedProvider::new()
        .calls([on("view", "docs/plan.md"), on("save", "src/lexer.rs")])
        .calls([ask("Read the lexer.")])
        .text("It is mended.");
    let reads = ScriptedProvider::new()
        .calls([on("view", "src/lexer.rs"), on("view", "docs/plan.md"), on("save", "src/lexer.rs")])
        .text("It is right.");

    let scopes = Scopes::default();
    let agent = |name: &'static str, provider: &ScriptedProvider| {
        let scopes = Arc::clone(&scopes);
        let seen = move |name: &str, scope: &Scope| {
            let mut scopes = scopes.lock().unwrap_or_else(PoisonError::into_inner);
            if scopes.iter().all(|(known, _)| known != name) {
                scopes.push((name.to_owned(), scope.clone()));
            }
        };
        ReactAgent::builder(name, provider.model()).tools((view, save)).instructions_with(move |step| {
            seen(name, step.run.scope());
            Ok("")
        })
    };
    let reader = agent("reader", &reads).build()?; // by itself it may do anything
    let editor = agent("editor", &edits).tool(AgentTool::read_only(reader)).build()?;
    let below = AgentTool::new(editor).with_scope(Scope::all().with_roots(["src"]));
    let lead = agent("lead", &leads).tool(below).build()?;

    let policy = Policy::new().allow("save:src/*").deny("save:src/secret*");
    let runtime = testkit::runtime().policy(policy).approver(Ada).build();
    let session = runtime.session();
    session.start(&lead, "Mend it").outcome().await?;
    let scopes = scopes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    drawn(&runtime, session.id(), &scopes).await
}

async fn drawn(runtime: &Runtime, root: &SessionId, scopes: &[(String, Scope)]) -> Result<String> {
    let telemetry = Telemetry::new(Arc::clone(runtime.store()));
    let sessions = runtime.sessions(&SessionFilter::tree(root.clone())).await?;
    let mut text = "flowchart TD\n".to_owned();
    for (place, (name, scope)) in scopes.iter().enumerate() {
        let _ = writeln!(text, "    subgraph {name}[\"{name}: {}\"]", held(scope));
        let session = sessions.iter().find(|session| *session.head.agent == **name);
        let Some(session) = session else { continue };
        let trace = telemetry.trace(session.record.id.as_str()).await?;
        let calls = trace.tool_calls.iter().filter(|call| &*call.tool != "agent");
        for (number, call) in calls.enumerate() {
            let arguments = call.arguments.as_ref().map(|it| it.to_value()).unwrap_or_default();
            let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
            let (fate, class) = match (&call.allowed_by, &call.result) {
                (Some(by), _) => (format!("allowed ({by})"), "allowed"),
                (None, Some(result)) => (result.to_text(), "refused"),
                (None, None) => ("not run".to_owned(), "refused"),
            };
            let said = label(&format!("{} {path}\n{fate}", call.tool));
            let _ = writeln!(text, "        {name}{number}[\"{said}\"]:::{class}");
        }
        text.push_str("    end\n");
        if let Some((below, _)) = scopes.get(place + 1) {
            let _ = writeln!(text, "    {name} -- agent --> {below}");
        }
    }
    text.push_str("    classDef allowed fill:#e3f4e3,stroke:#3a7d3a,color:#212121\n");
    text.push_str("    classDef refused fill:#fbe4e4,stroke:#b23b3b,color:#212121\n");
    Ok(text)
}

/// The scope in words.
fn held(scope: &Scope) -> String {
    let access = if scope.access() == Scope::all().access() {
        "everything".to_owned()
    } else {
        scope.access().to_string()
    };
    let roots = scope.roots().map(|roots| roots.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    roots.map_or_else(|| access.clone(), |roots| format!("{access}, below {roots}"))
}
