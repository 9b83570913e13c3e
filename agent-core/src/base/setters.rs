//! Setters of plain options.

/// Defines setters of a struct's fields, each `method(field: type) => value of the field;` with its documentation.
macro_rules! setters {
    ($($(#[$doc:meta])+ $method:ident($field:ident: $ty:ty) => $value:expr;)+) => {
        $(
            $(#[$doc])+
            #[must_use]
            pub fn $method(mut self, $field: $ty) -> Self {
                self.$field = $value;
                self
            }
        )+
    };
}

pub(crate) use setters;
