//! One template: text with variables, checked on construction, rendered within bounds.

use std::{fmt, io, sync::Arc};

use entourage_core::{
    Digest, Error, ErrorKind, Result,
    context::{Instructions, PromptFacts},
};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, escape_formatter, syntax::SyntaxConfig};

/// Longest source, in bytes.
const SOURCE: usize = 256 * 1024;

/// Longest rendered text, in bytes.
const OUTPUT: usize = 1024 * 1024;

/// Instructions of the template engine that one rendering may execute.
const FUEL: u64 = 1_000_000;

/// Deepest nesting of blocks.
const DEPTH: usize = 64;

/// Longest name, in bytes.
const NAME: usize = 64;

/// Names of the facts, which no added variable may take.
const OWN: [&str; 10] = [
    "provider",
    "model",
    "working_dir",
    "git",
    "platform",
    "date",
    "context_files",
    "global_context_files",
    "skills",
    "config",
];

/// A prompt with variables, in the Jinja language. Clones share it.
///
/// # Contract
/// - The source is checked on construction; it has at most 256 KiB.
/// - Printing a variable that is missing from the facts, or a value that is none, is an error. Guard an optional
///   variable with `{% if x is defined %}`.
/// - Nothing is escaped. A line that holds only a block tag leaves no line behind, and the newline at the very end is
///   dropped.
/// - A template stands alone: there are no includes, imports and macros, and no file is read.
/// - A rendering fails after 1,000,000 instructions or 1 MiB of text. The source is trusted, the facts are not: a
///   source may still build text of any size in memory.
///
/// ```
/// use entourage_core::context::PromptFacts;
/// use entourage_runtime::context::PromptTemplate;
///
/// let template = PromptTemplate::new("greeter", 1, "You greet people on {{ platform }}.").unwrap();
/// let instructions = template.render(&PromptFacts::new().with_platform("linux")).unwrap();
/// assert_eq!(instructions.text(), "You greet people on linux.");
/// assert!(template.id().starts_with("greeter@1#"));
/// assert_eq!(instructions.template(), Some(template.id()));
///
/// let error = template.render(&PromptFacts::new()).unwrap_err();
/// assert!(error.message().contains("`platform`"));
/// ```
#[derive(Clone)]
pub struct PromptTemplate(Arc<Inner>);

struct Inner {
    name: Box<str>,
    version: u32,
    id: Arc<str>,
    source: Box<str>,
}

impl PromptTemplate {
    /// Checks a template. Raise `version` with every change of the words; [`Templates`](crate::context::Templates)
    /// enforces that.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the name is not 1 to 64 letters, digits, `.`, `_`, `-` and `/`, or if the source
    /// is not a template: the error names the line. [`ErrorKind::TooLarge`] over 256 KiB.
    pub fn new(name: impl Into<String>, version: u32, source: impl Into<String>) -> Result<Self> {
        let (name, source) = (name.into(), source.into());
        check_name(&name)?;
        if source.len() > SOURCE {
            let text = format!("a prompt template has at most {SOURCE} bytes; shorten it");
            return Err(Error::new(ErrorKind::TooLarge, text).with("template", name));
        }
        // A source read from a file of another system is the same template.
        let source = if source.contains('\r') { source.replace("\r\n", "\n") } else { source };
        let id = format!("{name}@{version}#{}", content_hash(&source));
        environment()?.template_from_str(&source).map_err(|error| broken(&error).with("template", &*id))?;
        Ok(Self(Arc::new(Inner { name: name.into(), version, id: id.into(), source: source.into() })))
    }

