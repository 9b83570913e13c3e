//! Stand-ins for models whose words are a text, such as a file beside a program.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    context::estimate_tokens,
    message::{History, Role},
    provider::{CallContext, DeltaStream, FinishReason, Model, Provider, Request},
};
use serde::Deserialize;
use serde_json::Value;

use crate::Script;

/// Characters of a prompt or of a result that a reply can quote.
const QUOTED: usize = 4_000;

/// Stand-ins for models whose words are a text, such as a file beside a program: a role for each model, with scenes
/// for its prompts.
///
/// The scene is that of the newest prompt which has one: the first whose `when` is a part of the prompt. Where no
/// prompt has one, it is the first scene without `when`. The place in it is the number of replies that the
/// conversation has since that prompt. So the same step gets the same reply again: a run that was killed goes on as
/// with a model, and any number of sessions may share a role.
///
/// A reply has a `text`, `calls` of tools, each a name with arguments, or the reason for which it will `fail`; and
/// `delay_ms`, a time before it on tokio's clock. In its texts, also those within arguments, `{prompt}` stands for the
/// prompt of the scene, `{result}` for the result of the newest tool call, `{results}` for all results of the
/// conversation, `{quoted}` for the results of others that the prompt holds, each cut at 4,000 characters, and
/// `{result:3}` for its first three lines that are not blank. Tokens are estimates of four bytes, those of calls left
/// out.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::{FakeTool, Playbook};
///
/// let playbook = Playbook::parse(r#"{
///     "scout": [
///         { "when": "How many", "replies": [
///             { "calls": [["count", { "path": "Cargo.toml" }]] },
///             { "text": "There are {result}." }
///         ] },
///         { "replies": [{ "text": "I only count." }] }
///     ]
/// }"#)?;
/// let count = FakeTool::new("count").returning("12 lines");
/// let agent = ReactAgent::builder("scout", playbook.model("scout")?).tool(count).build()?;
/// assert_eq!(agent.ask("How many lines has it?").await?, "There are 12 lines.");
/// assert_eq!(agent.ask("Hello!").await?, "I only count.");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct Playbook(BTreeMap<String, Arc<[Scene]>>);

/// The replies to a prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scene {
    #[serde(default)]
    when: String,
    replies: Vec<Reply>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<(String, Value)>,
    fail: Option<String>,
    #[serde(default)]
    delay_ms: u64,
}

impl Playbook {
    /// Reads a playbook: JSON, an object of roles.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a text that is none, with its line.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = |error: serde_json::Error| {
            Error::new(ErrorKind::InvalidInput, format!("the playbook cannot be read: {error}"))
        };
        serde_json::from_str::<BTreeMap<String, Vec<Scene>>>(text)
            .map(|roles| Self(roles.into_iter().map(|(role, scenes)| (role, scenes.into())).collect()))
            .map_err(invalid)
    }

    /// Returns the model of a role. Its service is called `stand-in`, and the model as its role.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a role that the playbook does not have, with those that it has.
    pub fn model(&self, role: &str) -> Result<Model> {
        let scenes = self.0.get(role).ok_or_else(|| {
            let roles: Vec<_> = self.0.keys().map(String::as_str).collect();
            let text = format!("the playbook has no role `{role}`; it has {}", roles.join(", "));
            Error::new(ErrorKind::NotFound, text)
        })?;
        Ok(Model::new(Arc::new(Actor { role: role.into(), scenes: Arc::clone(scenes) }), role))
    }
}

/// The player of one role.
struct Actor {
    role: Box<str>,
    scenes: Arc<[Scene]>,
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Playbook({})", self.role)
    }
}

/// The part of a conversation that a reply depends on.
struct Cue<'a> {
    /// The scene, if there is one for a prompt of the conversation.
    scene: Option<&'a Scene>,
    /// The prompt of the scene; without one, the newest.
    prompt: String,
    results: Vec<String>,
    /// Replies since that prompt.
    place: usize,
}

impl<'a> Cue<'a> {
    fn of(messages: &History, scenes: &'a [Scene]) -> Self {
        let mut cue = Self { scene: None, prompt: String::new(), results: Vec::new(), place: 0 };
        for message in messages {
            match message.role() {
                Role::User if !message.text().is_empty() => cue.hear(message.text(), scenes),
                Role::Assistant => cue.place += 1,
                _ => cue.results.extend(message.tool_results().map(|result| result.to_text())),
            }
        }
        cue.scene = cue.scene.or_else(|| scenes.iter().find(|scene| scene.when.is_empty()));
        cue
    }

    /// Takes in a prompt. One without a scene, such as a reminder, ends no scene.
    fn hear(&mut self, prompt: String, scenes: &'a [Scene]) {
        let scene = scenes.iter().find(|scene| !scene.when.is_empty() && prompt.contains(&scene.when));
        if scene.is_some() || self.scene.is_none() {
            (self.scene, self.prompt, self.place) = (scene, prompt, 0);
        }
    }

    /// Returns the text with what stands in place of its braces.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            filled.push_str(before);
            let named = behind.split_once('}').and_then(|(name, after)| Some((self.named(name)?, after)));
            rest = match named {
                Some((value, after)) => {
                    filled.push_str(&value);
                    after
                }
                None => {
                    filled.push('{');
                    behind
                }
            };
        }
        filled + rest
    }

    fn named(&self, name: &str) -> Option<String> {
        let (name, lines) = match name.split_once(':') {
            Some((name, lines)) => (name, Some(lines.parse().ok()?)),
            None => (name, None),
        };
        let all = match name {
            "prompt" => self.prompt.clone(),
            "result" => self.results.last().cloned().unwrap_or_default(),
            "results" => self.results.join("\n\n"),
            "quoted" => quoted(&self.prompt),
            _ => return None,
        };
        let text = match lines {
            Some(lines) => {
                let kept = all.lines().filter(|line| !line.trim().is_empty()).take(lines);
                kept.collect::<Vec<_>>().join("\n")
            }
            None => all,
        };
        Some(text.chars().take(QUOTED).collect())
    }

    fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_value(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (key.clone(), self.fill_value(value))).collect()
            }
            other => other.clone(),
        }
    }
}

