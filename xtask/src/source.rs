//! Reads Rust well enough to count and to search.

/// Replaces comments, strings and characters by spaces. Lines and braces of code stay.
#[must_use]
pub fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (end, kept) = token_end(&chars, at);
        for &c in &chars[at..end] {
            out.push(if kept || c == '\n' { c } else { ' ' });
        }
        at = end;
    }
    out
}

/// End of the token at `at`, and whether it is kept.
fn token_end(chars: &[char], at: usize) -> (usize, bool) {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => (line_end(chars, at), false),
        '/' if next == Some('*') => (block_comment_end(chars, at), false),
        '"' => (string_end(chars, at), false),
        '\'' => char_end(chars, at).map_or((at + 1, true), |end| (end, false)),
        c if is_name(c) => {
            let end = name_end(chars, at);
            let name: String = chars[at..end].iter().collect();
            if matches!(name.as_str(), "r" | "br" | "cr")
                && let Some(end) = raw_string_end(chars, end)
            {
                return (end, false);
            }
            (end, true)
        }
        _ => (at + 1, true),
    }
}

/// Strings of a file with their lines, from 1. Escapes and names in braces are blanks.
#[must_use]
pub fn strings(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut at, mut line, mut strings) = (0, 1, Vec::new());
    while at < chars.len() {
        let (end, is_kept) = token_end(&chars, at);
        let token = &chars[at..end];
        let is_string = !is_kept && matches!(token[0], '"' | 'r' | 'b' | 'c');
        if is_string {
            strings.push((line, contents(token)));
        }
        line += token.iter().filter(|c| **c == '\n').count();
        at = end;
    }
    strings
}

fn contents(literal: &[char]) -> String {
    let (mut out, mut chars, mut is_name) = (String::new(), literal.iter(), false);
    while let Some(&c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
                out.push(' ');
            }
            '{' => is_name = true,
            '}' => {
                is_name = false;
                out.push(' ');
            }
            _ if !is_name => out.push(c),
            _ => {}
        }
    }
    out
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn name_end(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|&i| !is_name(chars[i])).unwrap_or(chars.len())
}

fn line_end(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// End of the raw string with its `#`s or quote at `at`, if there is one (`r#name` is a name).
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let quote = (at..chars.len()).find(|&i| chars[i] != '#')?;
    if chars[quote] != '"' {
        return None;
    }
    let hashes = quote - at;
    let closes = |i: usize| {
        chars[i] == '"' && chars.get(i + 1..=i + hashes).is_some_and(|after| after.iter().all(|&c| c == '#'))
    };
    let end = (quote + 1..chars.len()).find(|&i| closes(i));
    Some(end.map_or(chars.len(), |i| i + 1 + hashes))
}

/// End of the character literal at `at`. `None`: the quote starts a lifetime.
fn char_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        return (at + 3..chars.len()).find(|&i| chars[i] == '\'').map(|i| i + 1);
    }
    (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to its closing brace.
    pub lines: usize,
}

/// Functions with a body in blanked code, in order.
#[must_use]
pub fn functions(code: &str) -> Vec<Function> {
    let words = words(code);
    let mut functions = Vec::new();
    for pair in words.windows(2) {
        let [(at, "fn"), (name_at, name)] = pair else { continue };
        let is_raw = code[..*at].ends_with('#');
        let is_named = code[at + 2..*name_at].chars().all(char::is_whitespace);
        if is_raw || !is_named {
            continue;
        }
        if let Some(end) = body_end(code, name_at + name.len()) {
            let line = line_of(code, *at);
            functions.push(Function { name: (*name).into(), line, lines: line_of(code, end) - line + 1 });
        }
    }
    functions
}

/// A block of `impl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impl {
    /// Its type, without path and parameters.
    pub of: String,
    /// Line of its `impl`, from 1.
    pub line: usize,
    /// Lines from `impl` to its closing brace.
    pub lines: usize,
}

/// Blocks of `impl` in blanked code, in order.
#[must_use]
pub fn impls(code: &str) -> Vec<Impl> {
    let mut impls = Vec::new();
    for (at, _) in words(code).into_iter().filter(|(_, word)| *word == "impl") {
        // Elsewhere `impl` stands for a type.
        let before = code[..at].trim_end();
        let begins =
            before.is_empty() || before.ends_with(['}', ';', ']', '{']) || before.ends_with("unsafe");
        let Some(end) = body_end(code, at).filter(|_| begins) else { continue };
        let header = code[at + "impl".len()..end].split('{').next().unwrap_or_default();
        if let Some(of) = implementing(header) {
            let line = line_of(code, at);
            impls.push(Impl { of, line, lines: line_of(code, end) - line + 1 });
        }
    }
    impls
}

fn implementing(header: &str) -> Option<String> {
    let mut depth = 0;
    let mut outside = String::new();
    let mut before = ' ';
    for c in header.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ if depth == 0 => outside.push(c),
            _ => {}
        }
        before = c;
    }
    let words = words(&outside);
    let bounds = words.iter().position(|(_, word)| *word == "where").unwrap_or(words.len());
    let names = &words[..bounds];
    let from = names.iter().position(|(_, word)| *word == "for").map_or(0, |at| at + 1);
    names[from..].iter().map(|(_, word)| *word).rfind(|word| *word != "dyn").map(str::to_owned)
}

