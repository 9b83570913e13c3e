//! The `#[tool]` attribute of Entourage: an async function becomes a tool that a model can call.
//!
//! `attribute` and `params` parse the input, `check` and `subjects` find every mistake in it, `expand` writes the code.
//! Nothing here knows what a tool is at run time: the generated code calls `entourage_core::tool`.

mod attribute;
mod check;
mod docs;
mod errors;
mod expand;
mod params;
mod subjects;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Item, ItemFn, TraitItemFn, spanned::Spanned};

use self::{attribute::Options, errors::Errors};

/// Turns an `async fn` into a tool.
///
/// The function's name becomes a value that is the tool. Its schema comes from the parameters. Its description comes
/// from the doc comment, by which the model chooses the tool; it is therefore required.
///
/// ```
/// use std::sync::Arc;
/// use entourage_core::tool::{Access, Tool, ToolError};
/// # use entourage_macros::tool; // entourage::tool for those who use the facade
///
/// #[tool(access = "read", crate = "entourage_core")]
/// /// Count the lines of a file.
/// async fn line_count(
///     /// Path of the file.
///     path: String,
///     /// Count only lines that hold this.
///     matching: Option<String>,
/// ) -> Result<usize, ToolError> {
///     let text = std::fs::read_to_string(path)?;
///     let wanted = matching.unwrap_or_default();
///     Ok(text.lines().filter(|line| line.contains(&wanted)).count())
/// }
///
/// let tools: [Arc<dyn Tool>; 1] = [line_count.into()];
/// let spec = tools[0].spec();
/// assert_eq!((spec.name(), spec.description()), ("line_count", "Count the lines of a file."));
/// assert_eq!(spec.access(), Access::READ);
/// assert_eq!(spec.schema()["properties"]["path"]["description"], "Path of the file.");
/// assert_eq!(spec.schema()["required"], serde_json::json!(["path"]));
/// ```
///
/// # Arguments of the attribute
///
/// `access` is required, the others are optional.
///
/// | key | value | without it |
/// |---|---|---|
/// | `access` | `"read"`, `"write"`, `"execute"`, `"network"`, `"delegate"`, `"ask"`, joined by `+`; `"none"` for a tool that touches nothing outside its arguments | does not compile: the default policy runs what reads, delegates, asks or touches nothing, and asks about the rest |
/// | `name` | 1 to 64 letters, digits, `_` and `-` | the function's name |
/// | `description` | a text, or a macro such as `include_str!("count.md")` | the doc comment |
/// | `repeat` | `"safe"`, `"idempotent"`, `"resume"` or `"once"` | read-only tools are `safe`, others `once` |
/// | `timeout` | `"500ms"`, `"30s"`, `"5m"` | the limit of the agent |
/// | `crate` | the path of entourage-core, or of a crate with its `tool` and `__private` | `"::entourage"` |
///
/// # Parameters
///
/// Each parameter is an argument from the model; its type implements `serde::Deserialize` and `schemars::JsonSchema`
/// and owns its data (`String`, not `&str`). The model may leave out an `Option<T>`. Unknown keys are ignored.
/// Arguments that do not fit are reported to the model, and the function is not called. A parameter may have:
///
/// - a doc comment or `#[arg(description = "…")]`: its description for the model
/// - `#[serde(…)]` and `#[schemars(…)]`: as on the field of a struct, such as `#[serde(default)]`
/// - `#[arg(read)]`, `#[arg(write)]`, `#[arg(host)]` or `#[arg(command)]`: what it names, see below
/// - `#[args]`: this one parameter, a struct, is the whole argument object; there are no other arguments
/// - `#[state]`: given by the program when it makes the tool, not by the model
///
/// A parameter of type `&ToolContext<'_>` is given by the run.
///
/// # Arguments that name what a call touches
///
/// A mark makes an argument a subject of the rules, shown to approvers: see `entourage_runtime::permission::Policy`. It
/// stands alone or beside a description: `#[arg(write, description = "…")]`.
///
/// | mark | argument | needs `access` | type |
/// |---|---|---|---|
/// | `read` | a path that the call reads | `read` | `AsRef<Path>` |
/// | `write` | a path that the call changes, and may read | `write` | `AsRef<Path>` |
/// | `host` | a host, or a URL whose host counts | `network` | `AsRef<str>` |
/// | `command` | the command line that the call runs, which also names all that its program does | `execute` | `AsRef<str>` |
///
/// `Option<T>` and `Vec<T>` of such a type name each value, but a call has one command. Once an argument is marked,
/// each of these accesses needs a mark, as rules take the tool for one that names all that it touches. Without marks,
/// a rule with a subject that denies or asks, such as `deny` of `count:secrets/*`, holds for all calls.
///
/// ```
/// use entourage_core::tool::Tool;
/// use entourage_runtime::permission::{Policy, Ruling};
/// # use std::{path::PathBuf, sync::Arc};
/// # use entourage_macros::tool;
///
/// #[tool(access = "read+write", crate = "entourage_core")]
/// /// Save a note.
/// async fn save(#[arg(write)] path: PathBuf, #[arg(read)] template: Option<String>, text: String) {
///     // …
/// }
///
/// let tool: Arc<dyn Tool> = save.into();
/// let footprint = tool.footprint(&serde_json::json!({"path": "./a/../secrets//key", "text": "x"}));
/// assert_eq!(footprint.writes, ["secrets/key"]);
/// let policy = Policy::allow_all().deny("save:secrets/*");
/// assert_eq!(policy.judge(tool.spec(), &footprint), Ruling::Deny("deny save:secrets/*".into()));
/// ```
///
/// The names are those of the values that the function gets, after `#[serde(…)]` and the type have done their part.
///
/// - A path is relative to the current directory, and `.` and `..` are resolved by name. If the tool opens paths
///   elsewhere or expands `~`, do it in the type or with `#[serde(deserialize_with = "…")]`. Links are not followed: a
///   tool whose tree may hold them opens it by a handle that refuses them.
/// - A host is lower case, without user, port and final dot. `url::Url` has the host that a request will use.
/// - An absent argument names nothing. If the function has a default, give it by `#[serde(default = "…")]`: so it is
///   named.
/// - Text with no one meaning, such as `~/x` or `http:/host`, makes the call `Footprint::unclear`: rules with a subject
///   deny and ask, and do not allow. Arguments that do not fit are unclear too, and do not reach the function.
///
/// # State
///
/// With `#[state]` parameters the name is a constructor: call it with their values, in their order, to make the tool.
/// They are cloned for each call: give an `Arc`.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use entourage_core::tool::{Tool, ToolContext, ToolError};
/// # use entourage_macros::tool;
///
/// #[tool(access = "write", crate = "entourage_core")]
/// /// Add to the counter and tell its value.
/// async fn add(#[state] counter: Arc<AtomicU64>, by: u64, cx: &ToolContext<'_>) -> u64 {
///     cx.progress("adding");
///     counter.fetch_add(by, Ordering::Relaxed) + by
/// }
///
/// let counter = Arc::new(AtomicU64::new(0));
/// let tool: Arc<dyn Tool> = add(Arc::clone(&counter)).into();
/// assert_eq!(tool.spec().schema()["required"], serde_json::json!(["by"]));
/// ```
///
/// # Methods
///
/// On a `&self` method of an inherent `impl`, the method stays unchanged and gets a companion with the suffix `_tool`,
/// which makes the tool from an `Arc` of the value. The value must be `Send + Sync + 'static`. In a generic `impl` the
/// parameters cannot use the generic types: there is one schema.
///
/// ```
/// use std::sync::Arc;
/// use entourage_core::tool::Tool;
/// # use entourage_macros::tool;
///
/// struct Greeter { greeting: String }
///
/// impl Greeter {
///     #[tool(access = "none", crate = "entourage_core")]
///     /// Greet somebody.
///     async fn greet(&self, name: String) -> String {
///         format!("{}, {name}!", self.greeting)
///     }
/// }
///
/// let greeter = Arc::new(Greeter { greeting: "Hello".into() });
/// let tool: Arc<dyn Tool> = greeter.greet_tool();
/// assert_eq!(tool.spec().name(), "greet");
/// ```
///
/// # Return value
///
/// A `Result<O, E>` or just `O`, where `O: IntoToolOutput` (strings, numbers, `bool`, `()`, `ToolOutput`, `Json(…)`)
/// and `E: Into<ToolError>`: every type that implements `std::error::Error`, which a `Box<dyn Error>` does not; turn
/// that into `ToolError::tell(error.to_string())`. A `Result` is known by its name, so an alias must be called
/// `Result` too.
///
/// # Generated code
///
/// `#[tool] async fn f` becomes a struct `f` of the same visibility, without fields or with those of the `#[state]`
/// parameters. It implements `Tool`, `Clone`, `Debug` and `Into<Arc<dyn Tool>>`. Without state it has no size and is
/// `Copy`. Its spec is made once for the program. As with any such struct, no variable or parameter in its module can
/// be called `f` (within the function itself one can): the compiler then says that `f` "is interpreted as a unit
/// struct, not a new binding". To call the function directly as well, for example in a test, put its work into a
/// second function. A function without `self` inside an `impl` cannot be a tool, as no struct can stand there: move it
/// out of the `impl`.
#[proc_macro_attribute]
pub fn tool(attribute: proc_macro::TokenStream, item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    tool_of(attribute.into(), &item.into()).into()
}

