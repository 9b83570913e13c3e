//! Checks of a model's tool calls against the tools that were offered. Pure; never runs anything.

use std::sync::Arc;

use entourage_core::{
    message::{Arguments, ToolCall},
    permission::Scope,
    provider::RawCall,
    tool::{Repair, Tool, ToolSpec, Tools},
};
use serde_json::Value;

use crate::{deferred, reply::parsed_call, schema};

/// Turns a raw call into one that can be stored and replayed.
///
/// Arguments that are not a JSON object are repaired by the hook, else by
/// [`repair_json`](crate::reply::repair_json). If that fails, the call keeps `{}` and `malformed` holds an
/// excerpt of the text. A name that services would refuse on replay is made acceptable. A call with a name longer than
/// a tool's may be is malformed, since the first characters of its name may be another tool's.
pub(super) fn check_call(raw: RawCall, hook: Option<(&dyn Repair, &Tools)>) -> ToolCall {
    let raw = match hook {
        Some((hook, tools)) => mend(raw, hook, tools),
        None => raw,
    };
    parsed_call(raw)
}

fn mend(raw: RawCall, hook: &dyn Repair, tools: &Tools) -> RawCall {
    let problem = match Arguments::parse(&raw.arguments) {
        Ok(arguments) => {
            let call = ToolCall::new(Arc::clone(&raw.id), Arc::clone(&raw.name), arguments);
            let call = deferred::resolved(tools, &call).unwrap_or(call);
            let tool = offered(tools, &call, &Scope::all());
            tool.and_then(|tool| check_arguments(tool.spec(), &call.arguments.to_value())).err()
        }
        Err(error) => Some(error.message().to_owned()),
    };
    match problem {
        Some(problem) => hook.repair(&raw, &problem, tools).unwrap_or(raw),
        None => raw,
    }
}

/// The offered tool of a call, which stands for no other one.
///
/// # Errors
/// The text for the model, which lists the offered tools that `scope` does not hide, or the deferred ones that the call
/// may mean.
pub(super) fn offered<'a>(
    tools: &'a Tools,
    call: &ToolCall,
    scope: &Scope,
) -> Result<&'a Arc<dyn Tool>, String> {
    let name = &*call.name;
    if let Some(tool) = tools.get(name) {
        let spec = tool.spec();
        return match spec.calls_deferred() {
            true => Err(deferred::unresolved(tools, spec, call, scope)),
            false => Ok(tool),
        };
    }
    Err(if tools.specs().iter().any(ToolSpec::calls_deferred) {
        deferred::unknown(tools, name, scope)
    } else {
        let shown = tools.specs().iter().filter(|spec| scope.offers(spec));
        let names: Vec<_> = shown.map(ToolSpec::name).collect();
        if names.is_empty() {
            format!("there is no tool `{name}`, and no other tool is offered here")
        } else {
            format!("there is no tool `{name}`; the tools are: {}", names.join(", "))
        }
    })
}

/// Returns the arguments of a call as its tool takes them.
pub(super) fn read_arguments(spec: &ToolSpec, arguments: &Arguments) -> Value {
    let mut value = arguments.to_value();
    schema::whole_numbers(spec.schema(), &mut value);
    value
}

/// Checks that the arguments of a call follow its tool's schema.
///
/// # Errors
/// The text for the model, with the problems and their places.
pub(crate) fn check_arguments(spec: &ToolSpec, arguments: &Value) -> Result<(), String> {
    match schema::problems(spec.schema(), arguments) {
        None => Ok(()),
        Some(problems) => {
            Err(format!("the arguments of `{}` do not fit its schema: {problems}", spec.name()))
        }
    }
}
