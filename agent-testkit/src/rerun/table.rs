//! The table of a report. Pure.

use std::fmt;

use entourage_core::{Money, event::plain_line, run::Status};

use super::{
    case::{RerunCase, Score},
    report::{RerunReport, Sums},
    transcript::Transcript,
};

/// Characters of a name in the table, and of a reason below it.
const NAME: usize = 40;
const REASON: usize = 200;

const HEADS: [&str; 7] = ["case", "original", "rerun", "calls", "steps (before)", "cost (before)", "result"];

pub(super) fn write(report: &RerunReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rows: Vec<[String; 7]> =
        std::iter::once(HEADS.map(str::to_owned)).chain(report.cases().iter().map(row)).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width));
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    total(report, f)?;
    for case in report.cases() {
        for (name, score) in &case.scores {
            if let Score::Fail(reason) = score {
                let (case, name) = (cut(case.name(), NAME), cut(name, NAME));
                let reason =
                    if reason.is_empty() { String::new() } else { format!(": {}", cut(reason, REASON)) };
                write!(f, "\n  {case} fails `{name}`{reason}")?;
            }
        }
    }
    Ok(())
}

fn row(case: &RerunCase) -> [String; 7] {
    [
        cut(case.name(), NAME),
        status(&case.original),
        status(&case.rerun),
        calls(case),
        format!("{} ({})", case.rerun.steps, case.original.steps),
        format!("{} ({})", money(case.rerun.cost), money(case.original.cost)),
        if case.passes() { "pass" } else { "FAIL" }.to_owned(),
    ]
}

/// The status in one word: that of the first run that did not complete.
fn status(of: &Transcript) -> String {
    let other = of.runs.iter().find(|run| run.status != Some(Status::Completed));
    let word = match other.map(|run| &run.status) {
        None if of.runs.is_empty() => "no run",
        None => "completed",
        Some(None) => "unfinished",
        Some(Some(Status::Stopped(_))) => "stopped",
        Some(Some(Status::Cancelled)) => "cancelled",
        Some(Some(Status::Paused(_))) => "paused",
        Some(Some(_)) => "failed",
    };
    word.to_owned()
}

fn calls(case: &RerunCase) -> String {
    let counted = [
        (case.answered, "same"),
        (case.marked, "marked"),
        (case.performed, "performed"),
        (case.refused, "refused"),
        (case.left, "left out"),
    ];
    let shown: Vec<_> = counted.iter().filter(|(count, _)| *count > 0).collect();
    let shown: Vec<_> = shown.into_iter().map(|(count, word)| format!("{count} {word}")).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

fn total(report: &RerunReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (low, high) = report.interval();
    let Sums { steps, cost } = report.sums(false);
    let before = report.sums(true);
    let plural = |count: usize| if count == 1 { "case" } else { "cases" };
    write!(
        f,
        "{} {}, {} passed: {:.1} % (95 % interval {:.1} to {:.1} %); steps {steps} ({}), cost {} ({})",
        report.cases().len(),
        plural(report.cases().len()),
        report.passed(),
        report.pass_rate() * 100.0,
        low * 100.0,
        high * 100.0,
        before.steps,
        money(cost),
        money(before.cost),
    )
}

fn money(cost: Option<Money>) -> String {
    cost.map_or_else(|| "unknown".to_owned(), |cost| cost.to_string())
}

/// The text on one line, without hidden characters, and not too long.
fn cut(text: &str, most: usize) -> String {
    let line = plain_line(text);
    match line.char_indices().nth(most) {
        None => line,
        Some(_) => line.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}