/// Names, keywords and numbers of blanked code, with their first bytes.
#[must_use]
pub fn words(code: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in code.char_indices().chain([(code.len(), ' ')]) {
        match (start, is_name(c)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                words.push((from, &code[from..at]));
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// The line of a byte, from 1.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&b| b == b'\n').count() + 1
}

/// Closing brace of a function's body; `from` is in its signature. `None`: it has no body.
fn body_end(code: &str, from: usize) -> Option<usize> {
    let mut brackets = 0;
    let mut braces = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '(' | '[' if braces == 0 => brackets += 1,
            ')' | ']' if braces == 0 => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' if brackets == 0 => braces += 1,
            '}' if brackets == 0 => {
                braces -= 1;
                if braces == 0 {
                    return Some(from + at);
                }
            }
            _ => {}
        }
        if brackets < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize, usize)> {
        functions(&blank(text)).into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    #[test]
    fn what_is_no_code_is_blanked() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("a\"b{", c)"#, "f(       , c)"),
            (r###"f(r#"a"b{"#, c)"###, "f(         , c)"),
            (r#"br"\" b"#, "      b"),
            ("r#fn()", "r#fn()"),
            ("'{' '\\'' '\\u{7b}' b'}'", "                  b   "),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("'outer: loop { break 'outer; }", "'outer: loop { break 'outer; }"),
            ("\"no end {", "         "),
            ("/* no end {", "           "),
            ("r\"no end", "        "),
        ];
        for (text, expected) in cases {
            assert_eq!(blank(text), expected, "{text}");
        }
    }

    #[test]
    fn a_string_over_lines_keeps_them() {
        assert_eq!(blank("a \"b\nc\" d"), "a   \n   d");
        assert_eq!(blank("/* é\n */ d"), "    \n    d");
    }

    #[test]
    fn functions_are_counted_from_fn_to_brace() {
        assert_eq!(lengths("fn f() {}"), [("f".into(), 1, 1)]);
        assert_eq!(lengths("\npub fn f(\n    a: u8,\n) -> u8 {\n    a\n}\n"), [("f".into(), 2, 5)]);
        let nested = "fn f() {\n    fn g() {\n        h()\n    }\n}\nfn i() {\n}";
        assert_eq!(lengths(nested), [("f".into(), 1, 5), ("g".into(), 2, 3), ("i".into(), 6, 2)]);
    }

    #[test]
    fn braces_that_are_no_code_do_not_count() {
        let text =
            "fn f() {\n    // }\n    /* } */\n    g('}', \"}\", r#\"\"}\"#, b'}', '\\'');\n}\nfn h() {}";
        assert_eq!(lengths(text), [("f".into(), 1, 5), ("h".into(), 6, 1)]);
    }

    #[test]
    fn only_functions_with_a_body_count() {
        assert!(lengths("trait T { fn f(&self); }").is_empty());
        assert!(lengths("fn f(a: [u8; 3]);").is_empty());
        assert!(lengths("type F = fn(u8) -> u8; struct S { f: fn() }").is_empty());
        assert!(lengths("let r#fn = 1; macro_rules! m { ($n:ident) => { fn $n() {} } }").is_empty());
        assert_eq!(lengths("fn f(a: [u8; 3])\nwhere\n    T: Fn(u8),\n{ }"), [("f".into(), 1, 4)]);
        assert_eq!(lengths("fn f(a: [u8; { 1 + 2 }]) {\n}"), [("f".into(), 1, 2)]);
    }

    #[test]
    fn blocks_are_counted_for_the_type_that_they_are_for() {
        let of = |text: &str| -> Vec<(String, usize, usize)> {
            impls(&blank(text)).into_iter().map(|block| (block.of, block.line, block.lines)).collect()
        };
        assert_eq!(of("impl A {\n    fn f() {}\n}\nimpl B {}"), [("A".into(), 1, 3), ("B".into(), 4, 1)]);
        for text in [
            "impl A {}",
            "unsafe impl Send for A {}",
            "impl<'a, T: Fn(u8) -> u8> fmt::Display for a::A<'a, T> where T: Copy {}",
            "struct B;\nimpl From<B> for A {}",
            "#[allow(x)]\nimpl<D: Disk> A<D> {}",
            "mod m { impl dyn A {} }",
            "impl<T> A for &mut [A<T>] {}",
        ] {
            let blocks = of(text);
            assert_eq!(blocks.first().map(|(of, ..)| of.as_str()), Some("A"), "{text}");
            assert_eq!(blocks.len(), 1, "{text}");
        }
        assert!(of("fn f(a: impl Fn(u8)) -> impl Iterator<Item = u8> { g(a) }").is_empty());
        assert!(of("impl A {").is_empty());
    }

    #[test]
    fn unbalanced_code_is_survived() {
        assert!(lengths("fn f() {").is_empty());
        assert!(lengths("fn f)").is_empty());
        assert!(lengths("fn").is_empty());
    }
}