fn tool_of(attribute: TokenStream, item: &TokenStream) -> TokenStream {
    let mut function = match parse_function(item) {
        Ok(function) => function,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #item);
        }
    };
    let mut errors = Errors::default();
    let options = Options::parse(attribute, &mut errors);
    let params = params::take(&mut function.sig, &mut errors);
    check::function(&function, &params, &mut errors);
    subjects::check(&params, &options.access, &mut errors);
    let spec = check::spec(&function, options, &mut errors);
    match (spec, errors.into_error()) {
        (Some(spec), None) => expand::tool(&function, &params, &spec),
        // The function itself stays, so that editors and the compiler can continue with its body.
        (_, error) => {
            let error = error.map(syn::Error::into_compile_error);
            quote!(#error #function)
        }
    }
}

fn parse_function(item: &TokenStream) -> syn::Result<ItemFn> {
    let error = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(function) => return Ok(function),
        Err(error) => error,
    };
    if let Ok(method) = syn::parse2::<TraitItemFn>(item.clone()) {
        let message = "a tool needs a body: `#[tool]` goes on a free `async fn` or on a method of an inherent `impl`, \
                       not on a method that a trait only declares";
        return Err(syn::Error::new(method.sig.ident.span(), message));
    }
    Err(match syn::parse2::<Item>(item.clone()) {
        Ok(other) => {
            let message = "`#[tool]` goes on an `async fn`: free, or a `&self` method inside an `impl`";
            syn::Error::new(other.span(), message)
        }
        Err(_) => error,
    })
}
