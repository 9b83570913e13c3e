// Draws the pictures of a page. Without network they stay the texts that they are.
(() => {
    const blocks = document.querySelectorAll("code.language-mermaid");
    if (blocks.length === 0) return;
    const script = document.createElement("script");
    script.src = "https://cdn.jsdelivr.net/npm/mermaid@12.3.0/dist/mermaid.min.js";
    script.integrity = "sha384-HHW54r639fK42Ip0coGF3mz8oSiGn0eEoWNTLs75X7H63pLSDBa0Tqs0RwGmLlXE";
    script.crossOrigin = "anonymous";
    script.onload = async () => {
        const dark = /\b(ayu|coal|navy)\b/.test(document.documentElement.className);
        mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral" });
        for (const block of blocks) {
            const picture = document.createElement("div");
            picture.className = "mermaid";
            picture.textContent = block.textContent;
            block.parentElement.replaceWith(picture);
        }
        await mermaid.run();
    };
    document.head.append(script);
})();
