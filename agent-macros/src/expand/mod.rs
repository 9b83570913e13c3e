//! Writes the code of the tool. Checks nothing: its input has been judged.
//!
//! Names of bindings and types in the generated code begin with `__entourage`, since a user's constant or unit struct
//! of the same name would turn a binding into a comparison.

mod footprint;
mod free;
mod method;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{
    Attribute, FnArg, GenericArgument, ItemFn, LitStr, PathArguments, ReturnType, Type, ext::IdentExt,
    spanned::Spanned,
};

use crate::{
    check::Spec,
    params::{Param, Role, ungroup},
};

/// The items that replace the function.
pub(crate) fn tool(function: &ItemFn, params: &[Param], spec: &Spec) -> TokenStream {
    let tool = Tool { function, params, spec };
    if function.sig.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_))) {
        method::expand(&tool)
    } else {
        free::expand(&tool)
    }
}

/// Everything known about the tool to write.
struct Tool<'a> {
    function: &'a ItemFn,
    params: &'a [Param],
    spec: &'a Spec,
}

impl Tool<'_> {
    fn with_role(&self, role: Role) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(move |param| param.role == role)
    }

    /// The attributes of the function with one of these names.
    fn attributes(&self, names: &[&str]) -> Vec<&Attribute> {
        let named = |it: &&Attribute| names.iter().any(|name| it.path().is_ident(name));
        self.function.attrs.iter().filter(named).collect()
    }

    /// The struct for the arguments, unless the user has one, and its type.
    fn arguments(&self) -> (TokenStream, TokenStream) {
        if let Some(param) = self.with_role(Role::Arguments).next() {
            return (TokenStream::new(), param.ty.to_token_stream());
        }
        let core = &self.spec.core;
        let span = core.span();
        let at = |name| LitStr::new(&format!("{}::__private::{name}", core.to_token_stream()), span);
        let (serde, schemars) = (at("serde"), at("schemars"));
        let fields = self
            .with_role(Role::Argument)
            .map(|Param { ident, ty, field, .. }| quote!(#(#field)* #ident: #ty));
        let definition = quote! {
            #[derive(#core::__private::serde::Deserialize, #core::__private::schemars::JsonSchema)]
            #[serde(crate = #serde)]
            #[schemars(crate = #schemars)]
            struct __EntourageArguments { #(#fields),* }
        };
        (definition, quote!(__EntourageArguments))
    }

    /// `fn spec` of the `Tool` impl. The spec is made once for the program, however many agents have the tool.
    fn spec_method(&self, arguments: &TokenStream) -> TokenStream {
        let Spec { name, description, access, repeat, timeout, core } = self.spec;
        let named = self.params.iter().any(|param| param.names.is_some()).then(|| quote!(.naming_subjects()));
        let repeat = repeat.iter().map(|repeat| quote!(.with_repeat(#core::tool::Repeat::#repeat)));
        let timeout =
            timeout.iter().map(|millis| quote!(.with_timeout(::core::time::Duration::from_millis(#millis))));
        quote! {
            fn spec(&self) -> &#core::tool::ToolSpec {
                static __ENTOURAGE_SPEC: ::std::sync::LazyLock<#core::tool::ToolSpec> = ::std::sync::LazyLock::new(|| {
                    #core::tool::ToolSpec::new(#name, ::core::primitive::str::trim(#description), #core::tool::schema_of::<#arguments>())
                        .with_access(#(#core::tool::Access::#access)|*)
                        #(#repeat)*
                        #(#timeout)*
                        #named
                });
                &__ENTOURAGE_SPEC
            }
        }
    }

    /// Statements that read the arguments and call `callee`, ending with the `Result` of `Tool::call`. `first` comes
    /// before the parameters; `__entourage_input` and `__entourage_cx` are in scope.
    fn call(&self, callee: &TokenStream, first: Option<TokenStream>, arguments: &TokenStream) -> TokenStream {
        let mut states = 0..;
        let values = self.params.iter().map(|param| match param.role {
            Role::Argument => {
                let field = &param.ident;
                quote!(__entourage_arguments.#field)
            }
            Role::Arguments => quote!(__entourage_arguments),
            Role::State => {
                let place = states.next().map(syn::Index::from);
                quote!(__entourage_state.#place)
            }
            Role::Context => quote!(__entourage_cx),
        });
        let values = first.into_iter().chain(values);
        let state = self
            .with_role(Role::State)
            .next()
            .map(|_| quote!(let __entourage_state = ::core::clone::Clone::clone(self);));
        let given = self.params.iter().any(|it| matches!(it.role, Role::Argument | Role::Arguments));
        let binding = given.then(|| quote!(let __entourage_arguments =));
        let answer = self.answer(&quote!(#callee(#(#values),*).await));
        quote! {
            #state
            #binding __entourage_input.parse::<#arguments>()?;
            #answer
        }
    }

    /// The function's return value as the `Result` of `Tool::call`. Compiler errors about its types point at them.
    fn answer(&self, value: &TokenStream) -> TokenStream {
        let core = &self.spec.core;
        let shown = |span: Span| {
            let span = Span::call_site().located_at(span);
            quote_spanned!(span=> #core::tool::IntoToolOutput::into_output(__entourage_value))
        };
        let Some((success, failure)) = result(&self.function.sig.output) else {
            let span = match &self.function.sig.output {
                ReturnType::Type(_, ty) => ty.span(),
                ReturnType::Default => Span::call_site(),
            };
            let shown = shown(span);
            return quote! {
                let __entourage_value = #value;
                #shown
            };
        };
        let shown = shown(success);
        let span = Span::call_site().located_at(failure);
        let told =
            quote_spanned!(span=> ::core::convert::Into::<#core::tool::ToolError>::into(__entourage_error));
        quote! {
            match #value {
                ::core::result::Result::Ok(__entourage_value) => #shown,
                ::core::result::Result::Err(__entourage_error) => ::core::result::Result::Err(#told),
            }
        }
    }

    /// The context parameter of `Tool::call`, unnamed if the function does not take it.
    fn context_binding(&self) -> TokenStream {
        match self.with_role(Role::Context).next() {
            Some(_) => quote!(__entourage_cx),
            None => quote!(_),
        }
    }
}

/// Spans of the success and the failure type, if the function returns a type named `Result`.
fn result(output: &ReturnType) -> Option<(Span, Span)> {
    let ReturnType::Type(_, ty) = output else { return None };
    let Type::Path(path) = ungroup(ty) else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Result")?;
    let mut spans = Vec::new();
    if let PathArguments::AngleBracketed(arguments) = &last.arguments {
        spans.extend(arguments.args.iter().filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty.span()),
            _ => None,
        }));
    }
    let whole = ty.span();
    let mut spans = spans.into_iter();
    Some((spans.next().unwrap_or(whole), spans.next().unwrap_or(whole)))
}

/// Name of the method that makes the tool of a method.
fn maker(method: &Ident) -> Ident {
    format_ident!("{}_tool", method.unraw(), span = method.span())
}
