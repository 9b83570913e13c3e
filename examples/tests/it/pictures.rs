//! The pictures of `docs/concepts/` are what their runs draw, and every page of `docs/` is found.

#[path = "../../pictures/drawn/mod.rs"]
mod drawn;
#[path = "../../pictures/pages.rs"]
mod pages;

use std::{fs, path::Path};

#[test]
fn the_pictures_in_the_pages_are_what_their_runs_draw() {
    let pictures = drawn::all().unwrap();
    let mut shown = 0;
    for path in pages::all().unwrap() {
        let page = fs::read_to_string(&path).unwrap();
        let drawn = pages::with_pictures(&page, &pictures).unwrap();
        shown += drawn.matches("<!-- picture: ").count();
        assert!(
            page == drawn,
            "{}: `cargo run -p entourage-examples --example pictures` draws it anew",
            path.display()
        );
    }
    assert_eq!(shown, pictures.len());
}

#[test]
fn a_page_with_a_picture_that_nothing_draws_is_an_error() {
    let picture = |text: &str| pages::with_pictures(text, &[]).unwrap_err().message().to_owned();
    assert_eq!(picture("<!-- picture: moon -->\n```mermaid\nx\n```\n"), "no picture is named `moon`");
    assert_eq!(picture("<!-- picture: moon"), "a mark of a picture has no end");

    let moon = [drawn::Picture { name: "moon", mermaid: "flowchart TD\n".to_owned() }];
    let page = "# Moon\n<!-- picture: moon -->\n```mermaid\nold\n```\nend\n";
    let drawn = "# Moon\n<!-- picture: moon -->\n```mermaid\nflowchart TD\n```\nend\n";
    assert_eq!(pages::with_pictures(page, &moon).unwrap(), drawn);
    assert!(pages::with_pictures("<!-- picture: moon -->\ntext", &moon).is_err());
}

/// The pages of `docs/`, as paths below it.
fn pages_of(folder: &Path, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{below}{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            found.extend(pages_of(&path, &format!("{name}/")));
        } else if name.ends_with(".md") {
            found.push(name);
        }
    }
    found
}

#[test]
fn every_page_is_in_the_book_the_guide_and_the_doctests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (book, index) = (read("docs/SUMMARY.md"), read("docs/README.md"));
    let (guide, doctests) = (read("src/guide.rs"), read("examples/src/lib.rs"));
    let pages = pages_of(&root.join("docs"), "");
    for page in pages.iter().filter(|page| *page != "SUMMARY.md" && *page != "README.md") {
        assert!(book.contains(&format!("({page})")), "docs/SUMMARY.md lacks {page}");
        assert!(index.contains(&format!("({page}")), "docs/README.md lacks {page}");
        assert!(guide.contains(&format!("docs/{page}\"")), "src/guide.rs lacks {page}");
        assert!(doctests.contains(&format!("docs/{page}\"")), "examples/src/lib.rs lacks {page}");
    }
}

/// Lines of Rust that a reader sees, for each question.
#[test]
fn an_answer_has_at_most_ten_lines() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/questions.md")).unwrap();
    let questions: Vec<_> = page.split("\n## ").skip(1).collect();
    assert!(questions.len() >= 20);
    for question in questions {
        let (asked, answer) = question.split_once('\n').unwrap();
        assert!(asked.starts_with("How do I ") && asked.ends_with('?'), "{asked}");
        // Some are compiled alone: `rust,no_run`.
        let code = answer.split_once("```rust").and_then(|(_, code)| code.split_once("```")).unwrap().0;
        let code = code.split_once('\n').unwrap().1;
        let seen = code.lines().filter(|line| !line.starts_with("# ") && !line.trim().is_empty());
        assert!((1..=10).contains(&seen.count()), "{asked}");
    }
}

/// Links of a page to files: what stands between `](` and `)`, or behind `]: `, without the place in the file.
fn links(page: &str) -> Vec<&str> {
    let inline = page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let listed = page.lines().filter_map(|line| line.strip_prefix('[').and_then(|it| it.split_once("]: ")));
    let all = inline.chain(listed.map(|(_, link)| link.trim()));
    all.filter(|link| link.split('#').next().is_some_and(|file| file.ends_with(".md"))).collect()
}

#[test]
fn links_between_pages_lead_to_a_page_and_a_heading() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for name in pages_of(&docs, "") {
        let page = fs::read_to_string(docs.join(&name)).unwrap();
        let folder = docs.join(&name).parent().unwrap().to_owned();
        for link in links(&page) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target =
                fs::read_to_string(folder.join(file)).unwrap_or_else(|_| panic!("docs/{name}: {link}"));
            let headings = target.lines().filter(|line| line.starts_with('#')).map(anchor);
            assert!(place.is_empty() || headings.into_iter().any(|it| it == place), "docs/{name}: {link}");
        }
    }
}

/// The anchor that forges and books give a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
