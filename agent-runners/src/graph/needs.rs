//! The inputs of a node as types: handles, optional handles, lists of them, and tuples of these.

use std::{any::TypeId, fmt, marker::PhantomData, sync::Arc};

use entourage_core::{Error, ErrorKind, Result, message::Message};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    EdgeNumbers, Handle, Inputs, NodeValue, Problem,
    draft::{Draft, Links},
};

/// A value that a node can return. Implemented for every type that meets the bounds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a node",
    note = "an output is stored and read again: derive `serde::Serialize` and `serde::Deserialize`, and borrow nothing"
)]
pub trait Output: Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Output for T {}

/// Inputs that a node can take from the nodes before it.
///
/// | declared | its function is given |
/// |---|---|
/// | `()` | `()` |
/// | `&a`, a [`Handle`] of a node that returns `T` | `Arc<T>`, shared by all that take it |
/// | `a.optional()` | `Option<Arc<T>>`: `None` when the node was skipped, failed or otherwise gave no value |
/// | `graph.input()` | `Arc<String>`: the text that the graph was given |
/// | `graph.message()` | `Arc<Message>`: that text with the images and documents that came with it |
/// | a slice, array or `Vec` of handles, all of nodes that return `T` | [`Each<T>`](Each): as a list, in that order |
/// | a tuple of up to eight of these | a tuple of their values |
///
/// A map gives its function each item by value, whether a step or an agent works on it.
///
/// # Compile errors
/// A step that takes another type than the node gives:
///
/// ```compile_fail,E0631
/// # use std::sync::Arc;
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let number = graph.step("number", (), |()| async { Ok(7_u32) });
/// graph.step("text", &number, |text: Arc<String>| async move { Ok(text.len()) });
/// ```
///
/// A value that may be absent, taken as if it were always there:
///
/// ```compile_fail,E0614
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let number = graph.step("number", (), |()| async { Ok(7_u32) });
/// graph.step("double", number.optional(), |number| async move { Ok(*number * 2) });
/// ```
///
/// A node that returns a value which cannot be stored:
///
/// ```compile_fail,E0277
/// # use entourage_runners::graph::TaskGraph;
/// struct Secret;
/// let graph = TaskGraph::builder("types");
/// graph.step("secret", (), |()| async { Ok(Secret) });
/// ```
///
/// A list processed as if its items had another type, a condition on another type, a graph declared to return another
/// type, and an input that is no node:
///
/// ```compile_fail,E0631
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let numbers = graph.step("numbers", (), |()| async { Ok(vec![7_u32]) });
/// graph.map("texts", &numbers, |text: String| async move { Ok(text) });
/// ```
///
/// ```compile_fail,E0631
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let number = graph.step("number", (), |()| async { Ok(7_u32) });
/// graph.step("next", (), |()| async { Ok(()) }).when(&number, |text: &String| text.is_empty());
/// ```
///
/// ```compile_fail,E0308
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let number = graph.step("number", (), |()| async { Ok(7_u32) });
/// let graph: TaskGraph<String> = graph.returning(&number).build().unwrap();
/// ```
///
/// ```compile_fail,E0277
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// graph.step("next", "number", |_| async { Ok(()) });
/// ```
///
/// With the right types all of these compile:
///
/// ```
/// # use std::sync::Arc;
/// # use entourage_runners::graph::TaskGraph;
/// let graph = TaskGraph::builder("types");
/// let number = graph.step("number", (), |()| async { Ok(7_u32) });
/// graph.step("text", &number, |number: Arc<u32>| async move { Ok(number.to_string()) });
/// graph.step("double", number.optional(), |number| async move { Ok(number.map_or(0, |number| *number * 2)) });
/// let numbers = graph.step("numbers", (), |()| async { Ok(vec![7_u32]) });
/// graph.map("texts", &numbers, |number: u32| async move { Ok(number) });
/// graph.step("next", (), |()| async { Ok(()) }).when(&number, |number: &u32| *number > 0);
/// let graph: TaskGraph<u32> = graph.returning(&number).build().unwrap();
/// assert_eq!(graph.nodes().len(), 6);
/// ```
pub trait Needs: Wire {}

impl<W: Wire> Needs for W {}

/// The text that a graph is given when it runs: see [`TaskGraphBuilder::input`](super::TaskGraphBuilder::input).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphInput(pub(super) ());

/// The message that a graph is given when it runs, with its images and documents: see
/// [`TaskGraphBuilder::message`](super::TaskGraphBuilder::message).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphMessage(pub(super) ());

/// The output of a node that may give none: see [`Handle::optional`].
#[derive(Debug, Clone)]
pub struct Optional<T>(pub(super) Handle<T>);

/// The outputs of several nodes, as a list. It is a view: nothing is copied or reference-counted per item.
pub struct Each<T> {
    inputs: Inputs,
    edges: EdgeNumbers,
    /// Values parsed from JSON, when a resumed run has no live ones.
    read: Option<Vec<Option<Arc<T>>>>,
}

