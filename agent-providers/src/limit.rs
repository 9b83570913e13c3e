//! The limit on a reply: what was asked for, and no more than the model gives.

use entourage_core::provider::{Request, Warning, WarningKind};

/// Returns the most tokens that were asked for, at most the model's known limit. `None` if none were asked for.
/// Services refuse a request for more, and a budget sets aside no more.
pub(crate) fn max_output(request: &Request, warnings: &mut Vec<Warning>) -> Option<u64> {
    let asked = request.params.max_output.filter(|asked| *asked > 0)?;
    let most = request.profile.max_output.filter(|most| *most > 0);
    let given = asked.min(most.unwrap_or(asked));
    if given < asked {
        let text = format!("this model gives {given} tokens at most; {asked} were asked for");
        warnings.push(Warning::new(WarningKind::Setting, "max_output", text));
    }
    Some(given)
}
