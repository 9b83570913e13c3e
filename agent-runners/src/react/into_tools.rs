//! Several tools as one argument.

use std::sync::Arc;

use entourage_core::tool::{Tool, Tools};

/// Several tools as an argument: a tuple of up to twelve tools of any types, anything that iterates over
/// `Arc<dyn Tool>`, or a set of [`Tools`]. `Form` is inferred and tells the cases apart.
///
/// ```
/// use std::sync::Arc;
///
/// use entourage_core::tool::{Access, Tool};
/// use entourage_runners::{ReactAgent, from_fn::typed};
/// # let model = entourage_testkit::ScriptedProvider::new().model();
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Nothing {}
/// let now = typed("now", "The time.", Access::NONE, |_: Nothing| async { Ok("noon") });
/// let here = typed("here", "The place.", Access::NONE, |_: Nothing| async { Ok("Oslo") });
/// let shared: Arc<dyn Tool> = Arc::new(here);
///
/// let agent = ReactAgent::builder("guide", model).tools((now, shared)).build().unwrap();
/// assert_eq!(agent.tool_set().iter().count(), 2);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` holds no tools",
    note = "give tools in a tuple, one alone as well: `.tools((first, second))`, `.tools((one,))`"
)]
pub trait IntoTools<Form> {
    /// Returns the tools, shared.
    fn into_tools(self) -> impl IntoIterator<Item = Arc<dyn Tool>>;
}

/// Form of tools that are iterated over.
#[derive(Debug)]
pub enum Iterated {}

/// Items of lists of tools. There is one type of them, so that items which are converted need not name it.
#[diagnostic::on_unimplemented(
    message = "a list of tools has items of `Arc<dyn Tool>`, not of `{T}`",
    label = "holds no `Arc<dyn Tool>`",
    note = "give tools of other types in a tuple, one alone as well: `.tools((first, second))`, `.tools((one,))`"
)]
pub trait Lists<T> {
    /// Returns the tool.
    fn shared(item: T) -> Arc<dyn Tool>;
}

impl Lists<Arc<dyn Tool>> for Iterated {
    fn shared(item: Arc<dyn Tool>) -> Arc<dyn Tool> {
        item
    }
}

/// Form of tools of any types.
#[derive(Debug)]
pub enum Tuple {}

/// Form of a set of tools.
#[derive(Debug)]
pub enum Set {}

impl<I: IntoIterator> IntoTools<Iterated> for I
where
    Iterated: Lists<I::Item>,
{
    fn into_tools(self) -> impl IntoIterator<Item = Arc<dyn Tool>> {
        self.into_iter().map(Iterated::shared)
    }
}

impl IntoTools<Set> for Tools {
    fn into_tools(self) -> impl IntoIterator<Item = Arc<dyn Tool>> {
        self.iter().cloned().collect::<Vec<_>>()
    }
}

macro_rules! tuples {
    ($first:ident $($tool:ident)*) => {
        impl<$first: Tool + 'static $(, $tool: Tool + 'static)*> IntoTools<Tuple> for ($first, $($tool,)*) {
            #[allow(non_snake_case, reason = "a value has the name of its type")]
            fn into_tools(self) -> impl IntoIterator<Item = Arc<dyn Tool>> {
                let ($first, $($tool,)*) = self;
                [Arc::new($first) as Arc<dyn Tool> $(, Arc::new($tool) as _)*]
            }
        }
        tuples!($($tool)*);
    };
    () => {};
}

tuples!(A B C D E F G H I J K L);
