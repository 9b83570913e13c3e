//! Expands a free function into a struct of its name.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, ItemFn, ext::IdentExt};

use super::{Tool, footprint};
use crate::params::Role;

pub(super) fn expand(tool: &Tool<'_>) -> TokenStream {
    let ItemFn { vis, sig, .. } = tool.function;
    let name = &sig.ident;
    let on_struct = tool.attributes(&["doc", "cfg", "deprecated"]);
    let conditions = tool.attributes(&["cfg"]);
    let documented = !tool.attributes(&["doc"]).is_empty();
    let description = &tool.spec.description;
    let doc = (!documented).then(|| quote!(#[doc = #description]));
    let states: Vec<_> = tool.with_role(Role::State).map(|param| &param.ty).collect();
    let fields = (!states.is_empty()).then(|| quote!((#(#vis #states),*)));
    let copy = states.is_empty().then(|| quote!(, ::core::marker::Copy));
    let implementation = implementation(tool);
    quote! {
        #(#on_struct)*
        #doc
        #[allow(non_camel_case_types)]
        #[derive(::core::clone::Clone #copy)]
        #vis struct #name #fields;

        // The block keeps the function and the arguments out of the user's module. Within it the name means the
        // function again, so that its body may use the name freely.
        #(#conditions)*
        #[allow(deprecated)]
        const _: () = {
            #implementation
        };
    }
}

fn implementation(tool: &Tool<'_>) -> TokenStream {
    let core = &tool.spec.core;
    let name = &tool.function.sig.ident;
    let shown = name.unraw().to_string();
    let function = function(tool.function);
    let (definition, arguments) = tool.arguments();
    let spec = tool.spec_method(&arguments);
    let call = tool.call(&quote!(#name), None, &arguments);
    let footprint = footprint::method(tool, &arguments);
    let cx = tool.context_binding();
    quote! {
        #definition

        #function

        #[#core::__private::async_trait]
        impl #core::tool::Tool for #name {
            #spec

            #footprint

            async fn call(
                &self,
                __entourage_input: #core::tool::ToolInput,
                #cx: &#core::tool::ToolContext<'_>,
            ) -> ::core::result::Result<#core::tool::ToolOutput, #core::tool::ToolError> {
                #call
            }
        }

        impl ::core::convert::From<#name> for ::std::sync::Arc<dyn #core::tool::Tool> {
            fn from(__entourage_tool: #name) -> Self {
                ::std::sync::Arc::new(__entourage_tool)
            }
        }

        // State may hold secrets and need not be `Debug`.
        impl ::core::fmt::Debug for #name {
            fn fmt(&self, __entourage_f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Formatter::write_str(__entourage_f, ::core::concat!("Tool(", #shown, ")"))
            }
        }
    }
}

/// The function as written, without the attributes that moved to the struct.
fn function(function: &ItemFn) -> TokenStream {
    let ItemFn { attrs, sig, block, .. } = function;
    let on_struct =
        |it: &&Attribute| !["doc", "cfg", "deprecated"].iter().any(|name| it.path().is_ident(name));
    let attributes = attrs.iter().filter(on_struct);
    quote!(#(#attributes)* #sig #block)
}