    /// Name of the template.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Version of the template.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// `name@version#hash`, where the hash is 12 hexadecimal digits of a SHA-256 over the source and its length.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The source text, with `\n` at the end of lines.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Renders the text for these facts, with this template's id. Equal facts give equal text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a variable that is missing or none, for an operation that its value does not
    /// support, and for an added variable with the name of a fact. [`ErrorKind::TooLarge`] for more than 1 MiB of text
    /// or 1,000,000 instructions.
    pub fn render(&self, facts: &PromptFacts) -> Result<Instructions> {
        if let Some(name) = facts.variables().keys().find(|name| OWN.contains(&name.as_str())) {
            let text = format!("`{name}` is a fact of its own; call the added variable otherwise");
            return Err(Error::new(ErrorKind::InvalidInput, text).with("template", self.id()));
        }
        let environment = environment()?;
        let mut output = Bounded::default();
        let rendered = environment
            .template_from_str(&self.0.source)
            .and_then(|template| {
                let facts = minijinja::Value::from(minijinja::value::Serde(facts));
                template.render_captured_to(facts, &mut output).map(drop)
            })
            .map_err(|error| (failed(&error, &self.0.source), error));
        if output.full {
            let text = format!("the prompt grew over {OUTPUT} bytes; shorten the facts or the template");
            return Err(Error::new(ErrorKind::TooLarge, text).with("template", self.id()));
        }
        rendered.map_err(|(told, error)| told.with("template", self.id()).caused_by(error))?;
        let text = String::from_utf8(output.text).map_err(|error| {
            Error::new(ErrorKind::Internal, "the template engine wrote no text").caused_by(error)
        })?;
        Ok(Instructions::new(text.into(), Some(Arc::clone(&self.0.id))))
    }
}

impl fmt::Debug for PromptTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PromptTemplate").field(&self.0.id).finish()
    }
}

pub(super) fn content_hash(source: &str) -> String {
    Digest::of([source.as_bytes()]).to_string().chars().take(12).collect()
}

pub(super) fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    if !name.is_empty() && name.len() <= NAME && name.chars().all(fits) {
        return Ok(());
    }
    let shown: String = name.chars().take(NAME).collect();
    let text = format!("a template's name is 1 to {NAME} letters, digits and . _ - /; this one is not");
    Err(Error::new(ErrorKind::InvalidInput, text).with("name", format!("{shown:?}")))
}

/// A strict environment without escapes. It is created anew for each use: that costs microseconds, and a prompt is
/// rendered once a run.
fn environment() -> Result<Environment<'static>> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| {
        Error::new(ErrorKind::Internal, "the template engine refused its syntax").caused_by(error)
    })?;
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH);
    // For the line of an error; the engine keeps it to itself unless its own report is printed.
    environment.set_debug(true);
    environment.set_formatter(|out, state, value| {
        if value.is_none() {
            return Err(minijinja::Error::from(minijinja::ErrorKind::UndefinedError));
        }
        escape_formatter(out, state, value)
    });
    Ok(environment)
}

fn broken(error: &minijinja::Error) -> Error {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let line = error.line().unwrap_or(1);
    Error::new(
        ErrorKind::InvalidInput,
        format!("line {line} of the template cannot be read: {what}; correct it"),
    )
}

/// The error of a failed rendering. It quotes the template at that place, never a value.
fn failed(error: &minijinja::Error, source: &str) -> Error {
    let line = error.line().unwrap_or(1);
    let asked = error.range().and_then(|range| source.get(range)).unwrap_or_default().trim();
    let asked: String = asked.chars().take(80).collect();
    match error.kind() {
        minijinja::ErrorKind::UndefinedError => Error::new(
            ErrorKind::InvalidInput,
            format!(
                "line {line} of the template asks for `{asked}`, which the facts do not have; set it, or guard it with `is defined`"
            ),
        ),
        minijinja::ErrorKind::OutOfFuel => Error::new(
            ErrorKind::TooLarge,
            format!("the template was stopped after {FUEL} instructions; loop over less"),
        ),
        _ => Error::new(
            ErrorKind::InvalidInput,
            format!("line {line} of the template fails at `{asked}`: {}; correct it", error.kind()),
        ),
    }
}

/// A writer that takes text up to a bound, then fails.
#[derive(Default)]
struct Bounded {
    text: Vec<u8>,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len().saturating_add(bytes.len()) > OUTPUT {
            self.full = true;
            return Err(io::Error::other("too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
