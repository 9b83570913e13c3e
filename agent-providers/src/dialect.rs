//! Where services that speak chat completions differ, as data.

/// What a service does differently from the wire's common form. The vendor table holds the known ones.
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
    /// What the seed is called; `None` when there is none.
    pub seed: Option<&'static str>,
    /// Usage in a stream must be asked for with `stream_options`.
    pub stream_options: bool,
    /// What a call cost is reported when it is asked for with `usage`.
    pub reports_cost: bool,
    /// `parallel_tool_calls` is understood.
    pub parallel_tool_calls: bool,
    /// Schemas of tools can be enforced.
    pub strict_tools: bool,
    /// How replies are made to follow a schema.
    pub schema: SchemaSupport,
    /// How reasoning is asked for.
    pub reasoning: ReasoningStyle,
    /// Reasoning is sent back with the messages that it led to, under the name under which it came.
    pub replays_reasoning: bool,
    /// How the prompt cache is steered.
    pub cache: CacheStyle,
    /// `metadata` is understood.
    pub metadata: bool,
}

/// How a service makes replies follow a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaSupport {
    /// It enforces a schema of the strict kind: every object closed, every property required.
    Strict,
    /// It enforces any schema, if the model at hand can follow one.
    Any,
    /// It enforces any schema with every model: the sampler itself is held to it.
    Always,
    /// It can only promise JSON; the schema goes into the instructions.
    JsonOnly,
}

/// How a service is asked to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningStyle {
    /// `reasoning_effort`: `low`, `medium`, `high`. No budget in tokens.
    Effort,
    /// The same, with `none`, `minimal` and `xhigh` besides.
    WideEffort,
    /// `reasoning: {effort | max_tokens, exclude}`.
    Object,
    /// `thinking: {type: enabled | disabled}`.
    Switch,
}

/// How a service's prompt cache is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheStyle {
    /// It caches by itself, or not at all.
    Automatic,
    /// By itself, and it takes `prompt_cache_key` and `prompt_cache_retention`.
    Key,
    /// It passes `cache_control` marks on to the models that want them.
    Marks,
}

impl Dialect {
    /// What most services and local servers understand.
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
        reasoning: ReasoningStyle::Effort,
        replays_reasoning: true,
        cache: CacheStyle::Automatic,
        metadata: false,
    };

    const NO_TOP_K: Self = Self { top_k: false, ..Self::COMMON };

    /// OpenAI itself. It never shows reasoning on this wire, so none is sent back.
    pub const OPENAI: Self = Self {
        max_completion_tokens: true,
        strict_tools: true,
        schema: SchemaSupport::Strict,
        reasoning: ReasoningStyle::WideEffort,
        replays_reasoning: false,
        cache: CacheStyle::Key,
        metadata: true,
        ..Self::NO_TOP_K
    };
    /// OpenAI's models in an Azure resource.
    pub const AZURE: Self = Self::OPENAI;
    /// OpenRouter.
    pub const OPENROUTER: Self = Self {
        reports_cost: true,
        strict_tools: true,
        schema: SchemaSupport::Strict,
        reasoning: ReasoningStyle::Object,
        cache: CacheStyle::Marks,
        ..Self::COMMON
    };
    /// DeepSeek.
    pub const DEEPSEEK: Self = Self {
        seed: None,
        parallel_tool_calls: false,
        schema: SchemaSupport::JsonOnly,
        reasoning: ReasoningStyle::Switch,
        ..Self::NO_TOP_K
    };
    /// Groq. It shows reasoning and takes none back.
    pub const GROQ: Self =
        Self { penalties: false, schema: SchemaSupport::Strict, replays_reasoning: false, ..Self::NO_TOP_K };
    /// Mistral. It reports usage unasked, and refuses fields that it does not know.
    pub const MISTRAL: Self = Self { stream_options: false, seed: Some("random_seed"), ..Self::NO_TOP_K };
    /// xAI. Its reasoning models refuse penalties.
    pub const XAI: Self = Self { penalties: false, schema: SchemaSupport::Strict, ..Self::NO_TOP_K };
    /// Together.
    pub const TOGETHER: Self = Self { parallel_tool_calls: false, ..Self::COMMON };
    /// Fireworks.
    pub const FIREWORKS: Self = Self::COMMON;
    /// Perplexity. Its models call no tools.
    pub const PERPLEXITY: Self =
        Self { seed: None, parallel_tool_calls: false, replays_reasoning: false, ..Self::COMMON };
    /// LM Studio.
    pub const LM_STUDIO: Self =
        Self { parallel_tool_calls: false, schema: SchemaSupport::Always, ..Self::COMMON };
    /// llama.cpp's server.
    pub const LLAMA_CPP: Self = Self { schema: SchemaSupport::Always, ..Self::COMMON };
    /// vLLM.
    pub const VLLM: Self = Self { schema: SchemaSupport::Always, ..Self::COMMON };
    /// Ollama's compatible endpoint.
    pub const OLLAMA: Self =
        Self { top_k: false, parallel_tool_calls: false, schema: SchemaSupport::Always, ..Self::COMMON };
}

impl Default for Dialect {
    fn default() -> Self {
        Self::COMMON
    }
}
