//! The check that a request can be recorded, and arrives in another process as it was. Pure.

use entourage_core::{
    Error, ErrorKind, Result,
    provider::{OutputFormat, Request},
};
use serde_json::Value;

/// Deepest nesting of a schema, as of every other value. Readers go 127 levels deep, and an effect wraps it in some.
const DEPTH: usize = 96;

/// Checks a request.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for a parameter that is no number, and for a schema that nests too deep.
pub(crate) fn check_request(request: &Request) -> Result<()> {
    check_numbers(request)?;
    check_schemas(request)
}

/// Checks the parameters: JSON holds no number that is infinite or none.
pub(crate) fn check_numbers(request: &Request) -> Result<()> {
    let params = &request.params;
    let numbers = [params.temperature, params.top_p, params.presence_penalty, params.frequency_penalty];
    if numbers.iter().flatten().all(|number| number.is_finite()) {
        return Ok(());
    }
    let text = "a parameter of the model call is infinite or not a number; set one that is finite";
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// Checks the schemas of the tools and of the reply.
pub(crate) fn check_schemas(request: &Request) -> Result<()> {
    let tools = request.tools.iter().map(|spec| (spec.name(), spec.schema()));
    let output = match &request.output {
        OutputFormat::Schema(output) => Some((output.name.as_str(), &output.schema)),
        _ => None,
    };
    match tools.chain(output).find(|(_, schema)| !is_within(schema, DEPTH)) {
        None => Ok(()),
        Some((name, _)) => {
            let text = format!("the schema of `{name}` nests deeper than {DEPTH} levels; make it flatter");
            Err(Error::new(ErrorKind::InvalidInput, text))
        }
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    let below = |inner: &Value| levels.checked_sub(1).is_some_and(|left| is_within(inner, left));
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(below),
        Value::Object(fields) => levels > 0 && fields.values().all(below),
        _ => true,
    }
}
