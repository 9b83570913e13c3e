//! Sets of tools that requests do not carry: the model finds them with one tool and calls them with another.
//!
//! Nothing here calls a deferred tool. The runtime resolves such a call before it checks and judges it.

mod rank;
mod shown;
mod tools;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::tool::{Tool, Tools, Toolset};

use self::tools::{FindTools, UseTool};
use crate::combined::Redeclared;

/// A set whose tools no request carries, with the two tools that find and call them. Made by
/// [`ToolsetExt::deferred`](crate::ToolsetExt::deferred).
pub struct Deferred<T> {
    inner: T,
    doors: [Arc<dyn Tool>; 2],
    /// The newest tools of the inner set, and what was made of them.
    made: Mutex<Option<(Tools, Tools)>>,
}

impl<T> Deferred<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, doors: [Arc::new(FindTools::new()), Arc::new(UseTool::new())], made: Mutex::default() }
    }

    fn make(&self, tools: &Tools) -> Tools {
        let is_door = |name: &str| self.doors.iter().any(|door| door.spec().name() == name);
        let others = tools.iter().filter(|tool| !is_door(tool.spec().name()));
        let deferred = others.map(|tool| {
            let spec = tool.spec().clone().deferred();
            Arc::new(Redeclared::new(Arc::clone(tool), spec)) as Arc<dyn Tool>
        });
        let mut all: Vec<_> = deferred.chain(self.doors.iter().cloned()).collect();
        all.sort_by(|one, other| one.spec().name().cmp(other.spec().name()));
        Tools::from_sorted(all.into_iter())
    }
}

impl<T: fmt::Debug> fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T: Toolset> Toolset for Deferred<T> {
    fn tools(&self) -> Tools {
        let now = self.inner.tools();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((from, made)) if from.is(&now) => made.clone(),
            _ => {
                let all = self.make(&now);
                *made = Some((now, all.clone()));
                all
            }
        }
    }
}

#[cfg(test)]
mod tests;
