//! A service for tests that only need a model.

use async_trait::async_trait;

use super::{CallContext, DeltaStream, Model, Provider, Request};
use crate::{Error, ErrorKind, Result};

/// A service that refuses every call.
#[derive(Debug)]
struct Mute;

#[async_trait]
impl Provider for Mute {
    fn name(&self) -> &str {
        "mute"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        Err(Error::new(ErrorKind::Unsupported, "no call was expected"))
    }
}

/// Returns a model that nobody may ask.
pub(crate) fn mute() -> Model {
    Model::new(std::sync::Arc::new(Mute), "mute")
}
