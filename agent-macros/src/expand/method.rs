//! Expands a method: it stays, and gets a companion that makes the tool.
//!
//! Items in a method know neither `Self` nor the generics of the `impl`. Generic parts are therefore parameters of the
//! local struct, and the call is a closure, which does know them.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Tool, footprint, maker};

pub(super) fn expand(tool: &Tool<'_>) -> TokenStream {
    let core = &tool.spec.core;
    let function = tool.function;
    let (vis, name) = (&function.vis, &function.sig.ident);
    let conditions = tool.attributes(&["cfg"]);
    let maker = maker(name);
    let doc = format!("The tool `{}`: a call of it calls `{name}` on this value.", tool.spec.name);
    let (definition, arguments) = tool.arguments();
    let local = local_struct(tool, &arguments);
    let call = tool.call(&quote!(Self::#name), Some(quote!(__entourage_owner)), &arguments);
    let cx = tool.context_binding();
    quote! {
        #function

        #(#conditions)*
        #[doc = #doc]
        #[must_use]
        #vis fn #maker(self: &::std::sync::Arc<Self>) -> ::std::sync::Arc<dyn #core::tool::Tool>
        where
            Self: ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            #definition

            #local

            ::std::sync::Arc::new(__EntourageTool {
                owner: ::std::sync::Arc::clone(self),
                call: |__entourage_owner: &Self, __entourage_input, #cx| {
                    ::std::boxed::Box::pin(async move { #call })
                },
            })
        }
    }
}

fn local_struct(tool: &Tool<'_>, arguments: &TokenStream) -> TokenStream {
    let core = &tool.spec.core;
    let spec = tool.spec_method(arguments);
    let footprint = footprint::method(tool, arguments);
    let result = quote!(::core::result::Result<#core::tool::ToolOutput, #core::tool::ToolError>);
    quote! {
        struct __EntourageTool<S> {
            owner: ::std::sync::Arc<S>,
            call: for<'a, 'b> fn(
                &'a S,
                #core::tool::ToolInput,
                &'a #core::tool::ToolContext<'b>,
            ) -> ::core::pin::Pin<
                ::std::boxed::Box<dyn ::core::future::Future<Output = #result> + ::core::marker::Send + 'a>,
            >,
        }

        #[#core::__private::async_trait]
        impl<S: ::core::marker::Send + ::core::marker::Sync + 'static> #core::tool::Tool for __EntourageTool<S> {
            #spec

            #footprint

            async fn call(
                &self,
                __entourage_input: #core::tool::ToolInput,
                __entourage_cx: &#core::tool::ToolContext<'_>,
            ) -> #result {
                (self.call)(&self.owner, __entourage_input, __entourage_cx).await
            }
        }
    }
}
