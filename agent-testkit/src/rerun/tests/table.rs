//! The table of a report, and its figures.

use super::*;
use crate::rerun::wilson;

#[test]
fn the_interval_is_that_of_wilson() {
    // By hand from the formula, with z = 1.959964; 0 and 1 are what it gives at the ends.
    let cases = [
        (0, 0, (0.0, 1.0)),
        (0, 10, (0.0, 0.277_533)),
        (10, 10, (0.722_467, 1.0)),
        (1, 1, (0.206_549, 1.0)),
        (3, 4, (0.300_642, 0.954_413)),
        (8, 10, (0.490_162, 0.943_318)),
        (50, 100, (0.403_832, 0.596_168)),
        (9_999, 10_000, (0.999_434, 0.999_982)),
    ];
    for (passed, count, (low, high)) in cases {
        let found = wilson(passed, count);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-6;
        assert!(near(found.0, low) && near(found.1, high), "{passed} of {count}: {found:?}");
    }
    // Rounding misses neither end.
    for count in 1..2_000 {
        assert_eq!((wilson(0, count).0, wilson(count, count).1), (0.0, 1.0), "{count}");
    }
    // More passes than cases are a mistake of the caller, and no number that is none.
    assert_eq!(wilson(7, 3), wilson(3, 3));
}

#[tokio::test]
async fn the_table_has_a_line_for_each_case_and_the_figures_of_all() {
    let tool = send();
    let old = ScriptedProvider::new()
        .call("send", to("Ada"))
        .step(paid("Sent.", "0.5"))
        .step(paid("Hello!", "0.25"))
        .step(paid("Bye!", "0.25"));
    let clerk = agent(&old, [tool.clone()]);
    let sends = recorded(&clerk, &["Send it"]).await.named("sends");
    let greets = recorded(&clerk, &["Hi", "Bye"]).await.named("greets\u{202e}\n\u{1b}[31m you");
    let new = ScriptedProvider::new()
        .calls([("send", to("Ada")), ("send", to("Eve"))])
        .text("Sent to two.")
        .step(paid("Hello!", "0.125"))
        .step(paid("Bye!", "0.125"));
    let report = Rerun::of([sends, greets], agent(&new, [tool]))
        .score("same answers", RerunCase::has_same_answers)
        .score("same calls", |case: &RerunCase| {
            if case.has_same_calls() { Ok(()) } else { Err(format!("{} new\ncalls", case.marked)) }
        })
        .run()
        .await
        .unwrap();
    assert_eq!((report.passed(), report.pass_rate(), report.interval()), (1, 0.5, wilson(1, 2)));
    assert_eq!(
        report.to_string(),
        "\
case             original   rerun      calls             steps (before)  cost (before)      result
sends            completed  completed  1 same, 1 marked  2 (2)           unknown (unknown)  FAIL
greets [31m you  completed  completed  none              2 (2)           $0.25 ($0.5)       pass
2 cases, 1 passed: 50.0 % (95 % interval 9.5 to 90.5 %); steps 4 (4), cost unknown (unknown)
  sends fails `same answers`
  sends fails `same calls`: 1 new calls"
    );
}
