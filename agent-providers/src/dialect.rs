//! Differences between services that speak chat completions, as data.

/// Deviations of a service from the wire's common form. The vendor table holds the known ones.
///
/// ```
/// # #[cfg(feature = "openai-chat")] {
/// use entourage_providers::openai_chat::Dialect;
///
/// let mut dialect = Dialect::default();
/// dialect.stop_means_tool_calls = false;
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// A reply with tool calls that ends with `stop` waits for their results. Off: such calls are not run.
    /// Services end a forced call so, and many local servers every call.
    pub stop_means_tool_calls: bool,
    /// The output limit is called `max_completion_tokens`, not `max_tokens`.
    pub max_completion_tokens: bool,
    /// `top_k` is understood. Off: it is left out, with a warning.
    pub top_k: bool,
    /// `presence_penalty` and `frequency_penalty` are understood.
    pub penalties: bool,
    /// Name of the seed parameter; `None` without one.
    pub seed: Option<&'static str>,
    /// Usage in a stream must be requested with `stream_options`.
    pub stream_options: bool,
    /// The cost of a call is reported if requested with `usage`.
    pub reports_cost: bool,
    /// `parallel_tool_calls` is understood.
    pub parallel_tool_calls: bool,
    /// Schemas of tools can be enforced.
    pub strict_tools: bool,
    /// The way in which replies are made to follow a schema.
    pub schema: SchemaSupport,
    /// Replies are made to follow a schema also while the model may call tools.
    pub schema_beside_tools: bool,
    /// The form in which reasoning is requested.
    pub reasoning: ReasoningStyle,
    /// Reasoning is sent back with its messages, under the field name under which it came.
    pub replays_reasoning: bool,
    /// The way in which the prompt cache is controlled.
    pub cache: CacheStyle,
    /// `metadata` is understood.
    pub metadata: bool,
}

/// The way in which a service makes replies follow a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaSupport {
    /// Enforces a schema of the strict kind: every object closed, every property required.
    Strict,
    /// Enforces any schema, if the model can follow one.
    Any,
    /// Enforces any schema with every model, in the sampler itself.
    Always,
    /// Guarantees JSON only; the schema goes into the instructions.
    JsonOnly,
}

/// The form in which a service takes a request for reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningStyle {
    /// `reasoning_effort`: `low`, `medium`, `high`. No budget in tokens.
    Effort,
    /// `reasoning_effort` with `none`, `minimal` and `xhigh` in addition.
    WideEffort,
    /// `reasoning: {effort | max_tokens, exclude}`.
    Object,
    /// `thinking: {type: enabled | disabled}`.
    Switch,
}

/// The way in which a service's prompt cache is controlled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheStyle {
    /// Caches by itself, or not at all.
    Automatic,
    /// Caches by itself, and takes `prompt_cache_key` and `prompt_cache_retention`.
    Key,
    /// Passes `cache_control` marks on to models that support them.
    Marks,
}

impl Dialect {
    /// The form that most services and local servers understand.
    pub const COMMON: Self = Self {
        stop_means_tool_calls: true,
        max_completion_tokens: false,
        top_k: true,
        penalties: true,
        seed: Some("seed"),
        stream_options: true,
        reports_cost: false,
        parallel_tool_calls: true,
        strict_tools: false,
        schema: SchemaSupport::Any,
        schema_beside_tools: false,
        reasoning: ReasoningStyle::Effort,
        replays_reasoning: true,
        cache: CacheStyle::Automatic,
        metadata: false,
    };

    const NO_TOP_K: Self = Self { top_k: false, ..Self::COMMON };

    /// Dialect of OpenAI itself. It never shows reasoning on this wire, so none is sent back.
    pub const OPENAI: Self = Self {
        max_completion_tokens: true,
        strict_tools: true,
        schema: SchemaSupport::Strict,
        schema_beside_tools: true,
        reasoning: ReasoningStyle::WideEffort,
        replays_reasoning: false,
        cache: CacheStyle::Key,
        metadata: true,
        ..Self::NO_TOP_K
    };
    /// Dialect of OpenAI's models in an Azure resource.
    pub const AZURE: Self = Self::OPENAI;
    /// Dialect of OpenRouter.
    pub const OPENROUTER: Self = Self {
        reports_cost: true,
        strict_tools: true,
        schema: SchemaSupport::Strict,
        reasoning: ReasoningStyle::Object,
        cache: CacheStyle::Marks,
        ..Self::COMMON
    };
    /// Dialect of DeepSeek.
    pub const DEEPSEEK: Self = Self {
        seed: None,
        parallel_tool_calls: false,
        schema: SchemaSupport::JsonOnly,
        reasoning: ReasoningStyle::Switch,
        ..Self::NO_TOP_K
    };
    /// Dialect of Groq. It shows reasoning and takes none back.
    pub const GROQ: Self =
        Self { penalties: false, schema: SchemaSupport::Strict, replays_reasoning: false, ..Self::NO_TOP_K };
    /// Dialect of Mistral. It reports usage without a request, and refuses unknown fields.
    pub const MISTRAL: Self = Self { stream_options: false, seed: Some("random_seed"), ..Self::NO_TOP_K };
    /// Dialect of xAI. Its reasoning models refuse penalties.
    pub const XAI: Self = Self { penalties: false, schema: SchemaSupport::Strict, ..Self::NO_TOP_K };
    /// Dialect of Together.
    pub const TOGETHER: Self = Self { parallel_tool_calls: false, ..Self::COMMON };
    /// Dialect of Fireworks.
    pub const FIREWORKS: Self = Self::COMMON;
    /// Dialect of Perplexity. Its models call no tools.
    pub const PERPLEXITY: Self =
        Self { seed: None, parallel_tool_calls: false, replays_reasoning: false, ..Self::COMMON };
    /// Dialect of LM Studio.
    pub const LM_STUDIO: Self =
        Self { parallel_tool_calls: false, schema: SchemaSupport::Always, ..Self::COMMON };
    /// Dialect of llama.cpp's server.
    pub const LLAMA_CPP: Self = Self { schema: SchemaSupport::Always, ..Self::COMMON };
    /// Dialect of vLLM.
    pub const VLLM: Self = Self { schema: SchemaSupport::Always, ..Self::COMMON };
    /// Dialect of Ollama's compatible endpoint.
    pub const OLLAMA: Self =
        Self { top_k: false, parallel_tool_calls: false, schema: SchemaSupport::Always, ..Self::COMMON };
}

impl Default for Dialect {
    fn default() -> Self {
        Self::COMMON
    }
}
