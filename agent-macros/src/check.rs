//! Checks a function that shall become a tool. Every message names the mistake and the remedy.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{
    FnArg, ItemFn, LitStr, Path, Receiver, ReceiverKind, Safety, Signature, Type, TypeImplTrait,
    TypeReference,
    ext::IdentExt,
    visit::{self, Visit},
};

use crate::{
    attribute::Options,
    docs,
    errors::Errors,
    params::{Param, Role, names, ungroup},
};

/// The tool's declaration, checked.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) name: String,
    /// An expression that gives the text.
    pub(crate) description: TokenStream,
    /// Constants of `Access`, to be joined.
    pub(crate) access: Vec<Ident>,
    /// A variant of `Repeat`.
    pub(crate) repeat: Option<Ident>,
    /// Milliseconds, above zero.
    pub(crate) timeout: Option<u64>,
    /// Path of entourage-core, or of a crate that exports its tools.
    pub(crate) core: Path,
}

/// Combines the attribute and the docs of the function; `None` if name or description are missing.
pub(crate) fn spec(function: &ItemFn, options: Options, errors: &mut Errors) -> Option<Spec> {
    let described = options.description.map(ToTokens::into_token_stream);
    let description = described.or_else(|| docs::description(&function.attrs));
    let ident = &function.sig.ident;
    if description.is_none() {
        errors.on(
            ident,
            format!(
                "the tool `{}` has no description, by which a model chooses it; write a doc comment (`/// …`) on the \
                 function, or `#[tool(description = \"…\")]`",
                ident.unraw()
            ),
        );
    }
    let name = checked_name(ident, options.name.as_ref(), errors);
    Some(Spec {
        name: name?,
        description: description?,
        access: options.access,
        repeat: options.repeat,
        timeout: options.timeout,
        core: options.core,
    })
}

fn checked_name(ident: &Ident, given: Option<&LitStr>, errors: &mut Errors) -> Option<String> {
    let name = given.map_or_else(|| ident.unraw().to_string(), LitStr::value);
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(allowed) {
        return Some(name);
    }
    let rule =
        "a tool's name is 1 to 64 letters (a to z), digits, `_` and `-`, as model services refuse others";
    match given {
        Some(given) => errors.on(given, rule),
        None => errors.on(ident, format!("{rule}; give one with `#[tool(name = \"…\")]`")),
    }
    None
}

/// Checks the signature.
pub(crate) fn function(function: &ItemFn, params: &[Param], errors: &mut Errors) {
    let signature = &function.sig;
    qualifiers(signature, errors);
    generics(signature, errors);
    let receiver = signature.inputs.iter().find_map(|input| match input {
        FnArg::Receiver(receiver) => Some(receiver),
        FnArg::Typed(_) => None,
    });
    if let Some(receiver) = receiver {
        check_receiver(receiver, errors);
    }
    for param in params {
        check_type(param, receiver.is_some(), errors);
    }
    roles(params, receiver.is_some(), errors);
}

fn qualifiers(signature: &Signature, errors: &mut Errors) {
    if signature.asyncness.is_none() {
        let name = &signature.ident;
        errors.on(
            signature.fn_token,
            format!(
                "`#[tool]` needs an `async fn`: write `async fn {name}`; do work that blocks in \
                 `tokio::task::spawn_blocking`"
            ),
        );
    }
    if let Safety::Unsafe(keyword) = &signature.safety {
        errors.on(
            keyword,
            "a model calls a tool with any arguments, so it cannot be `unsafe`; check them in the function",
        );
    }
    if let Some(abi) = &signature.abi {
        errors.on(abi, "a tool is called by Rust code only; take the ABI away");
    }
}

fn generics(signature: &Signature, errors: &mut Errors) {
    let generics = &signature.generics;
    if let Some(parameter) = generics.params.first() {
        let message = "a tool has one schema, so its function cannot be generic: write concrete types, and `'_` for \
                       the lifetime of a `ToolContext`";
        errors.push(syn::Error::new_spanned(parameter, message));
    } else if let Some(clause) = &generics.where_clause {
        errors.on(clause, "a tool cannot be generic, so a `where` clause says nothing; take it away");
    }
}

