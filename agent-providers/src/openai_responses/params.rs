//! Settings of a call in this wire's terms, and warnings for those that it does not know.

use entourage_core::provider::{
    Effort, OutputFormat, Params, PromptCache, ReasoningParams, Request, ToolChoice, Warning, WarningKind,
};
use serde_json::{Value, json};

use super::profile;
use crate::{
    body::{Body, finite},
    limit::max_output,
    schema,
};

/// Longest key of a prompt cache, in characters, and most pairs of metadata, with the longest key and value.
const MAX_CACHE_KEY: usize = 64;
const MAX_METADATA: usize = 16;
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 512;

/// A request's settings, to be written into a body.
pub(super) struct Settings<'a> {
    pub(super) request: &'a Request,
    pub(super) vendor: &'a str,
    pub(super) warnings: &'a mut Vec<Warning>,
}

impl Settings<'_> {
    pub(super) fn put(&mut self, body: &mut Body<'_>) {
        let params = &*self.request.params;
        body.field("store", &false);
        self.sampling(params, body);
        body.optional("max_output_tokens", max_output(self.request, self.warnings));
        self.reasoning(body);
        self.text(body);
        self.cache(params, body);
        self.metadata(params, body);
        self.tool_choice(body);
    }

    fn warn(&mut self, kind: WarningKind, subject: &str, text: String) {
        self.warnings.push(Warning::new(kind, subject, text));
    }

    fn sampling(&mut self, params: &Params, body: &mut Body<'_>) {
        let can = self.request.profile.sampling != Some(false);
        for (name, value) in [("temperature", finite(params.temperature)), ("top_p", finite(params.top_p))] {
            if can {
                body.optional(name, value);
            } else if value.is_some() {
                let text = format!("{} takes no `{name}`; it was left out", self.request.model);
                self.warn(WarningKind::Setting, name, text);
            }
        }
        let unknown = [
            ("top_k", params.top_k.is_some()),
            ("presence_penalty", params.presence_penalty.is_some()),
            ("frequency_penalty", params.frequency_penalty.is_some()),
            ("stop", !params.stop.is_empty()),
            ("seed", params.seed.is_some()),
        ];
        for (name, _) in unknown.into_iter().filter(|(_, set)| *set) {
            let text = format!("the responses of {} know no `{name}`; it was left out", self.vendor);
            self.warn(WarningKind::Setting, name, text);
        }
    }

    fn reasoning(&mut self, body: &mut Body<'_>) {
        let reasons = self.request.profile.reasoning;
        // Other models refuse this request.
        if reasons == Some(true) {
            body.raw("include", br#"["reasoning.encrypted_content"]"#);
        }
        let mut own = Body::new(64, extra(self.request, "reasoning"), &[]);
        if let Some(asked) = self.request.params.reasoning {
            let wanted = asked.effort.is_some_and(|effort| effort > Effort::None)
                || asked.budget.is_some_and(|tokens| tokens > 0);
            if reasons != Some(false) {
                self.effort(asked, &mut own);
                own.optional("summary", (asked.show == Some(true)).then_some("auto"));
            } else if wanted {
                let text = format!("{} does not reason; the setting was left out", self.request.model);
                self.warn(WarningKind::Setting, "reasoning", text);
            }
        }
        own.extra();
        self.nested("reasoning", own, body);
    }

    fn effort(&mut self, asked: ReasoningParams, own: &mut Body<'_>) {
        // OpenRouter passes a budget on to services that know one, and takes only one of the two.
        if let (None, Some(budget), "openrouter") = (asked.effort, asked.budget, self.vendor) {
            return own.field("max_tokens", &budget);
        }
        let Some(effort) = asked.effort.or(asked.budget.map(profile::effort_for)) else { return };
        let (word, exact) = profile::effort(&self.request.model, effort);
        if !exact {
            let text = format!("{} knows no such effort; it was asked for `{word}`", self.request.model);
            self.warn(WarningKind::Setting, "reasoning.effort", text);
        }
        own.field("effort", word);
    }

    fn text(&mut self, body: &mut Body<'_>) {
        let mut own = Body::new(256, extra(self.request, "text"), &[]);
        match &self.request.output {
            OutputFormat::Json => own.field("format", &json!({"type": "json_object"})),
            OutputFormat::Schema(wanted) => {
                let translated = wanted.strict.then(|| schema::strict(&wanted.schema));
                if let Some(why) = translated.as_ref().filter(|translated| !translated.strict) {
                    let text = format!("the schema of the reply is not enforced: {}", why.lost.join(", "));
                    self.warn(WarningKind::Schema, &wanted.name, text);
                }
                let strict = translated.filter(|translated| translated.strict);
                let mut format = json!({
                    "type": "json_schema",
                    "name": wanted.name,
                    "strict": strict.is_some(),
                    "schema": strict.map_or_else(|| schema::loose(&wanted.schema), |translated| translated.schema),
                });
                if let (Some(text), Some(fields)) = (&wanted.description, format.as_object_mut()) {
                    fields.insert("description".to_owned(), json!(text));
                }
                own.field("format", &format);
            }
            _ => {}
        }
        own.extra();
        self.nested("text", own, body);
    }

    fn cache(&mut self, params: &Params, body: &mut Body<'_>) {
        if let Some(key) = params.cache_key.as_ref().filter(|key| !key.is_empty()) {
            let short: String = key.chars().take(MAX_CACHE_KEY).collect();
            if short.len() < key.len() {
                let text =
                    format!("a cache key has at most {MAX_CACHE_KEY} characters; the rest was left out");
                self.warn(WarningKind::Setting, "cache_key", text);
            }
            body.field("prompt_cache_key", &short);
        }
        // Prompts are cached for some minutes by default.
        if params.cache == Some(PromptCache::Long) {
            if matches!(self.vendor, "openai" | "azure" | "openai-responses") {
                body.field("prompt_cache_retention", "24h");
            } else {
                let text =
                    format!("{} keeps prompts as long as it likes; the setting was left out", self.vendor);
                self.warn(WarningKind::Setting, "cache", text);
            }
        }
    }

    fn metadata(&mut self, params: &Params, body: &mut Body<'_>) {
        let official = matches!(self.vendor, "openai" | "openai-responses");
        let user = if official { "safety_identifier" } else { "user" };
        body.optional(user, params.metadata.get("user_id"));
        let (mut kept, mut left_out) = (serde_json::Map::new(), Vec::new());
        for (name, value) in params.metadata.iter().filter(|(name, _)| *name != "user_id") {
            let fits = name.chars().count() <= MAX_NAME && value.chars().count() <= MAX_VALUE;
            if fits && kept.len() < MAX_METADATA {
                kept.insert(name.clone(), Value::from(value.as_str()));
            } else {
                left_out.push(name.chars().take(MAX_NAME).collect::<String>());
            }
        }
        for name in left_out {
            let text = format!(
                "metadata has at most {MAX_METADATA} entries of {MAX_NAME} and {MAX_VALUE} characters; this one was left out"
            );
            self.warn(WarningKind::Setting, &format!("metadata.{name}"), text);
        }
        body.optional("metadata", (!kept.is_empty()).then_some(kept));
    }

    fn tool_choice(&self, body: &mut Body<'_>) {
        if self.request.tools.is_empty() {
            return;
        }
        match &self.request.tool_choice {
            ToolChoice::None => body.field("tool_choice", "none"),
            ToolChoice::Required => body.field("tool_choice", "required"),
            ToolChoice::Tool(name) => body.field("tool_choice", &json!({"type": "function", "name": name})),
            // The service's own default.
            _ => {}
        }
        body.optional("parallel_tool_calls", self.request.params.parallel_tool_calls);
    }

    /// Writes a nested object, unless the caller's `extra` removes it with a null.
    fn nested(&self, key: &str, own: Body<'_>, body: &mut Body<'_>) {
        let taken_out = extra(self.request, key).is_some_and(Value::is_null);
        if !own.is_empty() && !taken_out {
            body.raw(key, &own.finish());
        }
    }
}

fn extra<'a>(request: &'a Request, key: &str) -> Option<&'a Value> {
    request.params.extra.as_ref().and_then(|extra| extra.get(key))
}
