//! Sizes of models, as their names state them.

use entourage_core::provider::Size;

/// Size stated in a model's name, as in `7b`, `1.5b`, `270m` or `8x7b`. `None` if the name states none, and for
/// embedding models, which do not chat.
pub(crate) fn size_in(name: &str) -> Option<Size> {
    let name = name.to_ascii_lowercase();
    if name.contains("embed") {
        return None;
    }
    let words = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
    words.filter_map(parameters).reduce(f64::max).map(size)
}

/// Billions of parameters, if the whole word states them. `a3b` (active parameters) and `v2` do not.
fn parameters(word: &str) -> Option<f64> {
    let (number, unit) = match word.strip_suffix('b') {
        Some(number) => (number, 1.0),
        None => (word.strip_suffix('m')?, 0.001),
    };
    let (experts, each) = number.split_once('x').unwrap_or(("1", number));
    let read = |text: &str| {
        let digits = text.starts_with(|c: char| c.is_ascii_digit());
        text.parse::<f64>().ok().filter(|n| digits && n.is_finite() && *n > 0.0)
    };
    Some(read(experts)? * read(each)? * unit)
}

/// Size of a model with that many billion parameters. A count between two sizes gets the larger one.
fn size(billions: f64) -> Size {
    match billions {
        b if b < 2.0 => Size::Xs,
        b if b <= 4.0 => Size::S,
        b if b <= 13.0 => Size::M,
        b if b <= 34.0 => Size::L,
        b if b > 34.0 => Size::Xl,
        _ => Size::M,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lo02_sizes_are_read_from_whole_numbers_in_names() {
        for (name, size) in [
            ("a-1b", Some(Size::Xs)),
            ("a-1.5b", Some(Size::Xs)),
            ("a:270m", Some(Size::Xs)),
            ("a-2b", Some(Size::S)),
            ("a-4b", Some(Size::S)),
            ("a-5b", Some(Size::M)),
            ("a-7b", Some(Size::M)),
            ("a-11b", Some(Size::M)),
            ("a-13b", Some(Size::M)),
            ("a-14b", Some(Size::L)),
            ("A-22B-Chat", Some(Size::L)),
            ("a-32b", Some(Size::L)),
            ("a-40b", Some(Size::Xl)),
            ("a-70b", Some(Size::Xl)),
            ("a-8x7b", Some(Size::Xl)),
            ("a-235b-a22b", Some(Size::Xl)),
            ("maker/a-30b-a3b-v2", Some(Size::L)),
            ("embed-7b", None),
            ("a-large", None),
            ("b", None),
            ("xb", None),
            ("a-0b", None),
            ("", None),
        ] {
            assert_eq!(size_in(name), size, "{name}");
        }
        assert_eq!(size(f64::NAN), Size::M);
    }
}
