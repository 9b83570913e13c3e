//! Finds a model when the program names none: environment variables first, then servers on this machine.
//!
//! The order, first hit wins:
//! 1. `ENTOURAGE_MODEL`, in the form that [`model`] takes;
//! 2. `OPENAI_BASE_URL`, with `OPENAI_API_KEY` and `OPENAI_MODEL` if they are set;
//! 3. the key variables of [`VENDORS`], in that order (`OPENAI_MODEL` counts for OpenAI);
//! 4. LM Studio on port 1234, Ollama on 11434, llama.cpp on 8080 of this machine.
//!
//! Nothing but loopback is contacted here, and nothing is written: no variable, no file, no global state.

mod connect;
mod probe;
#[cfg(all(test, feature = "openai-chat"))]
mod tests;

use std::{fmt, net::SocketAddr};

use entourage_core::{Error, ErrorKind, Result, provider::Model};

use crate::{
    dialect::Dialect,
    models::DEFAULT_MODEL,
    vendor::{self, Speaks, VENDORS, Vendor},
};

/// A model without layers, and where it was found.
///
/// `Display` is a line for people: `gpt-5-mini at https://api.openai.com/v1 (OPENAI_API_KEY)`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found {
    /// The model.
    pub model: Model,
    /// The address of its service.
    pub address: String,
    /// Its origin: the name of a variable, or a server on this machine.
    pub origin: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ({})", self.model.name(), self.address, self.origin)
    }
}

/// Finds a model in the process's environment or on this machine, in the order given in the module documentation.
///
/// Blocks for at most about a second, and only if no variable is set: each of three local ports is asked for its
/// models, with 200 ms to connect. An open port without a model server is skipped.
///
/// # Errors
/// [`ErrorKind::NotFound`] if nothing was found (it lists the attempts), [`ErrorKind::Config`] if a variable cannot be
/// used, [`ErrorKind::Authentication`] if the key of a named service is not set.
pub fn from_env() -> Result<Found> {
    let local: Vec<_> =
        LOCAL.iter().map(|(name, port)| (*name, SocketAddr::from(([127, 0, 0, 1], *port)))).collect();
    find_with(variable, &local)
}

const LOCAL: [(&str, u16); 3] = [("LM Studio", 1234), ("Ollama", 11434), ("llama.cpp", 8080)];

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// [`from_env`] with other variables and local servers (a name to show, and an address). Blank variables count as
/// unset.
///
/// # Errors
/// Those of [`from_env`].
pub fn find_with(variable: impl Fn(&str) -> Option<String>, local: &[(&str, SocketAddr)]) -> Result<Found> {
    let variable =
        |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    if let Some(text) = variable("ENTOURAGE_MODEL") {
        return model_with(&text, variable)
            .map(|found| Found { origin: "ENTOURAGE_MODEL".to_owned(), ..found });
    }
    if let Some(url) = variable("OPENAI_BASE_URL") {
        let name = variable("OPENAI_MODEL").unwrap_or_else(|| DEFAULT_MODEL.to_owned());
        // This variable selects chat completions, at any address.
        let dialect = vendor::at_address(&url).and_then(Vendor::dialect).unwrap_or_default();
        let key = variable("OPENAI_API_KEY");
        return connect::connect(Speaks::OpenAiChat(dialect), &url, key, &name, "OPENAI_BASE_URL");
    }
    let keys: Vec<_> = VENDORS
        .iter()
        .filter_map(|vendor| vendor.key_variable.and_then(|name| Some((vendor, name, variable(name)?))))
        .collect();
    // A key for a wire that is not compiled in still gives an error that names the feature.
    let usable = keys.iter().find(|(vendor, ..)| connect::is_compiled(vendor.wire));
    if let Some((vendor, name, key)) = usable.or(keys.first()) {
        return with_key(vendor, name, key.clone(), variable);
    }
    for (name, address) in local {
        if let Some(answer) = probe::ask(*address) {
            let model = answer.model.as_deref().unwrap_or(DEFAULT_MODEL);
            return build(&format!("http://{address}/v1"), None, model, &format!("{name} on this machine"));
        }
    }
    Err(nothing_found(local))
}

