//! Prompt templates and their registry. Facts are data: text in them is never read as a template.

mod registry;
mod template;
#[cfg(test)]
mod tests;

pub use registry::Templates;
pub use template::PromptTemplate;
