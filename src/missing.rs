//! Stand-ins in the prelude for what a feature would add, so that the compiler names the feature.
//!
//! A glob import of a name that is not there says nothing about features. Each stand-in is an alias whose use fails
//! with a message of its own; an import that names another item shadows it, as it would shadow the real one.

/// A type for which no feature is on.
#[derive(Debug)]
#[allow(dead_code, unreachable_pub, reason = "with all features on nothing is missing")]
pub enum Nothing {}

macro_rules! features {
    ($($feature:literal $name:ident $message:literal;)*) => {$(
        #[cfg(not(feature = $feature))]
        #[diagnostic::on_unimplemented(
            message = $message,
            label = "its feature is off",
            note = "turn it on in Cargo.toml, or with `cargo add entourage --features …`"
        )]
        #[allow(unreachable_pub, reason = "the prelude's aliases name it")]
        pub trait $name {
            /// The item that the feature would add.
            type Item;
        }
    )*};
}

features! {
    "anthropic-messages" AnthropicMessages "this needs the feature `anthropic-messages` of `entourage`";
    "fs" Fs "this needs the feature `fs` of `entourage`";
    "gemini" Gemini "this needs the feature `gemini` of `entourage`";
    "hybrid" Hybrid "this needs the feature `hybrid` of `entourage`";
    "json" Json "this needs the feature `json` of `entourage`";
    "ollama" Ollama "this needs the feature `ollama` of `entourage`";
    "openai-chat" OpenAiChat "this needs the feature `openai-chat` of `entourage`";
    "openai-responses" OpenAiResponses "this needs the feature `openai-responses` of `entourage`";
    "postgres" Postgres "this needs the feature `postgres` of `entourage`";
    "shell" Shell "this needs the feature `shell` of `entourage`";
    "sqlite" Sqlite "this needs the feature `sqlite` of `entourage`";
}

/// Stands in for each item whose feature is off.
macro_rules! missing {
    ($($visible:vis $item:ident: $trait:ident of $feature:literal;)*) => {$(
        #[cfg(not(feature = $feature))]
        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "one of them stands for a module")]
        $visible type $item = <$crate::missing::Nothing as $crate::missing::$trait>::Item;
    )*};
}
