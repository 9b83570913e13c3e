//! The search order, and errors that name the remedy. No test reads the process's environment.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
};

use super::*;

fn find(variables: &[(&str, &str)], local: &[(&str, SocketAddr)]) -> Result<Found> {
    find_with(lookup(variables), local)
}

fn lookup(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    move |name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn shown(variables: &[(&str, &str)]) -> String {
    find(variables, &[]).map_or_else(|error| error.to_string(), |found| found.to_string())
}

#[test]
fn variables_are_tried_in_the_documented_order() {
    let all = [
        ("ENTOURAGE_MODEL", "deepseek:deepseek-r1"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
        ("OPENAI_API_KEY", "k1"),
        ("DEEPSEEK_API_KEY", "k2"),
        ("OPENROUTER_API_KEY", "k3"),
    ];
    let wanted = [
        "deepseek-r1 at https://api.deepseek.com/v1 (ENTOURAGE_MODEL)",
        "default at http://127.0.0.1:9/v1 (OPENAI_BASE_URL)",
        "gpt-5.4-mini at https://api.openai.com/v1 (OPENAI_API_KEY)",
    ];
    for (skip, wanted) in wanted.iter().enumerate() {
        assert_eq!(shown(&all[skip..]), *wanted);
    }
    assert_eq!(shown(&all[3..]), "openrouter/auto at https://openrouter.ai/api/v1 (OPENROUTER_API_KEY)");
    assert_eq!(shown(&all[3..4]), "deepseek-flash at https://api.deepseek.com/v1 (DEEPSEEK_API_KEY)");
    let named = [("OPENAI_API_KEY", "k"), ("OPENAI_MODEL", "big-1"), ("ENTOURAGE_MODEL", "  ")];
    assert_eq!(shown(&named), "big-1 at https://api.openai.com/v1 (OPENAI_API_KEY)");
}

#[test]
fn names_of_models_are_read_in_each_form() {
    let keys = lookup(&[("OPENAI_API_KEY", "k"), ("OPENROUTER_API_KEY", "k")]);
    let read = |text: &str| {
        model_with(text, &keys).map(|found| format!("{:?} {}", found.model, found.address)).unwrap()
    };
    assert_eq!(read("openai:gpt-5-mini"), "Model(openai:gpt-5-mini) https://api.openai.com/v1");
    assert_eq!(
        read("openrouter:meta/llama:free"),
        "Model(openrouter:meta/llama:free) https://openrouter.ai/api/v1"
    );
    assert_eq!(read("ollama:qwen3:8b"), "Model(ollama:qwen3:8b) http://127.0.0.1:11434/v1");
    assert_eq!(read("http://localhost:8000/v1#m"), "Model(localhost:m) http://localhost:8000/v1");
    assert_eq!(read("http://localhost:8000/v1"), "Model(localhost:default) http://localhost:8000/v1");
}

#[test]
fn errors_name_the_variable_the_address_and_the_fix() {
    let none = lookup(&[]);
    let refuse = |text: &str| model_with(text, &none).unwrap_err();
    let missing = refuse("groq:x");
    assert_eq!(missing.kind(), ErrorKind::Authentication);
    assert!(missing.message().contains("GROQ_API_KEY"), "{missing}");
    for text in ["nobody:x", "gpt-5", "openai:", ""] {
        let error = refuse(text);
        assert!(
            error.kind() == ErrorKind::Config && error.message().contains("openrouter"),
            "{text}: {error}"
        );
    }
    let no_default = find(&[("GROQ_API_KEY", "k")], &[]).unwrap_err();
    assert!(no_default.message().contains("ENTOURAGE_MODEL=groq:<model>"), "{no_default}");
    let url = find(&[("OPENAI_BASE_URL", "localhost:80")], &[]).unwrap_err();
    assert!(url.kind() == ErrorKind::Config && url.to_string().contains("OPENAI_BASE_URL"), "{url}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nothing = find(&[], &[("Nobody", nobody)]).unwrap_err().to_string();
    for tried in [
        "ENTOURAGE_MODEL",
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        "XAI_API_KEY",
        &format!("Nobody at {nobody}"),
    ] {
        assert!(nothing.contains(tried), "{tried} is missing in: {nothing}");
    }
}

#[test]
fn a_local_server_is_found_and_asked_for_its_model() {
    let serve = |answer: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 512];
            let n = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        (address, server)
    };
    let (web, first) = serve("HTTP/1.1 200 OK\r\n\r\n<html>hello</html>");
    let (llm, second) = serve("HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"qwen3\"}]}");
    let found = find(&[], &[("Web", web), ("Llm", llm)]).unwrap();
    assert_eq!(found.to_string(), format!("qwen3 at http://{llm}/v1 (Llm on this machine)"));
    assert!(first.join().unwrap().starts_with("GET /v1/models HTTP/1.0\r\n"));
    second.join().unwrap();
}
