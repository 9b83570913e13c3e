//! A model's reply: the fold of its deltas, and the repair of the calls in it. Pure but for [`ProviderExt::complete`].

mod assemble;
mod raw_call;

pub use assemble::{Assembled, Assembler};
pub(crate) use raw_call::parsed_call;
pub use raw_call::repair_json;

use async_trait::async_trait;
use entourage_core::{
    Result,
    provider::{CallContext, Provider, Request},
};
use futures_util::StreamExt;

/// Conveniences over [`Provider`], implemented for every provider. Not meant to be implemented elsewhere.
#[async_trait]
pub trait ProviderExt: Provider {
    /// Runs one call to its end and returns the reply that its deltas add up to.
    ///
    /// # Errors
    /// Those of [`Provider::stream`] and of the stream;
    /// [`ErrorKind::Protocol`](entourage_core::ErrorKind::Protocol) when the stream ends early.
    async fn complete(&self, request: Request, cx: &CallContext) -> Result<Assembled> {
        let mut stream = self.stream(request, cx).await?;
        let mut assembler = Assembler::default();
        while let Some(delta) = stream.next().await {
            assembler.push(&delta?)?;
        }
        assembler.finish()
    }
}

impl<P: Provider + ?Sized> ProviderExt for P {}
