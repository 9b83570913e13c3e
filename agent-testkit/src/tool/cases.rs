//! The cases of the suite, and the calls that they are judged by.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use entourage_core::{bound, tool::Access};
use entourage_runtime::schema;
use serde_json::{Value, json};

use super::{
    Conformance,
    bench::{Bench, CANCEL, Call, Cut, End, panic_text, text_of},
    dialect,
    fuzz::Fuzz,
    judge::{faults, half_done},
    tree::Look,
};
use crate::ConformanceReport;

/// Calls in one tree, before it is made anew.
const IN_ONE_TREE: usize = 25;
/// The polls after which a call is dropped, each in a call of its own.
const POLLS: usize = 4;
/// Pause between two looks at a tree in which something may still go on.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Factor that keeps the calls of one seed apart from those of the next.
const SPREAD: u64 = 1_000_003;
/// Number of calls of which at least one must fit.
const CALLS_THAT_SHOW: usize = 20;

/// A case of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Case {
    Declared,
    Schema,
    Stable,
    Succeeds,
    Panic,
    Fatal,
    Outside,
    Covered,
    Preview,
    Bounded,
    ErrorText,
    HalfDone,
    Cancel,
}

const CASES: [(Case, &str); 13] = [
    (Case::Declared, "the_declarations_are_sound"),
    (Case::Schema, "every_service_takes_the_schema"),
    (Case::Stable, "declarations_and_footprints_are_stable"),
    (Case::Succeeds, "the_given_calls_succeed"),
    (Case::Panic, "no_arguments_cause_a_panic"),
    (Case::Fatal, "no_arguments_end_the_run"),
    (Case::Outside, "nothing_outside_is_changed"),
    (Case::Covered, "the_footprint_covers_what_is_touched"),
    (Case::Preview, "a_preview_changes_nothing"),
    (Case::Bounded, "results_are_bounded"),
    (Case::ErrorText, "errors_say_something"),
    (Case::HalfDone, "a_dropped_call_leaves_nothing_half_done"),
    (Case::Cancel, "a_cancel_ends_the_call_within_a_second"),
];

/// The findings, the first of each case.
#[derive(Default)]
struct Findings(BTreeMap<Case, String>);

impl Findings {
    fn add(&mut self, case: Case, text: impl Into<String>) {
        self.0.entry(case).or_insert_with(|| text.into());
    }

    /// Judges a call, made with these arguments.
    fn judge(&mut self, bench: &Bench<'_>, call: &Call, made: &str) {
        for (case, text) in faults(bench.tool.spec(), call) {
            self.add(case, format!("{text} ({made})"));
        }
    }
}

pub(super) async fn run(plan: &Conformance) -> ConformanceReport {
    let mut findings = Findings::default();
    declarations(plan, &mut findings);
    footprints(plan, &mut findings);
    let callable = dialect::is_name(&plan.name);
    if callable {
        for arguments in &plan.calls {
            given(plan, arguments, &mut findings).await;
        }
        fuzzed(plan, &mut findings).await;
        for arguments in plan.calls.iter().chain(&plan.long) {
            cancelled(plan, arguments, &mut findings).await;
        }
    }
    let subject = format!("{} (seed {})", plan.name, plan.seed);
    let mut report = ConformanceReport::new("tool conformance", subject);
    let names_nothing = callable && names_nothing(plan);
    for (case, name) in CASES {
        match findings.0.remove(&case) {
            Some(text) => report.fail(name, text),
            None if case == Case::Covered && names_nothing => report.skip(
                name,
                "the tool does not declare `naming_subjects`, so each call counts as one that can touch anything: rules \
                 with a subject cannot allow it, and scopes with roots or hosts exclude it",
            ),
            None if callable || case < Case::Succeeds => report.pass(name),
            None => report.skip(name, "a tool of that name cannot be called"),
        }
    }
    report
}

/// True for a tool that touches something and does not say what.
fn names_nothing(plan: &Conformance) -> bool {
    let bench = Bench::new(plan);
    let spec = bench.tool.spec();
    let touches = Access::READ | Access::WRITE | Access::EXECUTE | Access::NETWORK;
    !spec.names_subjects() && spec.access().intersects(touches)
}

fn declarations(plan: &Conformance, findings: &mut Findings) {
    let (bench, again) = (Bench::new(plan), Bench::new(plan));
    let spec = bench.tool.spec();
    if !dialect::is_name(spec.name()) {
        findings.add(
            Case::Declared,
            "the name has other characters than a-z, A-Z, 0-9, _ and -, or more than 64",
        );
    }
    if spec.description().trim().is_empty() {
        findings.add(Case::Declared, "there is no description; say what the tool does, and when to call it");
    }
    let flaws = dialect::flaws(spec.schema());
    if !flaws.is_empty() {
        findings.add(Case::Schema, flaws.join("; "));
    }
    if spec != bench.tool.spec() || spec != again.tool.spec() {
        findings.add(Case::Stable, "the declarations are others the second time");
    }
    let misfit = plan.calls.iter().chain(&plan.long).find(|call| !schema::follows(spec.schema(), call));
    if let Some(call) = misfit {
        findings.add(Case::Succeeds, format!("the given arguments {} do not follow the schema", short(call)));
    }
}

