//! Diagnostics as a text for the model. Pure.

use serde_json::{Value, json};

use super::wire::{Counts, Severity};

/// Most diagnostics of a group that are shown with the result of a file tool.
pub(super) const SHOWN: usize = 10;

/// A diagnostic as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) severity: Severity,
    /// The file; empty in the group of one file.
    pub(super) name: String,
    /// Line from 1.
    pub(super) line: usize,
    /// Character from 1, where the text is known.
    pub(super) column: Option<usize>,
    pub(super) text: String,
}

/// Diagnostics that belong together, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Group {
    pub(super) entries: Vec<Entry>,
    pub(super) counts: Counts,
    /// Number of files that have some.
    pub(super) files: usize,
}

/// Diagnostics of a file and the project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Report {
    /// The file as it is shown, and its diagnostics; `None` where none is asked about, or no server spoke of it.
    pub(super) file: Option<(String, Group)>,
    pub(super) project: Group,
    /// Notes behind them.
    pub(super) notes: Vec<String>,
}

impl Report {
    pub(super) fn is_clean(&self) -> bool {
        let file = self.file.as_ref().map_or(0, |(_, group)| group.counts.all());
        file == 0 && self.project.counts.all() == 0
    }

    /// The text, with at most so many diagnostics of each group.
    pub(super) fn text(&self, most: usize) -> String {
        let mut blocks = Vec::new();
        if let Some((name, group)) = &self.file {
            blocks.extend(group.block(&format!("Diagnostics of `{name}`:"), most));
        }
        let title =
            if self.file.is_some() { "Diagnostics of other files:" } else { "Diagnostics of the project:" };
        blocks.extend(self.project.block(title, most));
        blocks.push(self.summary());
        blocks.join("\n\n")
    }

    fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some((name, group)) = &self.file {
            parts.push(match group.counts.all() {
                0 => format!("none in `{name}`"),
                _ => format!("{} in `{name}`", numbers(group.counts)),
            });
        }
        if self.project.counts.all() > 0 {
            let files = counted(self.project.files, "file", "files");
            let other = if self.file.is_some() { "other " } else { "" };
            parts.push(format!(
                "{} in {}",
                numbers(self.project.counts),
                files.replacen(' ', &format!(" {other}"), 1)
            ));
        } else if self.file.is_none() && self.notes.is_empty() {
            parts.push("none".to_owned());
        }
        parts.extend(self.notes.iter().cloned());
        format!("Diagnostics: {}.", parts.join("; "))
    }

    /// The numbers for programs.
    pub(super) fn metadata(&self) -> Value {
        let numbers = |group: &Group| {
            let Counts { errors, warnings, others } = group.counts;
            json!({ "errors": errors, "warnings": warnings, "others": others })
        };
        json!({ "file": self.file.as_ref().map(|(_, group)| numbers(group)), "project": numbers(&self.project) })
    }
}

impl Group {
    /// Sorts the diagnostics, errors first.
    pub(super) fn sorted(mut self) -> Self {
        self.entries.sort();
        self
    }

    fn block(&self, title: &str, most: usize) -> Option<String> {
        if self.counts.all() == 0 {
            return None;
        }
        let shown = self.entries.iter().take(most).map(|entry| format!("\n{}", entry.line()));
        let shown: Vec<_> = shown.collect();
        let more = self.counts.all().saturating_sub(shown.len());
        let more = if more > 0 { format!("\n({more} more)") } else { String::new() };
        Some(format!("{title}{}{more}", shown.concat()))
    }
}

impl Entry {
    fn line(&self) -> String {
        let Self { severity, name, line, column, text } = self;
        let file = if name.is_empty() { String::new() } else { format!("`{name}` ") };
        let column = column.map(|column| format!(":{column}")).unwrap_or_default();
        format!("- {} {file}{line}{column} {text}", severity.name())
    }
}

fn numbers(counts: Counts) -> String {
    let Counts { errors, warnings, others } = counts;
    let mut parts = vec![counted(errors, "error", "errors"), counted(warnings, "warning", "warnings")];
    if others > 0 {
        parts.push(counted(others, "information", "pieces of information"));
    }
    parts.join(", ")
}

/// A number with its noun.
pub(super) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(severity: Severity, name: &str, line: usize) -> Entry {
        Entry { severity, name: name.to_owned(), line, column: Some(2), text: format!("m{line} (x)") }
    }

    #[test]
    fn ce02_groups_have_the_errors_first_and_the_number_of_the_others() {
        let entries: Vec<_> = (1..=12).map(|line| entry(Severity::Warning, "", line)).collect();
        let mut file = Group { entries, counts: Counts { errors: 1, warnings: 12, others: 0 }, files: 1 };
        file.entries.push(entry(Severity::Error, "", 40));
        let project = Group {
            entries: vec![entry(Severity::Error, "src/b.rs", 3)],
            counts: Counts { errors: 1, warnings: 0, others: 0 },
            files: 1,
        };
        let report =
            Report { file: Some(("src/a.rs".to_owned(), file.sorted())), project, notes: Vec::new() };
        let text = report.text(SHOWN);
        assert!(
            text.starts_with("Diagnostics of `src/a.rs`:\n- error 40:2 m40 (x)\n- warning 1:2 m1 (x)\n"),
            "{text}"
        );
        assert!(text.contains(
            "- warning 9:2 m9 (x)\n(3 more)\n\nDiagnostics of other files:\n- error `src/b.rs` 3:2 m3"
        ));
        let summary =
            "\n\nDiagnostics: 1 error, 12 warnings in `src/a.rs`; 1 error, 0 warnings in 1 other file.";
        assert!(text.ends_with(summary), "{text}");
        assert_eq!(report.metadata()["file"], json!({"errors": 1, "warnings": 12, "others": 0}));
        assert!(!report.is_clean());
        let clean = Report { file: Some(("a".to_owned(), Group::default())), ..Report::default() };
        assert_eq!((clean.is_clean(), clean.text(SHOWN).as_str()), (true, "Diagnostics: none in `a`."));
        assert_eq!(Report::default().text(SHOWN), "Diagnostics: none.");
    }
}