fn check_receiver(receiver: &Receiver, errors: &mut Errors) {
    let fine = matches!(&receiver.kind, ReceiverKind::Reference(_, None, None));
    if !fine {
        errors.on(
            receiver,
            "calls of a tool share their value and may run at the same time: take `&self`, and keep what changes in a \
             `Mutex` or an atomic",
        );
    }
}

fn roles(params: &[Param], method: bool, errors: &mut Errors) {
    let of = |role| params.iter().filter(move |param: &&Param| param.role == role);
    for param in of(Role::Context).skip(1) {
        errors.on(&param.ident, "the `ToolContext` is already a parameter; take this one away");
    }
    for param in of(Role::Arguments).skip(1) {
        errors.on(
            &param.ident,
            "`#[args]` is the whole argument object, so one parameter has it; join the two structs",
        );
    }
    if of(Role::Arguments).next().is_some() {
        for param in of(Role::Argument) {
            let name = param.ident.unraw();
            errors.on(
                &param.ident,
                format!("`#[args]` is the whole argument object; make `{name}` a field of its struct, or mark it `#[state]`"),
            );
        }
    }
    for param in of(Role::State).filter(|_| method) {
        errors.on(
            &param.ident,
            "a method has its state in `self`; make this a field of the struct, or a free function",
        );
    }
}

fn check_type(param: &Param, method: bool, errors: &mut Errors) {
    if param.role == Role::Context {
        return;
    }
    if names(&param.ty, "ToolContext") || mutable_context(&param.ty) {
        errors.on(&param.ty, "the run lends its context: take `&ToolContext<'_>`");
        return;
    }
    TypeCheck { role: param.role, method, errors }.visit_type(&param.ty);
}

fn mutable_context(ty: &Type) -> bool {
    matches!(ungroup(ty), Type::Reference(reference) if names(&reference.elem, "ToolContext"))
}

/// Finds what cannot stand in the type of a parameter, at any depth.
struct TypeCheck<'e> {
    role: Role,
    method: bool,
    errors: &'e mut Errors,
}

impl<'ast> Visit<'ast> for TypeCheck<'_> {
    fn visit_type_reference(&mut self, reference: &'ast TypeReference) {
        if self.role == Role::State {
            // `&'static T` is as good a state as an `Arc`.
            if reference.lifetime.as_ref().is_some_and(|lifetime| lifetime.ident == "static") {
                return;
            }
            let inner = shown(&reference.elem);
            self.errors.on(
                reference,
                format!("the tool keeps its state: take an owned value, such as `Arc<{inner}>`"),
            );
            return;
        }
        let owned = owned(&reference.elem);
        self.errors.on(
            reference,
            format!("an argument comes out of the model's JSON and cannot be borrowed; take {owned}"),
        );
    }

    fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
        self.errors.on(ty, "the schema needs a concrete type: write its name instead of `impl …`");
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if self.method && path.is_ident("Self") {
            self.errors
                .on(path, "`Self` is not known where the arguments are read: write the name of the type");
        }
        visit::visit_path(self, path);
    }
}

/// The owned type to suggest instead of a reference to `ty`.
fn owned(ty: &Type) -> String {
    match ungroup(ty) {
        Type::Slice(slice) => format!("`Vec<{}>`", shown(&slice.elem)),
        ty if names(ty, "str") => "`String`".to_owned(),
        ty if names(ty, "Path") => "`PathBuf`".to_owned(),
        ty => format!("`{}`", shown(ty)),
    }
}

/// `ty` in the usual spelling: printed tokens have spaces everywhere.
fn shown(ty: &Type) -> String {
    let text = quote!(#ty).to_string();
    [(" :: ", "::"), (":: ", "::"), (" < ", "<"), ("< ", "<"), (" >", ">"), (" ,", ","), ("& ", "&")]
        .into_iter()
        .fold(text, |text, (from, to)| text.replace(from, to))
}
