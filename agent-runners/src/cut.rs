//! Texts that are cut to a number of characters. Pure.

/// The text in at most so many characters, the last of which is a mark where something is missing.
pub(crate) fn cut(text: &str, most: usize) -> String {
    // A text has no more characters than bytes.
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_text_is_cut_between_characters_and_one_that_fits_stays() {
        for (text, most, expected) in
            [("", 0, ""), ("äö", 2, "äö"), ("äöü", 2, "ä…"), ("äöü", 1, "…"), ("äöü", 0, "…")]
        {
            assert_eq!(cut(text, most), expected, "{text} {most}");
        }
    }
}
