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

#[doc = include_str!("tool.md")]
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
