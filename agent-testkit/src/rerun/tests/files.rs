//! Transcripts as files.

use std::fs;

use entourage_core::ErrorKind;

use super::*;

async fn sample() -> Transcript {
    let old = ScriptedProvider::new()
        .call("send", json!({"to": "Ada", "code": "4711"}))
        .step(paid("Sent 4711.", "0.25"));
    recorded(&agent(&old, [send()]), &["Send 4711 to Ada"]).await.named("sample")
}

#[tokio::test]
async fn a_transcript_is_lines_that_a_person_can_read() {
    let original = sample().await;
    let text = original.to_jsonl().unwrap();
    let kinds: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kinds.len(), 4, "{text}");
    assert_eq!(kinds[0]["transcript"]["format"], 1);
    assert_eq!(
        kinds[1]["prompt"]["message"],
        json!({"role": "user", "parts": [{"text": "Send 4711 to Ada"}]})
    );
    assert_eq!(kinds[2]["call"]["arguments"], json!({"to": "Ada", "code": "4711"}));
    assert_eq!(kinds[2]["call"]["content"], json!([{"text": "sent"}]));
    assert_eq!(kinds[3]["answer"], json!({"text": "Sent 4711.", "status": "completed"}));
    assert_eq!(Transcript::from_jsonl(&text).unwrap(), original);
    // Blank lines, another end of lines, a mark at the start.
    let other = format!("\u{feff}{}\r\n\r\n", text.trim_end().replace('\n', "\r\n"));
    assert_eq!(Transcript::from_jsonl(&other).unwrap(), original);
}

