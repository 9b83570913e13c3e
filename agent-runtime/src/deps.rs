//! Values of the program's own types, which its agents and tools find by type. They are never stored, and cross to no
//! other process.

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::Arc,
};

/// A value that was given, shared.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// The values that were given, one of each type. Cloning shares them.
///
/// They are few, so a search from the first one on is quick. Without any, nothing is allocated or counted.
#[derive(Clone, Default)]
pub(crate) struct Deps(Option<Arc<[Dep]>>);

#[derive(Clone)]
struct Dep {
    of: TypeId,
    name: &'static str,
    value: Value,
}

impl Deps {
    /// Returns the same values with this one, which takes the place of another one of its type.
    pub(crate) fn with<T: Any + Send + Sync>(&self, value: T) -> Self {
        let dep = Dep { of: TypeId::of::<T>(), name: type_name::<T>(), value: Arc::new(value) };
        let others = self.iter().filter(|other| other.of != dep.of).cloned();
        Self(Some(others.chain([dep.clone()]).collect()))
    }

    /// Returns the value of this type.
    pub(crate) fn get(&self, of: TypeId) -> Option<Value> {
        self.iter().find(|dep| dep.of == of).map(|dep| Arc::clone(&dep.value))
    }

    fn iter(&self) -> impl Iterator<Item = &Dep> {
        self.0.iter().flat_map(|deps| deps.iter())
    }
}

impl fmt::Debug for Deps {
    /// Shows the types alone: a value may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|dep| dep.name)).finish()
    }
}
