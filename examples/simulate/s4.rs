//! S4: fourteen ways in which agents fail, scripted, and the runtime's reaction to each.
//!
//! The modes are those of MAST, a taxonomy drawn from traces of real systems of agents (arXiv 2503.13657). Each is
//! played by a model that misbehaves in that way; everything around it is real. The column "detected by" is read from
//! the run's own events and outcome ([`found`]); the expected value is asserted beside it.
//!
//! No runtime judges meaning. Where a failure is one of meaning alone, the table says so, and names who could detect
//! it.

mod alone;
mod found;
mod together;

use entourage::Result;

use crate::kit::{Checks, Table};
use found::{Ended, Found, detected};

/// A misbehaviour: its script, and the expected result.
struct Case {
    /// Number and name in MAST.
    mode: &'static str,
    /// Description of the model's behaviour.
    script: &'static str,
    play: fn() -> Result<Ended>,
    /// The first detection, and the number of model calls in the whole tree before it.
    expected: Option<(Found, u64)>,
    /// End of the run.
    end: &'static str,
    /// The part that stays undetected, and who could detect it.
    unseen: &'static str,
}

pub(crate) fn run(checks: &mut Checks) -> Result<()> {
    println!("## S4\n");
    println!(
        "Fourteen scripted misbehaviours, one for each failure mode of MAST (arXiv 2503.13657), against the real"
    );
    println!("runtime. \"Calls\" counts the model calls, of all agents, up to the detection.\n");
    let mut table =
        Table::new(["mode", "what is scripted", "detected by", "calls", "outcome", "no runtime sees"]);
    let mut seen = 0_u32;
    let mut cases: Vec<_> = alone::CASES.iter().chain(together::CASES).collect();
    cases.sort_by_key(|case| case.mode);
    for case in &cases {
        let ended = (case.play)()?;
        let first = detected(&ended);
        checks.same(&format!("S4 {}: detected", case.mode), first, case.expected);
        checks.same(&format!("S4 {}: outcome", case.mode), ended.word().as_str(), case.end);
        seen += u32::from(first.is_some());
        let (by, calls) = match first {
            Some((found, calls)) => (found.to_string(), calls.to_string()),
            None => ("nothing".to_owned(), "-".to_owned()),
        };
        table.row([
            case.mode.to_owned(),
            case.script.to_owned(),
            by,
            calls,
            ended.word(),
            case.unseen.to_owned(),
        ]);
    }
    println!("{table}");
    let quiet = [alone::behaving()?, together::behaving()?];
    let alarms = quiet.iter().filter(|ended| detected(ended).is_some()).count();
    println!(
        "Detected: {seen} of {}. False alarms in {} runs that behave: {alarms}.\n",
        cases.len(),
        quiet.len()
    );
    checks.same("S4: false alarms", alarms, 0);
    for ended in &quiet {
        checks.same("S4: a run that behaves", ended.word().as_str(), "completed");
    }
    checks.same("S4: modes", cases.len(), 14);
    Ok(())
}