impl<T: Output> Each<T> {
    /// Returns the number of nodes, including those that gave no value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns true when there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the output of the node at `index`. `None` beyond the end, and for an optional node that gave none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        match &self.read {
            Some(read) => read.get(index)?.as_deref(),
            None => self.inputs.peek(self.edges.get(index)?)?.peek(),
        }
    }

    /// Iterates over the outputs in order, without optional nodes that gave none.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<T> fmt::Debug for Each<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Each").field("len", &self.edges.len()).finish_non_exhaustive()
    }
}

/// Adds the inputs of a node.
pub struct Wiring<'a> {
    pub(super) draft: &'a Arc<Draft>,
    pub(super) links: &'a mut Links,
    /// True when the node takes values; false when it only runs after the others.
    pub(super) values: bool,
}

impl fmt::Debug for Wiring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring").field("of", &self.links.id).finish_non_exhaustive()
    }
}

impl Wiring<'_> {
    /// Adds a required edge from `handle`; none, and a noted problem, when the handle is of another graph.
    pub(super) fn edge_from<T: Output>(&mut self, handle: &Handle<T>) -> Option<usize> {
        self.wire(handle, false)
    }

    fn wire<T: Output>(&mut self, handle: &Handle<T>, optional: bool) -> Option<usize> {
        if !Arc::ptr_eq(self.draft, &handle.draft) {
            let (node, dependency) = (Arc::clone(&self.links.id), Arc::clone(&handle.id));
            self.links.problems.push(Problem::Foreign { node, dependency });
            return None;
        }
        let takes = self.values.then(TypeId::of::<T>);
        Some(self.links.edge(handle.place, takes, optional, self.values && !optional))
    }

    /// Adds an edge and returns its number. An invalid edge gets a number that is never used: its graph is never built.
    fn edge<T: Output>(&mut self, handle: &Handle<T>, optional: bool) -> usize {
        self.wire(handle, optional).unwrap_or(usize::MAX)
    }
}

pub(super) mod sealed {
    use super::{Inputs, Result, Wiring};

    /// Implementation behind `Needs`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be an input of a node",
        note = "give the handle of a node, `handle.optional()`, `graph.input()`, `graph.message()`, a slice of handles, or a tuple of up to eight of these"
    )]
    pub trait Wire {
        /// Argument of the node's function.
        type Given: Send + 'static;
        /// Reader that takes it from the inputs of a run.
        type Reader: Read<Given = Self::Given>;

        /// Adds the edges to a node.
        fn wire(&self, wiring: &mut Wiring<'_>) -> Self::Reader;
    }

    /// Reads the inputs that a node takes.
    pub trait Read: Send + Sync + 'static {
        /// Type of the inputs.
        type Given;

        /// Reads the inputs of one run.
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "nobody outside can name this trait")]
        fn read(&self, inputs: &Inputs) -> Result<Self::Given>;
    }
}

use sealed::{Read, Wire};

#[diagnostic::do_not_recommend]
impl<W: Wire + ?Sized> Wire for &W {
    type Given = W::Given;
    type Reader = W::Reader;

    fn wire(&self, wiring: &mut Wiring<'_>) -> Self::Reader {
        (**self).wire(wiring)
    }
}

/// Reads the output of one node.
#[derive(Debug)]
pub struct One<T> {
    edge: usize,
    id: Arc<str>,
    gives: PhantomData<fn() -> T>,
}

impl<T: Output> Wire for Handle<T> {
    type Given = Arc<T>;
    type Reader = One<T>;

    fn wire(&self, wiring: &mut Wiring<'_>) -> One<T> {
        One { edge: wiring.edge(self, false), id: Arc::clone(&self.id), gives: PhantomData }
    }
}

#[allow(private_interfaces, reason = "nobody outside can name this trait")]
impl<T: Output> Read for One<T> {
    type Given = Arc<T>;

    fn read(&self, inputs: &Inputs) -> Result<Arc<T>> {
        match inputs.get(self.edge) {
            Some(value) => value.get(),
            None => Err(nothing().with("node", &*self.id)),
        }
    }
}

fn nothing() -> Error {
    let text = "a required input has no value; take it with `optional` where it may be skipped";
    Error::new(ErrorKind::InvalidInput, text)
}

/// Reads the output of one node, if it gave one.
#[derive(Debug)]
pub struct Maybe<T> {
    edge: usize,
    gives: PhantomData<fn() -> T>,
}

impl<T: Output> Wire for Optional<T> {
    type Given = Option<Arc<T>>;
    type Reader = Maybe<T>;

    fn wire(&self, wiring: &mut Wiring<'_>) -> Maybe<T> {
        Maybe { edge: wiring.edge(&self.0, true), gives: PhantomData }
    }
}

