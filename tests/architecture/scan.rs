//! A minimal scanner of Rust for rules about words: no comment, string or lifetime is taken for code.
//!
//! It does not expand macros and knows no scopes. A path behind `use … as` is seen where it is imported, not where the
//! new name is used.

use std::collections::BTreeSet;

/// `source` with comments, strings and characters blanked out; line breaks stay.
pub(crate) fn code(source: &str) -> String {
    let text: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < text.len() {
        let end = blank_end(&text, at);
        if end == at {
            out.push(text[at]);
            at += 1;
        } else {
            out.extend(text[at..end].iter().map(|one| if *one == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Returns the end of the comment or literal that begins at `at`; `at` if none does.
fn blank_end(text: &[char], at: usize) -> usize {
    let is =
        |at: usize, wanted: &str| wanted.chars().enumerate().all(|(i, one)| text.get(at + i) == Some(&one));
    let word_before = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    if is(at, "//") {
        return text[at..].iter().position(|one| *one == '\n').map_or(text.len(), |length| at + length);
    }
    if is(at, "/*") {
        let (mut depth, mut end) = (0, at);
        loop {
            match () {
                () if end >= text.len() => return text.len(),
                () if is(end, "/*") => (depth, end) = (depth + 1, end + 2),
                () if is(end, "*/") => (depth, end) = (depth - 1, end + 2),
                () => end += 1,
            }
            if depth == 0 {
                return end;
            }
        }
    }
    let prefix = if word_before {
        0
    } else {
        ["br", "cr", "r"].iter().find(|one| is(at, one)).map_or(0, |one| one.len())
    };
    if prefix > 0 {
        let hashes = text[at + prefix..].iter().take_while(|one| **one == '#').count();
        if text.get(at + prefix + hashes) == Some(&'"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let from = at + prefix + hashes + 1;
            return (from..text.len())
                .find(|end| is(*end, &close))
                .map_or(text.len(), |end| end + 1 + hashes);
        }
    }
    match text[at] {
        '"' => closing(text, at, '"'),
        // A lifetime has no closing quote where a character has one.
        '\'' if text.get(at + 1) == Some(&'\\') || text.get(at + 2) == Some(&'\'') => closing(text, at, '\''),
        _ => at,
    }
}

fn closing(text: &[char], at: usize, quote: char) -> usize {
    let mut end = at + 1;
    while end < text.len() && text[end] != quote {
        end += if text[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(text.len())
}

/// The identifiers and single signs of code, in order; `::` is one token.
pub(crate) fn tokens(code: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut grows = false;
    for one in code.chars() {
        let word = one.is_alphanumeric() || one == '_';
        let last = out.last_mut().filter(|last| (word && grows) || (one == ':' && *last == ":"));
        match last {
            Some(last) => last.push(one),
            None if one.is_whitespace() => {}
            None => out.push(one.to_string()),
        }
        grows = word;
    }
    out
}

/// Every path that code names, with the groups of `use std::{fs, net::TcpStream}` written out.
pub(crate) fn paths(code: &str) -> BTreeSet<String> {
    let (mut found, mut groups, mut path) = (BTreeSet::new(), Vec::new(), String::new());
    let words = tokens(code);
    for (i, token) in words.iter().enumerate() {
        let is_word = token.chars().all(|one| one.is_alphanumeric() || one == '_');
        match token.as_str() {
            "::" if path.is_empty() => {}
            "::" => path += "::",
            "{" => {
                // A group only behind `::`; any other brace starts afresh.
                groups.push(if path.ends_with("::") { std::mem::take(&mut path) } else { String::new() });
                path.clone_from(groups.last().unwrap());
            }
            "}" => {
                groups.pop();
                path = groups.last().cloned().unwrap_or_default();
            }
            _ if is_word => {
                let goes_on = i > 0 && (words[i - 1] == "::" || words[i - 1] == "{" || words[i - 1] == ",");
                path = if goes_on && !path.is_empty() { format!("{path}{token}") } else { token.clone() };
                found.insert(path.clone());
            }
            _ => path = groups.last().cloned().unwrap_or_default(),
        }
    }
    found
}

pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let outside = |one: Option<char>| one.is_none_or(|one| !one.is_alphanumeric() && one != '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, rest) = text.split_at(at);
        outside(before.chars().next_back()) && outside(rest.chars().nth(word.chars().count()))
    })
}

/// The lines of a file outside `#[cfg(test)] mod … { … }`.
pub(crate) fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<_> = source.lines().collect();
    let (mut count, mut at) = (0, 0);
    while at < lines.len() {
        let module = lines.get(at + 1).is_some_and(|next| {
            let next = next.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            next.starts_with("mod ") && next.ends_with('{')
        });
        if lines[at] == "#[cfg(test)]" && module {
            at += lines[at..].iter().position(|line| *line == "}").unwrap_or(lines.len() - at);
        } else {
            count += 1;
        }
        at += 1;
    }
    count
}

/// Returns true if `prefix` ends inside a name, as `std::net::Tcp` does in `std::net::TcpStream`.
pub(crate) fn names_more(prefix: &str, path: &str) -> bool {
    prefix.rsplit("::").next().unwrap().starts_with(char::is_uppercase) && path.starts_with(prefix)
}

#[test]
fn the_scanner_reads_rust() {
    let source = r##"
        //! unsafe std::fs
        use std::{fs, io::{self, Read}, net::{IpAddr, TcpStream}};
        /* todo!() /* nested */ dbg!(1) */
        fn f<'a>(x: &'a str) -> char { let _ = "unsafe \" std::process"; let _ = r#"dbg!("x")"#; '"' }
        fn g() { tokio :: fs::read("x"); if x == '\'' { crate::run::go() } }
    "##;
    let code = code(source);
    for hidden in ["unsafe", "todo", "dbg", "std::process", "nested"] {
        assert!(!code.contains(hidden), "{hidden} in {code}");
    }
    let paths = paths(&code);
    for named in [
        "std::fs",
        "std::io::self",
        "std::io::Read",
        "std::net::IpAddr",
        "std::net::TcpStream",
        "tokio::fs::read",
    ] {
        assert!(paths.contains(named), "{named} not in {paths:?}");
    }
    assert!(paths.contains("crate::run::go"), "{paths:?}");
    assert!(names_more("std::net::Tcp", "std::net::TcpStream") && !names_more("std::fs", "std::fsync"));
    assert!(has_word("the cohere api", "cohere") && !has_word("coherent", "cohere"));
    assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod tests {\n x\n}\nc"), 5);
}
