//! Writes `Tool::footprint` of a tool whose arguments name what a call touches.
//!
//! It reads the arguments as the call does and names the values that the function gets. So `rename`, `alias`, `default`
//! and types that parse their text cannot hide anything.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;

use super::Tool;
use crate::params::{Param, Subject, inside};

pub(super) fn method(tool: &Tool<'_>, arguments: &TokenStream) -> Option<TokenStream> {
    let core = &tool.spec.core;
    let names: Vec<_> = tool.params.iter().filter_map(|param| name(tool, param)).collect();
    let paths = |param: &Param| matches!(param.names, Some((Subject::Read | Subject::Write, _)));
    let base =
        tool.params.iter().any(paths).then(|| quote!(let __entourage_base = ::std::env::current_dir().ok();));
    (!names.is_empty()).then(|| {
        quote! {
            fn footprint(&self, __entourage_arguments: &#core::__private::serde_json::Value) -> #core::tool::Footprint {
                let mut __entourage_footprint =
                    #core::tool::Footprint::new(#core::tool::Tool::spec(self).access());
                let __entourage_input =
                    #core::tool::ToolInput::new(::core::clone::Clone::clone(__entourage_arguments));
                let ::core::result::Result::Ok(__entourage_arguments) =
                    __entourage_input.parse::<#arguments>()
                else {
                    __entourage_footprint.unclear = true;
                    return __entourage_footprint;
                };
                #base
                #(#names)*
                __entourage_footprint
            }
        }
    })
}

/// Statements that add what one argument names.
fn name(tool: &Tool<'_>, param: &Param) -> Option<TokenStream> {
    let core = &tool.spec.core;
    let (subject, _) = param.names.as_ref()?;
    let field = &param.ident;
    let (mut ty, mut layers) = (&param.ty, 0_usize);
    while let Some(inner) = inside(ty, &["Option", "Vec"]) {
        (ty, layers) = (inner, layers + 1);
    }
    // The compiler shows a type that is no text where it is written.
    let span = Span::call_site().located_at(ty.span());
    let path = quote_spanned!(span=> ::core::convert::AsRef::<::std::path::Path>::as_ref(__entourage_value));
    let text =
        quote_spanned!(span=> ::core::convert::AsRef::<::core::primitive::str>::as_ref(__entourage_value));
    let with = match subject {
        Subject::Read => {
            quote!(naming_path(#core::tool::Footprint::reading, #path, __entourage_base.as_deref()))
        }
        Subject::Write => {
            quote!(naming_path(#core::tool::Footprint::writing, #path, __entourage_base.as_deref()))
        }
        Subject::Host => quote!(naming_host(#text)),
        Subject::Command => quote!(running(#text)),
    };
    let leaf = quote!(__entourage_footprint = __entourage_footprint.#with;);
    let each = (0..layers)
        .fold(leaf, |inner, _| quote!(for __entourage_value in __entourage_value.iter() { #inner }));
    Some(quote! {{
        let __entourage_value = &__entourage_arguments.#field;
        #each
    }})
}
