//! Output values of nodes, serialized to JSON only on demand.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Result,
    message::{check_value, deserialize_value, json_bytes},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser};
use serde_json::Value;

use super::Output;

/// Output value of a node. Cloning shares it; it is serialized to JSON only when a store or a reader asks.
#[derive(Clone)]
pub struct NodeValue(Form);

#[derive(Clone)]
enum Form {
    /// With its type id, so that a check of the type alone need not touch the value.
    Live(Arc<dyn Live>, TypeId),
    Stored(Arc<Value>),
}

trait Live: Send + Sync {
    fn to_json(&self) -> serde_json::Result<Value>;
    /// Fails if the value's JSON is no value of its type.
    fn read_back(&self) -> serde_json::Result<()>;
    fn shared(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    fn any(&self) -> &dyn Any;
}

impl<T: Output> Live for T {
    fn to_json(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }

    fn read_back(&self) -> serde_json::Result<()> {
        serde_json::from_value::<T>(serde_json::to_value(self)?).map(drop)
    }

    fn shared(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

impl NodeValue {
    /// Wraps `value`, unserialized.
    pub fn new<T: Output>(value: T) -> Self {
        Self(Form::Live(Arc::new(value), TypeId::of::<T>()))
    }

    /// Returns the value as `T`: shared when it was created as a `T` in this process, else parsed from its JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when it is no `T`.
    pub fn get<T: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<Arc<T>> {
        if let Form::Live(live, _) = &self.0
            && let Ok(value) = Arc::clone(live).shared().downcast::<T>()
        {
            return Ok(value);
        }
        let read = |error| {
            Error::new(ErrorKind::Corrupt, "a node's value does not have the type that its dependent takes")
                .caused_by(error)
        };
        serde_json::from_value(self.to_json()?).map(Arc::new).map_err(read)
    }

    /// Borrows the value, when it was created as a `T` in this process.
    pub(crate) fn peek<T: 'static>(&self) -> Option<&T> {
        match &self.0 {
            Form::Live(live, _) => (**live).any().downcast_ref(),
            Form::Stored(_) => None,
        }
    }

    /// Returns about how many bytes the value takes as JSON. A text is not serialized for that.
    pub(crate) fn bytes(&self) -> usize {
        self.peek::<String>().map_or_else(|| json_bytes(self, usize::MAX), String::len)
    }

    /// True when the value was created as a `T` in this process.
    pub(crate) fn is<T: 'static>(&self) -> bool {
        matches!(&self.0, Form::Live(_, of) if *of == TypeId::of::<T>())
    }

    /// Returns the value as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when it does not serialize.
    pub fn to_json(&self) -> Result<Value> {
        match &self.0 {
            Form::Live(live, _) => live.to_json().map_err(|error| {
                Error::new(ErrorKind::Internal, "a node's value does not serialize").caused_by(error)
            }),
            Form::Stored(value) => Ok((**value).clone()),
        }
    }

    /// Checks that the value can be stored and read again.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] or [`ErrorKind::TooLarge`] when it cannot.
    pub(crate) fn check(&self) -> Result<()> {
        check_value(self, "the node's value")?;
        match &self.0 {
            Form::Live(live, of) if *of != TypeId::of::<String>() => live.read_back().map_err(|error| {
                let text = "the node's value cannot be read again from its JSON; use finite numbers, and give each \
                            field that is left out a default";
                Error::new(ErrorKind::InvalidInput, text).caused_by(error)
            }),
            _ => Ok(()),
        }
    }

    /// Returns the value for a person or a model: a string as it is, anything else as JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self.to_json() {
            Ok(Value::String(text)) => text,
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl PartialEq for NodeValue {
    fn eq(&self, other: &Self) -> bool {
        match (self.to_json(), other.to_json()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
    }
}

impl fmt::Debug for NodeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeValue({})", self.to_text())
    }
}

impl Serialize for NodeValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Live(live, _) => live.to_json().map_err(ser::Error::custom)?.serialize(serializer),
            Form::Stored(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_value(deserializer).map(|value| Self(Form::Stored(Arc::new(value))))
    }
}
