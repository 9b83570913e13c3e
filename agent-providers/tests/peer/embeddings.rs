//! Vectors of a real model, which come as numbers and in base64.

use entourage_core::{
    ErrorKind, RetryStatus,
    provider::{CallContext, Embedder},
};
use entourage_providers::openai_chat::OpenAiChat;
use entourage_runtime::cosine;

use crate::{KEY, SERVER, server};

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn texts_become_vectors_in_every_form() {
    let _server = SERVER.read().await;
    let service = OpenAiChat::builder().base_url(format!("{}/v1", server())).api_key(KEY).build().unwrap();
    let texts = ["a", "longer than the first", "a", "Zwölf Boxkämpfer"].map(str::to_owned);
    let embed = async |embedder: entourage_providers::openai_chat::OpenAiEmbedder| {
        embedder.embed(&texts, &CallContext::new()).await.unwrap()
    };
    let whole = embed(service.embedder("default")).await;
    println!("{} numbers, {:?}", whole.vectors[0].len(), whole.usage);
    assert_eq!(whole.vectors.len(), texts.len());
    assert!(whole.usage.input.is_some_and(|tokens| tokens > 4), "{:?}", whole.usage);
    let alike = |a: usize, b: usize| cosine(&whole.vectors[a], &whole.vectors[b]).unwrap();
    assert!(alike(0, 2) > 0.999, "{}", alike(0, 2));
    assert!(alike(0, 1) < 0.999, "{}", alike(0, 1));
    let coded = embed(service.embedder("default").with_base64()).await;
    assert_eq!(coded.usage, whole.usage);
    for (a, b) in coded.vectors.iter().zip(&whole.vectors) {
        assert!(cosine(a, b).unwrap() > 0.999);
    }
    // The vector of a text depends on the other texts of its batch here, so only the order is looked at.
    let single = embed(service.embedder("default").with_batch(1)).await;
    assert_eq!((single.vectors.len(), single.usage), (texts.len(), whole.usage));
    let alike = |a: usize, b: usize| cosine(&single.vectors[a], &single.vectors[b]).unwrap();
    assert!(alike(0, 2) > 0.999 && alike(0, 1) < 0.999, "{} {}", alike(0, 2), alike(0, 1));
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn texts_that_cannot_be_embedded_are_refused() {
    let _server = SERVER.read().await;
    let service = OpenAiChat::builder().base_url(format!("{}/v1", server())).build().unwrap();
    let embedder = service.embedder("default");
    let cx = CallContext::new();
    let error = embedder.embed(&["word ".repeat(20_000)], &cx).await.unwrap_err();
    println!("{error:?}");
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::ContextOverflow, RetryStatus::Permanent),
        "{error}"
    );
    let error = embedder.with_dimensions(3).embed(&["a".to_owned()], &cx).await.unwrap_err();
    println!("{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