/// Asks for many footprints, also of arguments that do not follow the schema.
fn footprints(plan: &Conformance, findings: &mut Findings) {
    let bench = Bench::new(plan);
    let before = bench.tree.look();
    let mut fuzz = Fuzz::new(plan.seed, bench.tool.spec().schema(), &plan.calls, bench.tree.root());
    for _ in 0..plan.fuzzed {
        let arguments = fuzz.next();
        let twice = catch_unwind(AssertUnwindSafe(|| {
            (bench.tool.footprint(&arguments), bench.tool.footprint(&arguments))
        }));
        match twice {
            Ok((first, second)) if first == second => {}
            Ok(_) => findings.add(Case::Stable, format!("two footprints of {} differ", short(&arguments))),
            Err(panic) => {
                let text = panic_text(panic.as_ref());
                findings.add(Case::Panic, format!("the footprint of {} panicked: {text}", short(&arguments)));
            }
        }
    }
    if bench.tree.look() != before {
        findings.add(Case::Stable, "asking for footprints changed the tree");
    }
}

/// Makes a call that succeeds.
async fn given(plan: &Conformance, arguments: &Value, findings: &mut Findings) {
    let bench = Bench::new(plan);
    let call = bench.call(arguments, Cut::Never).await;
    let made = format!("arguments {}", short(arguments));
    findings.judge(&bench, &call, &made);
    if let Some(text) = &call.unprepared {
        findings.add(Case::Succeeds, text.clone());
    }
    let problem = match (&call.seen, &call.result) {
        (Some(seen), _) => match &seen.end {
            End::Output(output) if !output.is_error => None,
            End::Output(output) => Some(text_of(&output.content)),
            other => Some(format!("{other:?}")),
        },
        (None, Some(result)) if result.is_error => Some(text_of(&result.content)),
        // The run waits for somebody who answers in its place.
        (None, _) => None,
    };
    if let Some(problem) = problem {
        findings.add(Case::Succeeds, format!("{} ({made})", bound::shortened(&problem, 500)));
    }
}

/// Makes calls with arguments from the seed.
async fn fuzzed(plan: &Conformance, findings: &mut Findings) {
    let mut bench = Bench::new(plan);
    // Texts that name the tree are those of the tree that a call is made in.
    let spec = bench.tool.spec().clone();
    let mut begun = 0_usize;
    for number in 0..plan.fuzzed {
        if number > 0 && number.is_multiple_of(IN_ONE_TREE) {
            bench = Bench::new(plan);
        }
        let seed = plan.seed.wrapping_mul(SPREAD).wrapping_add(u64::try_from(number).unwrap_or_default());
        let arguments =
            fitting(Fuzz::new(seed, spec.schema(), &plan.calls, bench.tree.root()), spec.schema());
        let call = bench.call(&arguments, Cut::Never).await;
        begun += usize::from(call.seen.is_some() || call.result.is_none());
        findings.judge(
            &bench,
            &call,
            &format!("seed {}, call {number}, arguments {}", plan.seed, short(&arguments)),
        );
    }
    if plan.fuzzed >= CALLS_THAT_SHOW && begun == 0 {
        findings
            .add(Case::Schema, "no call with arguments from the seed reached the tool; give one with `call`");
    }
}

/// The next arguments that follow the schema, if some of the next ones do: others never reach a tool.
fn fitting(mut fuzz: Fuzz<'_>, schema: &Value) -> Value {
    let mut last = json!({});
    for _ in 0..8 {
        last = fuzz.next();
        if schema::follows(schema, &last) {
            break;
        }
    }
    last
}

/// Ends calls before they end by themselves.
async fn cancelled(plan: &Conformance, arguments: &Value, findings: &mut Findings) {
    let made = format!("arguments {}", short(arguments));
    let bench = Bench::new(plan);
    // What a program has done by then is its own affair, and a long call is never seen whole.
    let judged =
        !bench.tool.spec().access().contains(Access::EXECUTE) && plan.long.as_ref() != Some(arguments);
    let whole = if judged { Some(bench.call(arguments, Cut::Never).await.after) } else { None };
    for polls in 0..=POLLS {
        let bench = Bench::new(plan);
        let call = bench.call(arguments, Cut::After(polls)).await;
        if let Some(End::Dropped(time)) = call.seen.as_ref().map(|seen| &seen.end)
            && *time > CANCEL
        {
            findings.add(Case::Cancel, format!("dropping the call took {} s ({made})", time.as_secs_f32()));
        }
        if let Some(whole) = &whole {
            left(&bench, &call, whole, &format!("after {polls} polls, {made}"), findings).await;
        }
    }
    let bench = Bench::new(plan);
    let call = bench.call(arguments, Cut::ByRun).await;
    if let Some(time) = call.ending.filter(|time| *time > CANCEL) {
        findings.add(Case::Cancel, format!("it was still there after {} s ({made})", time.as_secs_f32()));
    }
    // The run may be over before the call begins, which then has left nothing.
    if let Some(whole) = whole.as_ref().filter(|_| call.seen.is_some()) {
        left(&bench, &call, whole, &made, findings).await;
    }
}

/// Judges what a call left that was dropped. Work on another thread has a moment to end.
async fn left(bench: &Bench<'_>, call: &Call, whole: &Look, made: &str, findings: &mut Findings) {
    let began = Instant::now();
    loop {
        let now = bench.tree.look();
        let half = half_done(&call.before, &now, whole);
        let Some(path) = half.first() else { return };
        if began.elapsed() > CANCEL {
            let text =
                format!("`{path}` is neither as it was nor as the whole call leaves it (dropped {made})");
            return findings.add(Case::HalfDone, text);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Arguments for a text, as JSON of bounded length.
fn short(arguments: &Value) -> String {
    bound::shortened(&arguments.to_string(), 300).into_owned()
}
