//! Setters of plain options, and options taken from others.

/// Defines setters of a struct's fields, each `method(field: type) => value of the field;` with its documentation, or
/// all of a block `method(argument: type) sets field = value;`.
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
    ($($(#[$doc:meta])+ $method:ident($($arg:ident: $ty:ty),*) sets $($field:tt).+ = $value:expr;)+) => {
        $(
            $(#[$doc])+
            #[must_use]
            pub fn $method(mut self, $($arg: $ty),*) -> Self {
                self.$($field).+ = $value;
                self
            }
        )+
    };
}

/// Takes each of these options that is absent from `others`.
macro_rules! take_absent {
    ($to:expr, $others:expr; $($field:ident)+) => {
        $(if $to.$field.is_none() { $to.$field.clone_from(&$others.$field); })+
    };
}

pub(crate) use {setters, take_absent};
