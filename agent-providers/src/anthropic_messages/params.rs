//! Sampling, limits and other settings of a request, with warnings for those that this wire cannot express.

use entourage_core::provider::{Params, Request, Warning, WarningKind};
use serde_json::json;

use super::profile::Claude;
use crate::{
    body::{Body, finite},
    limit::max_output,
};

/// The output limit of a request that sets none, for an unknown model. The wire demands one.
pub const DEFAULT_MAX_OUTPUT: u64 = 8_192;

/// Collects warnings about settings.
struct Warn<'a>(&'a mut Vec<Warning>);

impl Warn<'_> {
    fn about(&mut self, setting: &'static str, text: String) {
        self.0.push(Warning::new(WarningKind::Setting, setting, text));
    }
}

/// The output limit: at most the known limit of the model.
pub(super) fn max_tokens(request: &Request, warnings: &mut Vec<Warning>) -> u64 {
    let extra = request.params.extra.as_ref().and_then(|extra| extra.get("max_tokens")?.as_u64());
    if let Some(own) = extra {
        return own;
    }
    max_output(request, warnings)
        .unwrap_or_else(|| request.profile.max_output.filter(|most| *most > 0).unwrap_or(DEFAULT_MAX_OUTPUT))
}

/// Writes the fields for sampling and other plain settings.
pub(super) fn write(
    body: &mut Body<'_>,
    request: &Request,
    claude: Option<Claude>,
    thinks: bool,
    vendor: &str,
    warnings: &mut Vec<Warning>,
) {
    let params = &*request.params;
    let mut warn = Warn(warnings);
    sampling(body, request, claude, thinks, &mut warn);
    unknown(params, vendor, &mut warn);
    let stops: Vec<_> = params.stop.iter().filter(|stop| !stop.trim().is_empty()).collect();
    if stops.len() < params.stop.len() {
        warn.about(
            "stop",
            "the service refuses stop sequences of white space only; they were left out".to_owned(),
        );
    }
    body.optional("stop_sequences", (!stops.is_empty()).then_some(stops));
    metadata(body, params, vendor, &mut warn);
}

fn sampling(
    body: &mut Body<'_>,
    request: &Request,
    claude: Option<Claude>,
    thinks: bool,
    warn: &mut Warn<'_>,
) {
    let params = &*request.params;
    let refuses = request.profile.sampling == Some(false);
    let mut temperature = finite(params.temperature);
    let mut top_p = finite(params.top_p);
    let mut top_k = params.top_k;
    if refuses || thinks {
        let why = if refuses {
            "this model does not take it"
        } else {
            "the service refuses it while the model thinks"
        };
        // The service's default is 1.
        if temperature.take().is_some_and(|asked| (asked - 1.0).abs() > f64::EPSILON) {
            warn.about("temperature", format!("{why}; it was left out"));
        }
        if top_p.take_if(|asked| refuses || *asked < 0.95).is_some() {
            warn.about("top_p", format!("{why}; it was left out"));
        }
        if top_k.take().is_some() {
            warn.about("top_k", format!("{why}; it was left out"));
        }
    }
    if claude.is_some() && temperature.take_if(|asked| *asked > 1.0).is_some() {
        temperature = Some(1.0);
        warn.about("temperature", "the service takes 1 at most; it was set to 1".to_owned());
    }
    if claude.is_some_and(Claude::samples_one_way) && temperature.is_some() && top_p.take().is_some() {
        let text = "this model takes either `temperature` or `top_p`; `top_p` was left out";
        warn.about("top_p", text.to_owned());
    }
    body.optional("temperature", temperature);
    body.optional("top_p", top_p);
    body.optional("top_k", top_k);
}

fn unknown(params: &Params, vendor: &str, warn: &mut Warn<'_>) {
    for (name, set) in [
        ("seed", params.seed.is_some()),
        ("presence_penalty", params.presence_penalty.is_some()),
        ("frequency_penalty", params.frequency_penalty.is_some()),
    ] {
        if set {
            warn.about(name, format!("{vendor} does not know `{name}`; it was left out"));
        }
    }
}

fn metadata(body: &mut Body<'_>, params: &Params, vendor: &str, warn: &mut Warn<'_>) {
    if let Some(user) = params.metadata.get("user_id") {
        body.field("metadata", &json!({"user_id": user}));
    }
    let others: Vec<_> = params.metadata.keys().filter(|key| *key != "user_id").map(String::as_str).collect();
    if !others.is_empty() {
        let text = format!("{vendor} takes `user_id` only; left out: {}", others.join(", "));
        warn.about("metadata", text);
    }
}