/// Returns the lines of a prompt that lie in blocks of results, as graphs, plans and teams give them to their agents.
fn quoted(prompt: &str) -> String {
    let mut is_inside = false;
    let inside = prompt.lines().filter(|line| {
        let was_inside = is_inside;
        is_inside = !line.starts_with("</result") && (is_inside || line.starts_with("<result"));
        was_inside && is_inside
    });
    inside.collect::<Vec<_>>().join("\n")
}

impl Actor {
    fn reply<'a>(&self, cue: &Cue<'a>) -> Result<&'a Reply> {
        cue.scene.and_then(|scene| scene.replies.get(cue.place)).ok_or_else(|| {
            let prompt: String = cue.prompt.chars().take(200).collect();
            let text = match cue.scene {
                Some(_) => format!("has no reply {} to the prompt", cue.place + 1),
                None => "has no scene for the prompt".to_owned(),
            };
            Error::new(
                ErrorKind::Internal,
                format!("the role `{}` of the playbook {text}: {prompt}", self.role),
            )
        })
    }
}

#[async_trait]
impl Provider for Actor {
    fn name(&self) -> &str {
        "stand-in"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let cue = Cue::of(&request.messages, &self.scenes);
        let reply = self.reply(&cue)?;
        if reply.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
        }
        if let Some(reason) = &reply.fail {
            return Err(Error::new(ErrorKind::InvalidInput, reason.clone()).during("model.stream"));
        }
        let text = cue.fill(&reply.text);
        let output = text.len().div_ceil(4) as u64;
        let spoken = if text.is_empty() { Script::new() } else { Script::new().text(text) };
        let script = reply
            .calls
            .iter()
            .fold(spoken, |script, (name, arguments)| script.call(name, &cue.fill_value(arguments)));
        let input = request.messages.iter().map(|message| estimate_tokens(message)).sum();
        let reason = if reply.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        script.usage(input, output).finish(reason).into_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entourage_core::message::{Arguments, Message, ToolCall, ToolResult};

    fn cue(results: &[&str]) -> Cue<'static> {
        let results = results.iter().map(|it| (*it).to_owned()).collect();
        Cue { scene: None, prompt: "Go".into(), results, place: 0 }
    }

    #[test]
    fn what_stands_in_braces_is_filled_in_if_it_has_a_name() {
        let all = cue(&["one", "two\n\nthree\nfour {prompt}"]);
        for (text, filled) in [
            ("{prompt}!", "Go!"),
            ("{result:2}", "two\nthree"),
            ("{results:1}|{result:0}|", "one||"),
            (r#"{"a": {"b": "{prompt}"}}"#, r#"{"a": {"b": "Go"}}"#),
            ("{result:-1} {other} {", "{result:-1} {other} {"),
            ("}{prompt", "}{prompt"),
        ] {
            assert_eq!(all.fill(text), filled);
        }
        // What was filled in is not filled again.
        assert!(all.fill("{result}").ends_with("four {prompt}"));
        let given =
            "Sum up.\n<result of=\"a\">\none\n</result>\nand\n<result-2 of=\"b\">\ntwo\n</result-2>\n";
        assert_eq!(quoted(given), "one\ntwo");
        assert_eq!(cue(&[]).fill("<{result}>"), "<>");
        let long = "é".repeat(QUOTED + 1);
        assert_eq!(cue(&[&long]).fill("{result}").chars().count(), QUOTED);
    }

    #[test]
    fn the_newest_prompt_with_a_scene_counts_and_the_replies_since_it() {
        let call = ToolCall::new("call_0", "look", Arguments::parse("{}").unwrap());
        let history: History = [
            Message::user("first"),
            Message::assistant("a"),
            Message::user("second"),
            Message::assistant("b"),
            Message::user("a reminder"),
            Message::tool([ToolResult::text(&call, "found")]),
        ]
        .into_iter()
        .collect();
        let scenes = |words: &[&str]| -> Vec<Scene> {
            words.iter().map(|when| Scene { when: (*when).to_owned(), replies: Vec::new() }).collect()
        };
        for (words, when, prompt, place) in [
            (&["first", "second", ""][..], Some("second"), "second", 1),
            (&["first", ""], Some("first"), "first", 2),
            (&["", "first"], Some("first"), "first", 2),
            (&["e", "second"], Some("e"), "a reminder", 0),
            (&["other", ""], Some(""), "a reminder", 0),
            (&["other"], None, "a reminder", 0),
        ] {
            let scenes = scenes(words);
            let cue = Cue::of(&history, &scenes);
            let found = cue.scene.map(|scene| scene.when.as_str());
            assert_eq!((found, cue.prompt.as_str(), cue.place), (when, prompt, place), "{words:?}");
            assert_eq!(cue.results, ["found"]);
        }
    }

    #[test]
    fn an_odd_text_is_refused_with_its_place() {
        for text in ["", "[]", r#"{"a": [{"replys": []}]}"#, r#"{"a": [{"replies": [{"call": []}]}]}"#] {
            let error = Playbook::parse(text).unwrap_err();
            assert!(error.message().contains("line"), "{error}");
        }
        let error = Playbook::parse(r#"{"a": [], "b": []}"#).unwrap().model("c").unwrap_err();
        assert!(error.message().contains("it has a, b"), "{error}");
    }
}
