//! Rules for the language of doc comments.

/// First words of a relative clause. A reader must know the mechanism to decode one; a noun or a verb says it outright.
const OPENERS: &[&str] = &["What", "Whether", "Who", "How", "Where", "Why", "Which"];

/// A block of `///` or `//!` lines, with the number of its first line.
pub(crate) struct Doc {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// The doc comments of a file, in order. Their words are kept, the markers are not.
pub(crate) fn docs(source: &str) -> Vec<Doc> {
    let mut found: Vec<Doc> = Vec::new();
    let mut goes_on = false;
    for (i, line) in source.lines().enumerate() {
        let line = line.trim_start();
        let said = line.strip_prefix("//!").or_else(|| {
            // Four slashes are an ordinary comment.
            line.strip_prefix("///").filter(|rest| !rest.starts_with('/'))
        });
        let Some(said) = said else {
            goes_on = false;
            continue;
        };
        match found.last_mut().filter(|_| goes_on) {
            Some(doc) => doc.text = format!("{}\n{}", doc.text, said.trim()),
            None => found.push(Doc { line: i + 1, text: said.trim().to_owned() }),
        }
        goes_on = true;
    }
    found.retain(|doc| !doc.text.trim().is_empty());
    found
}

impl Doc {
    pub(crate) fn opens_with_a_clause(&self) -> bool {
        let first = self.text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty());
        first.is_some_and(|word| OPENERS.contains(&word))
    }

    pub(crate) fn is_one_word(&self) -> bool {
        self.text.split_whitespace().count() == 1
    }

    /// The id of a row of the specification, such as two capitals and two digits; it is in no reader's hands.
    pub(crate) fn row_id(&self) -> Option<&str> {
        self.text.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| is_row_id(word))
    }
}

/// The places at which documentation that a derived schema shows to models has links or code of rustdoc: `file` line by
/// line, of each type that derives `JsonSchema`. A description in `#[schemars(…)]` stands in for the documentation.
pub(crate) fn shown_to_models(source: &str) -> Vec<usize> {
    let lines: Vec<_> = source.lines().collect();
    let is_said = |line: &str| line.trim_start().starts_with("///");
    let is_about = |line: &str| is_said(line) || line.trim_start().starts_with("#[");
    let is_link = |line: &str| line.contains("](") || line.contains("[`") || line.contains("```");
    let derives = |line: &str| {
        line.starts_with("#[derive(")
            && line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "JsonSchema")
    };
    let mut found = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| derives(line)) {
        let begin = (0..at).rev().take_while(|line| is_about(lines[*line])).last().unwrap_or(at);
        let item = (at..lines.len()).find(|line| !is_about(lines[*line])).unwrap_or(at);
        let has_body = lines[item].ends_with('{');
        let end = (item..lines.len()).find(|line| !has_body || lines[*line] == "}").unwrap_or(item);
        // Each part: its documentation and attributes, up to the line that they are about.
        let mut part = begin;
        for line in begin..=end {
            if !is_about(lines[line]) {
                let about = &lines[part..line];
                let other = ["description", "skip"]
                    .iter()
                    .any(|word| about.iter().any(|line| line.contains("schemars(") && line.contains(word)));
                let links = (part..line).filter(|line| is_said(lines[*line]) && is_link(lines[*line]));
                found.extend(links.filter(|_| !other).map(|line| line + 1));
                part = line + 1;
            }
        }
    }
    found
}

/// True for a line of a comment with more than `most` characters. A row of a table cannot be wrapped.
pub(crate) fn is_too_long(line: &str, most: usize) -> bool {
    let text = line.trim_start();
    text.starts_with("//")
        && !text.trim_start_matches(['/', '!', ' ']).starts_with('|')
        && line.chars().count() > most
}

fn is_row_id(word: &str) -> bool {
    let [first, second, tens, ones] = word.as_bytes() else { return false };
    let family = matches!((first, second), (b'C', b'A'..=b'Z') | (b'L' | b'B', b'O') | (b'A', b'I'));
    family && tens.is_ascii_digit() && ones.is_ascii_digit()
}

#[test]
fn planted_links_in_schemas_are_found() {
    let source = [
        "/// A [`Plan`].",
        "#[derive(Debug, JsonSchema)]",
        "pub struct A {",
        "    /// See [this](crate::B).",
        "    b: u8,",
        "    /// See [`B`].",
        "    #[schemars(description = \"B.\")]",
        "    c: u8,",
        "    /// Plain, with `code` and [1].",
        "    d: u8,",
        "}",
        "/// A [`Plan`].",
        "#[derive(JsonSchema)]",
        "#[schemars(description = \"It.\")]",
        "struct C(u8);",
        "/// A [`Plan`].",
        "#[derive(Debug)]",
        "struct D;",
    ];
    assert_eq!(shown_to_models(&source.join("\n")), [1, 4]);
}

#[test]
fn planted_offences_are_found() {
    let source = [
        "//! Whether it holds.",
        "",
        "/// A queue.",
        "/// What it holds.",
        "struct A;",
        "/// It.",
        "struct B;",
        "/// Returns the row (CM04).",
        "fn c() {}",
        "//// Who?",
        "// How?",
        "/// Whatever ends it.",
        "fn d() {}",
    ]
    .join("\n");
    let docs = docs(&source);
    let lines = |wanted: fn(&Doc) -> bool| -> Vec<usize> {
        docs.iter().filter(|doc| wanted(doc)).map(|doc| doc.line).collect()
    };
    assert_eq!(docs.len(), 5);
    assert_eq!(lines(Doc::opens_with_a_clause), [1]);
    assert_eq!(lines(Doc::is_one_word), [6]);
    assert_eq!(lines(|doc| doc.row_id().is_some()), [8]);
    for (line, is) in [
        ("    /// é é", false),
        ("    /// é éé", true),
        ("// | a table", false),
        ("let it = 1; // no", false),
    ] {
        assert_eq!(is_too_long(line, 11), is, "{line}");
    }
    for (word, is) in
        [("LO07", true), ("BO13", true), ("AI03", true), ("UTF8", false), ("CO2", false), ("CM041", false)]
    {
        assert_eq!(is_row_id(word), is, "{word}");
    }
}
