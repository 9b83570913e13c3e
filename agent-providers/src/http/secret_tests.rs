use proptest::prelude::*;

use super::*;

fn of_header(name: &str, value: &str) -> Redactor {
    Redactor::with_headers([], [(name, value)])
}

#[test]
fn secrets_are_removed_and_never_shown() {
    let redactor = Redactor::new(["sk-secret-1".to_owned().into(), "none".to_owned().into()]);
    assert_eq!(redactor.clean("bad key sk-secret-1, none left"), "bad key [key], none left");
    assert_eq!(format!("{redactor:?}"), "Redactor(2 spellings)");
    assert_eq!(Redactor::default().clean("sk-secret-1"), "sk-secret-1");
}

#[test]
fn a_header_is_known_by_what_follows_its_scheme() {
    for (value, echo) in [
        ("Bearer sk-live-0123", "Incorrect API key provided: [key]."),
        ("bearer   sk-live-0123 ", "Incorrect API key provided: [key]."),
        ("sk-live-0123", "Incorrect API key provided: [key]."),
        ("Token sk-live-0123", "Incorrect API key provided: [key]."),
        ("Basic dXNlcjpzay1saXZlLTAxMjM=", "Incorrect API key provided: [key]."),
        ("basic c2stbGl2ZS0wMTIzOg==", "Incorrect API key provided: [key]."),
        ("session=sk-live-0123; theme=dark", "Incorrect API key provided: [key]."),
    ] {
        let clean = of_header("authorization", value).clean("Incorrect API key provided: sk-live-0123.");
        assert_eq!(clean, echo, "{value}");
    }
    let redactor = of_header("authorization", "Bearer sk-live-0123");
    for echo in ["Bearer sk-live-0123", "SK-LIVE-0123", "c2stbGl2ZS0wMTIz", "QmVhcmVyIHNrLWxpdmUtMDEyMw=="] {
        assert!(redactor.clean(&format!("no {echo}!")).starts_with("no [key]"), "{echo}");
    }
    // Ordinary values are no secrets, nor are the words between them.
    for (name, value) in [
        ("x-title", "The Application 2"),
        ("accept", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("x-provider", "openai"),
        ("x-timeout-ms", "600000"),
    ] {
        assert_eq!(of_header(name, value).clean(value), value, "{name}");
    }
    let signed =
        "AWS4-HMAC-SHA256 Credential=AKIA0123456789, SignedHeaders=content-type, Signature=fe5f80f77d5f";
    let clean = of_header("authorization", signed).clean("Signature fe5f80f77d5f of content-type");
    assert_eq!(clean, "Signature [key] of content-type");
    for (name, value) in
        [("x-gateway", "Bearer s3cret-1"), ("x-tenant", "hunter2-hunter2"), ("x-pass", "correcthorsebattery")]
    {
        assert_eq!(of_header(name, value).clean(value), "[key]", "{name}");
    }
}

#[test]
fn attack_46_a_long_run_of_backslashes_is_read_once() {
    let redactor = Redactor::new(["sk-live-0123456789".to_owned().into()]);
    // Counted again at each of its bytes, this would take hours.
    let run = "\\".repeat(2 << 20);
    assert_eq!(redactor.clean(&run), run);
}

#[test]
fn a_secret_is_known_however_it_is_escaped() {
    let redactor = Redactor::new(["a+b/c\"d&e %4".to_owned().into()]);
    for echo in [
        "a+b/c\"d&e %4",
        r#"a+b\/c\"d&e %4"#,
        r"a\u002bb\u002Fc\u0022d\u0026e\u0020\u00254",
        r#"a+b\\/c\\\"d\\u0026e %4"#,
        "a%2Bb%2fc%22d%26e%20%254",
        "a%252Bb%252fc%2522d%2526e%2520%25254",
        "a%2Bb/c%22d%26e+%254",
        "a+b/c&quot;d&amp;e&nbsp;%4",
        "a&#43;b&#x2F;c&amp;quot;d&amp;amp;e&#32;%4",
        "A+B/C\"D&E %4",
    ] {
        assert_eq!(redactor.clean(&format!("<{echo}>")), "<[key]>", "{echo}");
    }
    assert_eq!(redactor.clean("a+b/c, %4, &amp; and \\u0061"), "a+b/c, %4, &amp; and \\u0061");
}

#[test]
fn a_secret_that_a_text_was_cut_in_is_removed_too() {
    let redactor = Redactor::new(["sk-live-0123456789".to_owned().into()]);
    assert_eq!(redactor.clean("bad key sk-live"), "bad key [key]");
    assert_eq!(redactor.clean("bad key sk\\u002dlive\\u0"), "bad key [key]");
    assert_eq!(redactor.clean("bad key sk-li"), "bad key sk-li");
}

#[test]
fn a_secret_in_pieces_is_removed_to_the_end_of_its_last_escape() {
    // `&a` is the end of the secret in another case, and the start of `&amp;A`.
    for (secret, text) in
        [("0aAa0!A!a&A", "<0aAa0!A!a&amp;A>"), ("0aAa0!A!a&AM", "<0aAa0!A!a&amp;&#97;&#109;>")]
    {
        let redactor = Redactor::new([secret.to_owned().into()]);
        assert_eq!(redactor.clean(text), "<[key]>");
        let (mut out, mut held) = (Vec::new(), Vec::new());
        for byte in text.bytes() {
            held.push(byte);
            let left = redactor.pass(&held, &mut out);
            held = held.split_off(left);
        }
        redactor.close(&held, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "<[key]>", "{secret}");
    }
}

/// The spellings that services use.
fn spell(secret: &str, how: usize) -> String {
    let each = |spell: fn(u8) -> String| secret.bytes().map(spell).collect::<String>();
    match how {
        0 => secret.to_owned(),
        1 => {
            let json = serde_json::Value::from(secret).to_string();
            json.get(1..json.len() - 1).unwrap().to_owned()
        }
        2 => each(|byte| format!("\\u{:04x}", u32::from(byte))),
        3 => each(|byte| format!("%{byte:02X}")),
        4 => {
            each(
                |byte| {
                    if byte.is_ascii_alphanumeric() {
                        char::from(byte).into()
                    } else {
                        format!("%{byte:02x}")
                    }
                },
            )
        }
        5 => each(|byte| format!("&#{byte};")),
        6 => secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
        7 => base64::encode(secret.as_bytes()),
        _ => secret.to_ascii_uppercase(),
    }
}

proptest! {
    #[test]
    fn no_spelling_of_a_secret_is_left(
        secret in "[!-~]{12,40}",
        before in "[ -~]{0,20}",
        after in "[ -~]{0,20}",
        how in 0usize..9,
        pieces in prop::collection::vec(1usize..9, 1..9),
    ) {
        let redactor = Redactor::new([secret.clone().into()]);
        let spelled = spell(&secret, how);
        let text = format!("{before} {spelled} {after}");
        let clean = redactor.clean(&text);
        // Base64 is recognised by its whole groups.
        let known = if how == 7 { spelled.get(..secret.len() / 3 * 4).unwrap() } else { &spelled };
        prop_assert!(!clean.contains(known) && clean.contains(SHOWN), "{} -> {}", text, clean);

        // In pieces the result is the same.
        let (mut out, mut held, mut rest) = (Vec::new(), Vec::new(), text.as_bytes());
        for length in pieces.into_iter().cycle() {
            let (piece, tail) = rest.split_at(length.min(rest.len()));
            held.extend_from_slice(piece);
            let left = redactor.pass(&held, &mut out);
            held = held.split_off(left);
            rest = tail;
            if rest.is_empty() {
                break;
            }
        }
        redactor.close(&held, &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), clean);
    }

    #[test]
    fn text_without_secrets_stays(text in "[ -~]{0,60}") {
        let redactor = Redactor::new(["\u{7f}secret\u{7f}".to_owned().into()]);
        prop_assert_eq!(redactor.clean(&text), text);
    }
}
