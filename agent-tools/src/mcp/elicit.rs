//! Questions of a server to the user, through the approver.

use std::{collections::BTreeMap, panic::AssertUnwindSafe};

use entourage_core::{
    Digest, RunId, SessionId, bound,
    message::{Arguments, ToolCall},
    permission::{ApprovalId, ApprovalRequest, Approver, Decision},
    tool::{Access, Footprint, ToolContext},
};
use futures_util::FutureExt;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema};
use serde_json::{Map, Value, json};

use super::content;

/// Most fields of a form.
const FIELDS: usize = 100;

/// The run whose call the server works on.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    session: SessionId,
    run: RunId,
    agent: String,
    call: String,
}

impl Asker {
    pub(super) fn of(cx: &ToolContext<'_>) -> Self {
        Self {
            session: cx.session().clone(),
            run: cx.run().run(),
            agent: cx.run().agent().to_owned(),
            call: cx.call_id().to_owned(),
        }
    }

    pub(super) fn is_of_run(&self, other: &Self) -> bool {
        (&self.session, self.run) == (&other.session, other.run)
    }
}

/// Asks the approver what a server wants to know of the user.
///
/// The question's tool is `mcp_<server>`, its arguments are the answer as it would be given, and its preview is the
/// server's text with the fields. To allow it gives that answer, to edit it another one. Anything else declines; an
/// answer that is put off cancels.
pub(super) async fn elicit(
    server: &str,
    request: ElicitRequestParams,
    asker: &Asker,
    approver: &dyn Approver,
) -> ElicitResult {
    let (preview, answer, schema) = match request {
        ElicitRequestParams::FormElicitationParams { requested_schema, .. }
            if requested_schema.properties.len() > FIELDS =>
        {
            return ElicitResult::new(ElicitationAction::Decline);
        }
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            (form(&message, &requested_schema), proposal(&requested_schema), Some(requested_schema))
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            // Nothing here opens it, but who is asked may (ATTACKS 41).
            if !(url.starts_with("https://") || url.starts_with("http://")) || url.contains(char::is_control)
            {
                return ElicitResult::new(ElicitationAction::Decline);
            }
            (format!("{message}\nTo answer, open {url}"), Map::new(), None)
        }
        _ => return ElicitResult::new(ElicitationAction::Decline),
    };
    let preview = bound::shortened(&content::plain(&preview), bound::TEXT).into_owned();
    let Ok(arguments) = Arguments::parse(Value::Object(answer.clone()).to_string()) else {
        return ElicitResult::new(ElicitationAction::Decline);
    };
    let tool = format!("mcp_{server}");
    let digest = Digest::of([
        tool.as_bytes(),
        asker.call.as_bytes(),
        preview.as_bytes(),
        arguments.as_str().as_bytes(),
    ]);
    let id = ApprovalId::new(&asker.session, Some(asker.run), 0, 0, digest);
    let call = ToolCall::new(asker.call.as_str(), tool.as_str(), arguments);
    let footprint = Footprint::new(Access::ASK);
    let asks = (&asker.session, asker.run, asker.agent.as_str());
    let rule = format!("the MCP server `{server}` asks");
    let question =
        ApprovalRequest::new(id, asks, &call, footprint, &rule, digest).with_preview(Some(preview));
    // A question that nobody answers would keep the server, and the call that it works on.
    let decided = AssertUnwindSafe(async { approver.decide(&question).await }).catch_unwind().await;
    let Ok(decided) = decided else { return ElicitResult::new(ElicitationAction::Decline) };
    let given = match decided {
        Ok(Decision::Allow | Decision::AllowSession | Decision::AllowAlways) => answer,
        Ok(Decision::Edit(edited)) => match serde_json::from_str(edited.as_str()) {
            Ok(Value::Object(edited)) => edited,
            _ => return ElicitResult::new(ElicitationAction::Decline),
        },
        Ok(decision) if decision.is_open() => return ElicitResult::new(ElicitationAction::Cancel),
        _ => return ElicitResult::new(ElicitationAction::Decline),
    };
    let Some(schema) = schema else { return ElicitResult::new(ElicitationAction::Accept) };
    // An answer without what is required is none.
    let required = schema.required.unwrap_or_default();
    let missing = required.iter().any(|name| given.get(name).is_none_or(Value::is_null));
    let unknown = given.keys().any(|name| !schema.properties.contains_key(name));
    match missing || unknown {
        true => ElicitResult::new(ElicitationAction::Decline),
        false => ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(given)),
    }
}

fn fields(schema: &ElicitationSchema) -> BTreeMap<&str, Value> {
    schema.properties.iter().map(|(name, field)| (name.as_str(), json!(field))).collect()
}

/// The server's text, and a line for each field.
fn form(message: &str, schema: &ElicitationSchema) -> String {
    let required = schema.required.as_deref().unwrap_or_default();
    let lines = fields(schema).into_iter().map(|(name, field)| {
        let text = |key: &str| field.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let needed = if required.iter().any(|it| it == name) { ", required" } else { "" };
        let choices = field.get("enum").map(|choices| format!(", one of {choices}")).unwrap_or_default();
        let about = [text("title"), text("description")].into_iter().filter(|it| !it.is_empty());
        let about = about.collect::<Vec<_>>().join(": ");
        format!("\n- {name} ({}{needed}{choices}) {about}", text("type"))
    });
    std::iter::once(message.to_owned()).chain(lines).collect()
}

/// The answer that consists of the fields' defaults. A field that is required and has none is null.
fn proposal(schema: &ElicitationSchema) -> Map<String, Value> {
    let required = schema.required.as_deref().unwrap_or_default();
    let given = fields(schema).into_iter().filter_map(|(name, field)| {
        let default = field.get("default").cloned();
        let value = default.or_else(|| required.iter().any(|it| it == name).then_some(Value::Null))?;
        Some((name.to_owned(), value))
    });
    given.collect()
}