#[allow(private_interfaces, reason = "nobody outside can name this trait")]
impl<T: Output> Read for Maybe<T> {
    type Given = Option<Arc<T>>;

    fn read(&self, inputs: &Inputs) -> Result<Option<Arc<T>>> {
        inputs.get(self.edge).map(|value| value.get()).transpose()
    }
}

/// Reads the outputs of several nodes.
#[derive(Debug)]
pub struct Many<T> {
    edges: EdgeNumbers,
    optional: bool,
    gives: PhantomData<fn() -> T>,
}

impl<T: Output> Wire for [Handle<T>] {
    type Given = Each<T>;
    type Reader = Many<T>;

    fn wire(&self, wiring: &mut Wiring<'_>) -> Many<T> {
        let edges = self.iter().map(|handle| wiring.edge(handle, false)).collect();
        Many { edges, optional: false, gives: PhantomData }
    }
}

impl<T: Output> Wire for [Optional<T>] {
    type Given = Each<T>;
    type Reader = Many<T>;

    fn wire(&self, wiring: &mut Wiring<'_>) -> Many<T> {
        let edges = self.iter().map(|handle| wiring.edge(&handle.0, true)).collect();
        Many { edges, optional: true, gives: PhantomData }
    }
}

#[allow(private_interfaces, reason = "nobody outside can name this trait")]
impl<T: Output> Read for Many<T> {
    type Given = Each<T>;

    fn read(&self, inputs: &Inputs) -> Result<Each<T>> {
        let mut gaps = false;
        // A fold without early exit: it costs little per edge of a long list.
        let live = self.edges.iter().fold(true, |live, edge| match inputs.peek(edge) {
            Some(value) => live & value.is::<T>(),
            None => {
                gaps = true;
                live
            }
        });
        if gaps && !self.optional {
            return Err(nothing());
        }
        let read = |edge: usize| inputs.get(edge).map(|value| value.get()).transpose();
        let read = if live { None } else { Some(self.edges.iter().map(read).collect::<Result<_>>()?) };
        Ok(Each { inputs: inputs.clone(), edges: self.edges.clone(), read })
    }
}

macro_rules! lists {
    ($($of:ident)*) => {$(
        impl<T: Output> Wire for Vec<$of<T>> {
            type Given = Each<T>;
            type Reader = Many<T>;

            fn wire(&self, wiring: &mut Wiring<'_>) -> Many<T> {
                self.as_slice().wire(wiring)
            }
        }

        impl<T: Output, const N: usize> Wire for [$of<T>; N] {
            type Given = Each<T>;
            type Reader = Many<T>;

            fn wire(&self, wiring: &mut Wiring<'_>) -> Many<T> {
                self.as_slice().wire(wiring)
            }
        }
    )*};
}

lists!(Handle Optional);

/// Reads the text that the graph was given.
#[derive(Debug)]
pub struct Given(());

impl Wire for GraphInput {
    type Given = Arc<String>;
    type Reader = Given;

    fn wire(&self, wiring: &mut Wiring<'_>) -> Given {
        wiring.links.input = true;
        Given(())
    }
}

#[allow(private_interfaces, reason = "nobody outside can name this trait")]
impl Read for Given {
    type Given = Arc<String>;

    fn read(&self, inputs: &Inputs) -> Result<Arc<String>> {
        NodeValue::get(inputs.input())
    }
}

/// Reads the message that the graph was given.
#[derive(Debug)]
pub struct GivenMessage(());

impl Wire for GraphMessage {
    type Given = Arc<Message>;
    type Reader = GivenMessage;

    fn wire(&self, wiring: &mut Wiring<'_>) -> GivenMessage {
        wiring.links.input = true;
        GivenMessage(())
    }
}

#[allow(private_interfaces, reason = "nobody outside can name this trait")]
impl Read for GivenMessage {
    type Given = Arc<Message>;

    fn read(&self, inputs: &Inputs) -> Result<Arc<Message>> {
        Ok(Arc::clone(inputs.message()))
    }
}

macro_rules! tuples {
    ($(($($part:ident $place:tt),*))*) => {$(
        impl<$($part: Wire),*> Wire for ($($part,)*) {
            type Given = ($($part::Given,)*);
            type Reader = ($($part::Reader,)*);

            #[allow(unused_variables, reason = "the empty tuple takes nothing")]
            #[allow(clippy::unused_unit, reason = "the empty tuple takes nothing")]
            fn wire(&self, wiring: &mut Wiring<'_>) -> Self::Reader {
                ($(self.$place.wire(wiring),)*)
            }
        }

        #[allow(private_interfaces, reason = "nobody outside can name this trait")]
        impl<$($part: Read),*> Read for ($($part,)*) {
            type Given = ($($part::Given,)*);

            #[allow(unused_variables, reason = "the empty tuple takes nothing")]
            fn read(&self, inputs: &Inputs) -> Result<Self::Given> {
                Ok(($(self.$place.read(inputs)?,)*))
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