fn with_key(
    vendor: &Vendor,
    name: &str,
    key: String,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Found> {
    let chosen = variable("OPENAI_MODEL").filter(|_| vendor.name == vendor::OPENAI.name);
    let Some(model) = chosen.or_else(|| vendor.default_model.map(str::to_owned)) else {
        return Err(config(format!(
            "{name} is set, but {} has no model to take by itself; set ENTOURAGE_MODEL={}:<model>",
            vendor.name, vendor.name
        )));
    };
    connect::connect(vendor.wire, vendor.base_url, Some(key), &model, name)
}

/// The model named by `text`: `vendor:model` such as `openrouter:meta/llama` or `ollama:qwen3`, or the address of any
/// server with the model after `#`, such as `http://host:8000/v1#model`. Keys come from the vendor's variable; for an
/// address from `OPENAI_API_KEY`, if set. Connects to nothing.
///
/// ```
/// # #[cfg(feature = "openai-chat")] {
/// let model = entourage_providers::env::model("ollama:qwen3").unwrap();
/// assert_eq!(&**model.name(), "qwen3");
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Config`] for a text of another form, an unknown vendor (it lists the known ones) or an impossible
/// address; [`ErrorKind::Authentication`] when the vendor's key variable is not set (it names it).
pub fn model(text: &str) -> Result<Model> {
    model_with(text, variable).map(|found| found.model)
}

/// [`model`] with other variables.
///
/// # Errors
/// Those of [`model`].
pub fn model_with(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Found> {
    let text = text.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        let (url, name) = text.split_once('#').unwrap_or((text, ""));
        let name = if name.is_empty() { DEFAULT_MODEL } else { name };
        return build(url, variable("OPENAI_API_KEY").filter(|key| !key.trim().is_empty()), name, "address");
    }
    let (vendor, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
        config(format!(
            "`{text}` names no model; write vendor:model or http://host/v1#model. {}",
            known_vendors()
        ))
    })?;
    let vendor = vendor::named(vendor)
        .ok_or_else(|| config(format!("`{vendor}` is no known service. {}", known_vendors())))?;
    let key = match vendor.key_variable {
        None => None,
        Some(wanted) => Some(variable(wanted).filter(|key| !key.trim().is_empty()).ok_or_else(|| {
            Error::new(
                ErrorKind::Authentication,
                format!("{} needs a key, and {wanted} is not set; set it to your API key", vendor.name),
            )
            .during("model.find")
        })?),
    };
    let origin = vendor.key_variable.unwrap_or("server on this machine");
    connect::connect(vendor.wire, vendor.base_url, key, name, origin)
}

/// A chat-completions server at any address.
fn build(url: &str, key: Option<String>, name: &str, origin: &str) -> Result<Found> {
    let known = vendor::at_address(url).map(|vendor| vendor.wire);
    let wire = known.unwrap_or(Speaks::OpenAiChat(Dialect::COMMON));
    connect::connect(wire, url, key, name, origin)
}

fn known_vendors() -> String {
    let names: Vec<_> = VENDORS.iter().map(|vendor| vendor.name).collect();
    format!("Known services: {}", names.join(", "))
}

fn nothing_found(local: &[(&str, SocketAddr)]) -> Error {
    let mut tried = vec!["ENTOURAGE_MODEL".to_owned(), "OPENAI_BASE_URL".to_owned()];
    for variable in VENDORS.iter().filter_map(|vendor| vendor.key_variable) {
        if !tried.iter().any(|known| known == variable) {
            tried.push(variable.to_owned());
        }
    }
    tried.extend(local.iter().map(|(name, address)| format!("{name} at {address}")));
    let message = format!(
        "no model was found; set a key such as OPENAI_API_KEY or start a local server. Tried: {}",
        tried.join(", ")
    );
    Error::new(ErrorKind::NotFound, message).during("model.find")
}

fn config(message: String) -> Error {
    Error::new(ErrorKind::Config, message).during("model.find")
}
