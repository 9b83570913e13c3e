//! Tools made of closures.

use std::{future::Future, marker::PhantomData};

use async_trait::async_trait;
use entourage_core::tool::{
    Access, IntoToolOutput, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// Makes a tool of a spec and an async closure over the raw input.
///
/// ```
/// use entourage_core::tool::{Access, ToolSpec};
/// use entourage_runners::from_fn::from_fn;
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
/// let spec = ToolSpec::new("echo", "Says it again.", schema)
///     .with_access(Access::NONE);
/// let echo = from_fn(spec, |input| async move { Ok(input.arguments["text"].to_string()) });
/// ```
pub fn from_fn<F, Fut, O>(spec: ToolSpec, call: F) -> impl Tool
where
    F: Fn(ToolInput) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    O: IntoToolOutput,
{
    FnTool { spec, call, types: PhantomData }
}

/// Makes a tool of an async closure over typed arguments; the schema is derived from their type.
///
/// ```
/// use entourage_core::tool::{Access, Tool};
/// use entourage_runners::from_fn::typed;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     /// The second number.
///     b: i64,
/// }
///
/// let add = typed("add", "Adds two numbers.", Access::NONE, |Add { a, b }| async move { Ok(a + b) });
/// assert_eq!(add.spec().schema()["required"], serde_json::json!(["a", "b"]));
/// ```
pub fn typed<T, F, Fut, O>(
    name: impl Into<String>,
    description: impl Into<String>,
    access: Access,
    call: F,
) -> impl Tool
where
    T: DeserializeOwned + JsonSchema,
    F: Fn(T) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    O: IntoToolOutput + Send,
{
    let spec = ToolSpec::new(name, description, schema_of::<T>()).with_access(access);
    from_fn(spec, move |input: ToolInput| {
        let future = input.parse::<T>().map(&call);
        async move { future?.await }
    })
}

/// A tool made by [`from_fn`].
struct FnTool<F, Fut, O> {
    spec: ToolSpec,
    call: F,
    types: PhantomData<fn() -> (Fut, O)>,
}

#[async_trait]
impl<F, Fut, O> Tool for FnTool<F, Fut, O>
where
    F: Fn(ToolInput) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    O: IntoToolOutput,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, _cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        (self.call)(input).await?.into_output()
    }
}
