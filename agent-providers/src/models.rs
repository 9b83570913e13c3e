//! The default model of a server, asked for once when the program names none.

use std::sync::{Arc, OnceLock};

use entourage_core::{Error, ErrorKind, Result, provider::CallContext};
use serde_json::Value;

use crate::http::{Endpoint, Target};

/// Largest list of models that is read. The largest catalogues have some thousand entries of a few hundred bytes.
const MAX_LIST: usize = 8 << 20;

/// Model name for the server's own choice. The server is asked for its list before the first call; a model of exactly
/// this name, else the first one, is taken. An empty name has the same effect.
#[allow(unreachable_pub, reason = "the wires that can ask for a list show it")]
pub const DEFAULT_MODEL: &str = "default";

#[derive(Debug, Default)]
pub(crate) struct DefaultModel(OnceLock<Arc<str>>);

impl DefaultModel {
    /// The server's model. If the server could not tell, the next call asks again. Calls that begin before the first
    /// answer each ask: if they waited for each other, one that nobody polls would hold up all.
    pub(crate) async fn resolve(
        &self,
        endpoint: &Endpoint,
        path: &[&str],
        cx: &CallContext,
    ) -> Result<Arc<str>> {
        if let Some(known) = self.0.get() {
            return Ok(Arc::clone(known));
        }
        let body = endpoint.get(Target::path(path), MAX_LIST, cx).await?;
        let chosen = choose(&body).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("{} names no model; load one, or say which model to use", endpoint.vendor()),
            )
            .during("model.list")
        })?;
        Ok(Arc::clone(self.0.get_or_init(|| chosen)))
    }
}

/// Chooses a model from the answer to `GET /models`.
pub(crate) fn choose(body: &[u8]) -> Option<Arc<str>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let models = list.get("data").or_else(|| list.get("models")).unwrap_or(&list).as_array()?;
    let ids = || {
        models
            .iter()
            .filter_map(|model| model.get("id").or_else(|| model.get("name")).or(Some(model))?.as_str())
            .filter(|id| !id.is_empty())
    };
    ids().find(|id| *id == DEFAULT_MODEL).or_else(|| ids().next()).map(Into::into)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_model_is_taken_unless_one_is_called_default() {
        let choose = |body: &str| super::choose(body.as_bytes());
        assert_eq!(choose(r#"{"data":[{"id":"a"},{"id":"b"}]}"#).as_deref(), Some("a"));
        assert_eq!(choose(r#"{"data":[{"id":"a"},{"id":"default"}]}"#).as_deref(), Some("default"));
        assert_eq!(choose(r#"[{"id":"a"}]"#).as_deref(), Some("a"));
        assert_eq!(choose(r#"{"models":[{"name":"a"}]}"#).as_deref(), Some("a"));
        for none in ["", "{}", r#"{"data":[]}"#, r#"{"data":null}"#, "<html>"] {
            assert_eq!(choose(none), None, "{none}");
        }
    }
}