#[tokio::test]
async fn secrets_can_be_taken_out_before_a_transcript_is_written() {
    let original = sample().await;
    let hidden = original.with_texts(|text| text.replace("4711", "code")).unwrap();
    let text = hidden.to_jsonl().unwrap();
    assert!(!text.contains("4711") && text.matches("code").count() == 4, "{text}");
    // The rerun is told the other text, and its call is the same as before.
    let new = ScriptedProvider::new().call("send", json!({"to": "Ada", "code": "code"})).text("Sent code.");
    let case = rerun(hidden, &agent(&new, [send()]), Unmatched::Mark).await;
    assert_eq!(figures(&case), [1, 0, 0, 0]);
    let error = original.with_texts(|_| "x".to_owned()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn files_that_are_no_transcript_are_refused_with_the_line() {
    let text = sample().await.to_jsonl().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let version = |format: &str| text.replacen("\"format\":1", &format!("\"format\":{format}"), 1);
    let newer = text.replacen("\"format\":1", "\"format\":2", 1).replacen("\"steps\"", "\"stairs\"", 1);
    let cases = [
        (String::new(), ErrorKind::InvalidInput, "no line"),
        ("{}".to_owned(), ErrorKind::InvalidInput, "line=1"),
        (lines[1..].join("\n"), ErrorKind::InvalidInput, "the first line is"),
        ([lines[0], lines[2]].join("\n"), ErrorKind::InvalidInput, "after its `prompt`"),
        ([lines[0], lines[3]].join("\n"), ErrorKind::InvalidInput, "after its `prompt`"),
        ([lines[0], lines[0]].join("\n"), ErrorKind::InvalidInput, "one line"),
        (
            [lines[0], lines[1], r#"{"given":{"role":"user","parts":[]}}"#].join("\n"),
            ErrorKind::InvalidInput,
            "before",
        ),
        ([lines[0], lines[1], r#"{"call":{"tool":"a"}}"#].join("\n"), ErrorKind::InvalidInput, "line=3"),
        ([lines[0], "nothing"].join("\n"), ErrorKind::InvalidInput, "line=2"),
        (newer, ErrorKind::NewerVersion, "newer"),
        (version("99999999999"), ErrorKind::NewerVersion, "format=99999999999"),
        (version(&"9".repeat(1_000)), ErrorKind::NewerVersion, "newer"),
        (version("1e999"), ErrorKind::NewerVersion, "newer"),
        (version("-2"), ErrorKind::InvalidInput, "line=1"),
        (version("0"), ErrorKind::InvalidInput, "no version 0"),
        (version("\"2\""), ErrorKind::InvalidInput, "line=1"),
    ];
    for (text, kind, says) in cases {
        let error = Transcript::from_jsonl(&text).unwrap_err();
        assert_eq!(error.kind(), kind, "{text}: {error}");
        let shown = format!(
            "{error} {}",
            error.context().map(|(name, it)| format!("{name}={it} ")).collect::<String>()
        );
        assert!(shown.contains(says), "{shown}: {says}");
    }
    // A place that no session has, which would be long to look for; the longest that one has is read.
    let placed = |levels: usize| {
        let call = json!({"call": {"agent": "a", "place": "1$$0.".repeat(levels), "tool": "a"}});
        let (head, _) = lines[0].split_once(",\"lines\"").unwrap();
        [&format!("{head}}}}}"), lines[1], &call.to_string()].join("\n")
    };
    assert_eq!(Transcript::from_jsonl(&placed(60)).unwrap().calls[0].place.len(), 300);
    let error = Transcript::from_jsonl(&placed(8_000)).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("`place`"), "{error}");
    // Deeper than any reader takes.
    let deep = format!("{}\n{{\"call\":{}1{}}}", lines[0], "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(Transcript::from_jsonl(&deep).unwrap_err().kind(), ErrorKind::InvalidInput);
    let many = format!(
        "{}\n{}",
        lines[0],
        r#"{"given":{"role":"user","parts":[]}}
"#
        .repeat(100_001)
    );
    assert_eq!(Transcript::from_jsonl(&many).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn attack_08_a_file_that_was_cut_is_no_case() {
    let old = ScriptedProvider::new().call("send", json!({"to": "Ada"})).text("Sent.").text("And é.");
    let original = recorded(&agent(&old, [send()]), &["One", "Two"]).await;
    let text = original.to_jsonl().unwrap();
    for (at, _) in text.trim_end().char_indices() {
        let cut = Transcript::from_jsonl(&text[..at]);
        assert_eq!(cut.unwrap_err().kind(), ErrorKind::InvalidInput, "{at}");
    }
    let lines: Vec<_> = text.lines().collect();
    let without = [&lines[..2], &lines[3..]].concat().join("\n");
    let error = Transcript::from_jsonl(&without).unwrap_err().to_string();
    assert!(error.contains("4 lines are behind the first one, which says 5"), "{error}");
    // Somebody who takes a line out on purpose says so.
    let shorter = without.replace(",\"lines\":5", "");
    assert_eq!(Transcript::from_jsonl(&shorter).unwrap().calls.len(), 0);
    assert_eq!(Transcript::from_jsonl(&text).unwrap(), original);
}

#[tokio::test]
async fn a_folder_of_files_is_a_set_of_cases() {
    let folder = std::env::temp_dir().join(format!("entourage-rerun-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let empty = Transcript::load_all(&folder).unwrap_err();
    let text = sample().await.to_jsonl().unwrap();
    for name in ["b.jsonl", "a.jsonl", "notes.txt"] {
        fs::write(folder.join(name), &text).unwrap();
    }
    let read = Transcript::load_all(&folder);
    fs::write(folder.join("c.jsonl"), "nothing").unwrap();
    let broken = Transcript::load_all(&folder);
    let no_file = Transcript::load(&folder).unwrap_err();
    #[cfg(unix)]
    {
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let no_file = Transcript::load(pipe).unwrap_err();
        assert_eq!(no_file.kind(), ErrorKind::InvalidInput);
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(no_file.kind(), ErrorKind::InvalidInput);
    assert_eq!(read.unwrap().iter().map(|it| &*it.name).collect::<Vec<_>>(), ["a", "b"]);
    let broken = broken.unwrap_err();
    assert_eq!((empty.kind(), broken.kind()), (ErrorKind::NotFound, ErrorKind::InvalidInput));
    assert!(broken.context().any(|(name, file)| name == "file" && file.ends_with("c.jsonl")), "{broken}");
    assert_eq!(Transcript::load_all(&folder).unwrap_err().kind(), ErrorKind::NotFound);
}
